# SPDX-License-Identifier: Apache-2.0
"""other_torch_test.py OBSERVER: an observer that is handed a torch it is not built for steps down with one line.

Calls the built observer's own start in a process with its torch, as libnanwatch.so would, and says that the job has another
torch. That is what the observer meets when its file lies under the name of another minor version and can still be loaded
(where it cannot, the loader refuses it; tests/shim/entry has that).
"""
import ctypes
import sys
import threading
import unittest

import torch

SAY = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
OBSERVER = sys.argv.pop()
START_SECONDS_MAX = 30


class Entry(ctypes.Structure):  # struct NanwatchEntry
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("interface_version", ctypes.c_uint32),
                ("active", ctypes.POINTER(ctypes.c_uint32)), ("is_wiped", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("torch_version", ctypes.c_char_p),
                ("libtorch_path", ctypes.c_char_p), ("library_path", ctypes.c_char_p), ("say", SAY)]


def start(torch_version):
    """What start returned (None: it stays, so it is watching), the lines it said, and whether it is active."""
    lines, active, returned = [], ctypes.c_uint32(0), []
    say = SAY(lambda line: lines.append(line.decode()))
    entry = Entry(ctypes.sizeof(Entry), 1, ctypes.pointer(active), 1, 0, torch_version.encode(), b"", b"", say)
    library = ctypes.CDLL(OBSERVER)
    thread = threading.Thread(target=lambda: returned.append(library.nanwatch_observer_start(ctypes.byref(entry))),
                              daemon=True)
    thread.start()
    thread.join(START_SECONDS_MAX)
    return (returned[0] if returned else None), lines, active.value


class AnObserverHandedAnotherTorch(unittest.TestCase):
    def test_steps_down_with_one_line_that_names_both_versions(self):
        major, minor = torch.__version__.split(".")[:2]
        for other in (f"{major}.{int(minor) + 1}.0+cpu", f"{major}.{minor}0.0", f"{int(major) + 1}.{minor}.0",
                      f"{major}.{int(minor) - 1}.0", "unknown"):
            with self.subTest(other):
                returned, lines, active = start(other)
                self.assertEqual(1, returned)
                self.assertEqual(0, active)
                self.assertEqual(1, len(lines), lines)
                self.assertIn(f"built for torch {major}.{minor}", lines[0])
                self.assertIn(f"the job has {other}", lines[0])
                self.assertNotIn("\n", lines[0])

    def test_leaves_the_job_untouched(self):
        values = torch.tensor([-1.0, 0.0, 1.0])
        before = torch.log(values).view(torch.int32)
        start("0.1.0")
        self.assertTrue(torch.equal(before, torch.log(values).view(torch.int32)))


if __name__ == "__main__":
    unittest.main()
