# SPDX-License-Identifier: Apache-2.0
"""Programs run at once, and what is left of them when the caller ends."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from process_groups import KILLED, ProcessGroups, at_once  # noqa: E402

# A program that starts another, tells both numbers and never ends.
NEVER_ENDS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
with open(sys.argv[1] + ".new", "w") as file: print(os.getpid(), child.pid, file=file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""


class Groups(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def numbers(self, path):
        deadline = time.monotonic() + 60
        while not path.exists():
            self.assertLess(time.monotonic(), deadline, "the program does not start")
            os.sched_yield()
        return [int(number) for number in path.read_text().split()]

    def assert_gone(self, *processes):
        for process in processes:
            try:
                handle = os.pidfd_open(process)
            except ProcessLookupError:
                continue
            with os.fdopen(handle):
                deadline = time.monotonic() + 60
                while self.runs(process):
                    self.assertLess(time.monotonic(), deadline, f"process {process} runs on")
                    os.sched_yield()

    @staticmethod
    def runs(process):
        try:
            return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:  # it went between two calls
            return False

    def test_one_whose_time_is_over_is_killed_with_its_children(self):
        for seconds in (3, 30, 60):  # until it is enough to start both
            self.assertIsNone(ProcessGroups().run([sys.executable, "-c", NEVER_ENDS, self.folder / "numbers"], seconds))
            if (self.folder / "numbers").exists():
                break
        self.assert_gone(*self.numbers(self.folder / "numbers"))

    def test_the_status_of_one_that_ends_is_told(self):
        self.assertEqual(ProcessGroups().run(["sh", "-c", "exit 3"], 60), 3)

    def test_an_exception_ends_all_and_begins_none(self):
        with self.assertRaises(KeyboardInterrupt):
            with at_once(2) as (pool, groups):
                runs = [pool.submit(groups.run, [sys.executable, "-c", NEVER_ENDS, self.folder / str(i)], 600) for i in range(4)]
                running = self.numbers(self.folder / "0") + self.numbers(self.folder / "1")
                raise KeyboardInterrupt
        self.assert_gone(*running)
        self.assertEqual([run.result() for run in runs[:2]], [KILLED, KILLED])
        self.assertTrue(all(run.cancelled() or run.result() == KILLED for run in runs[2:]))

    def test_sigterm_that_exits_leaves_none(self):
        code = f"""
            import signal, sys
            sys.path.insert(0, {str(HERE)!r})
            from process_groups import at_once
            signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
            with at_once(1) as (pool, groups):
                pool.submit(groups.run, [sys.executable, "-c", {NEVER_ENDS!r}, {str(self.folder / "numbers")!r}], 600).result()
        """
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL) as caller:
            running = self.numbers(self.folder / "numbers")
            caller.send_signal(signal.SIGTERM)
            self.assertEqual(caller.wait(60), 1)
        self.assert_gone(*running)


if __name__ == "__main__":
    unittest.main(verbosity=2)
