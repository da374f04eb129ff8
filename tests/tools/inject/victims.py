# SPDX-License-Identifier: Apache-2.0
"""Starts victim.py, and has nanwatch_inject_once load a stand-in library into it."""
import ctypes
import errno
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("NANWATCH_BUILD") or HERE.parents[2] / "build/release") / "tests"
ONCE, STAND_IN, REGISTERS = BUILD / "nanwatch_inject_once", BUILD / "nanwatch_inject_stand_in.so", BUILD / "nanwatch_inject_registers.so"
MARGIN_MS = 60_000  # for what takes a fraction of a second
WAIT_FOR_GOOD = ("blocked", "execs")  # the kinds that pass no point of Python once they wait


def time_to_wait(seconds):
    """A struct timespec."""
    return struct.pack("qq", int(seconds), int(seconds % 1 * 1e9))


def was_interrupted(call, *arguments):
    """Of a call of libc's (by a CDLL with use_errno) that waits: programs in C would see it."""
    return call(*arguments) == -1 and ctypes.get_errno() == errno.EINTR


class Victim:
    def __init__(self, kind, seconds, folder):
        self.answers = pathlib.Path(folder) / f"answers-{kind}-{time.monotonic_ns()}"
        self.process = subprocess.Popen([sys.executable, HERE / "victim.py", kind, str(seconds), REGISTERS],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        word, pid = self.process.stdout.readline().split()
        assert word == "ready", word
        self.pid = int(pid)
        if kind in WAIT_FOR_GOOD:
            self.let_it_wait()

    def let_it_wait(self):
        """Until its only thread waits in the kernel: on the way there from its "ready" it still gives the GIL back."""
        status = pathlib.Path(f"/proc/{self.pid}/stat")
        while status.read_text().rpartition(") ")[2][0] != "S":
            assert self.process.poll() is None, "it ended"
            os.sched_yield()

    def command(self, limit_ms=MARGIN_MS, asked=""):
        """`asked`: which request this is, where there are several."""
        return [ONCE, str(self.pid), STAND_IN, f"{self.answers}{asked}", str(limit_ms)]

    def attach(self, limit_ms=MARGIN_MS, before=()):
        return json.loads(subprocess.run([*before, *self.command(limit_ms)], capture_output=True, text=True).stdout)

    def loaded_for(self):
        """For each request, a line for each call of the library's entry, whichever process made it."""
        return [path.read_text().splitlines() for path in self.answers.parent.glob(f"{self.answers.name}*")]

    def loaded(self):
        return [line for lines in self.loaded_for() for line in lines]

    def mapped(self):
        return STAND_IN.name in pathlib.Path(f"/proc/{self.pid}/maps").read_text()

    def end(self):
        """Its status and all that it said."""
        said, _ = self.process.communicate()
        return self.process.returncode, said

    def kill(self):
        self.process.kill()
        self.process.communicate()


class VictimTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def victim(self, kind, seconds=3.0):
        victim = Victim(kind, seconds, self.folder.name)
        self.addCleanup(victim.kill)
        return victim

    def assert_loaded_once(self, victim, result):
        self.assertTrue(result["called"], result)
        self.assertEqual(result["answer"], 42)
        self.assertEqual(victim.loaded(), [f"idle /a b {victim.pid}"])

    def assert_fine(self, victim):
        status, said = victim.end()
        self.assertEqual(status, 0, said)
        self.assertIn("fine", said)
