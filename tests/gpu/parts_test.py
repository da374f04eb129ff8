# SPDX-License-Identifier: Apache-2.0
"""What a session takes of packed parts, of which some may not work where it runs."""
import contextlib
import hashlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import parts  # noqa: E402


class Packed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        os.chdir(HERE.parents[1])
        self.packed, self.work = self.folder / "packed", self.folder / "work"
        self.work.mkdir()
        for name in ("bin/nanwatch", "bin/nanwatchd"):
            self.script(self.packed / name, "echo nanwatch 0")
        for name in ("lib/libnanwatch.so", "lib/libgrid_for.so", "lib/nanwatch/libnanwatch_observer-2.11.so", f"lib/{parts.CUBIN}"):
            (self.packed / name).parent.mkdir(parents=True, exist_ok=True)
            (self.packed / name).write_text("")
        # Of the Python, only the status with which it tries the observer.
        self.python = self.script(self.folder / "python", f"cd '{self.folder}'; echo tried >>tries; exit $(cat status)")
        self.builds = mock.patch.object(parts.Parts, "build_observer", side_effect=self.built)
        self.status(0)

    def script(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text + "\n")
        path.chmod(0o755)
        return path

    def status(self, number):
        (self.folder / "status").write_text(str(number))

    def built(self, prefix, seconds_max):
        (self.folder / "built").write_text(str(seconds_max))
        self.status(0)
        return 0

    def states(self):
        made = parts.Parts(self.packed, self.work, self.python, self.folder, lambda: 100.0)
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        with self.builds, contextlib.redirect_stdout(io.StringIO()), mock.patch.dict(os.environ, environment, clear=True):
            made.put_together()
        return [tuple(line.split("\t")[:2]) for line in (self.work / "parts.tsv").read_text().splitlines()]

    def test_those_that_work_are_taken_and_nothing_is_built(self):
        self.assertEqual(self.states(), [("grid_for", "taken"), ("tools", "taken"), ("observer", "taken"), ("observer_in_torch", "works")])
        self.assertFalse((self.folder / "built").exists())
        self.assertEqual((self.folder / "tries").read_text(), "tried\n")

    def test_kernels_that_are_not_those_of_this_tree_are_named(self):
        for text, state in ((hashlib.sha256(parts.PTX.read_bytes()).hexdigest() + "\n", "same"), ("0" * 64 + "\n", "differ")):
            (self.packed / "check_kernel.sha256").write_text(text)
            self.assertEqual(self.states()[0], ("kernels", state))
            self.assertEqual((self.work / parts.CUBIN).exists(), state == "same", "the cubin of other kernels is not taken")
            (self.work / "parts.tsv").unlink()

    def test_an_observer_that_does_not_start_is_built(self):
        self.status(1)
        self.assertEqual(self.states()[2:], [("observer", "taken"), ("observer_in_torch", "fails"), ("observer", "built"), ("observer_in_torch", "works")])

    def test_tools_that_do_not_run_are_not_used(self):
        self.script(self.packed / "bin/nanwatch", "echo Error: no such libc >&2; exit 127")
        with mock.patch.object(pathlib.Path, "exists", lambda path: not str(path).startswith("build/release") and os.path.exists(path)):
            self.assertEqual(self.states()[1:3], [("tools", "useless"), ("tools", "missing")])
        self.assertIn("no such libc", (self.work / "parts.tsv").read_text())

    def test_one_that_hangs_takes_no_more_than_half_of_what_is_left(self):
        self.script(self.packed / "bin/nanwatch", "sleep 1000")
        made = parts.Parts(self.packed, self.work, self.python, self.folder, lambda: 2.0)
        self.assertIsNone(made._run([self.packed / "bin/nanwatch"], "hangs.log"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
