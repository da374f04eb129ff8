#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What build-observer.sh says while it compiles, with a cmake that only prints: `build_observer_test.py SOURCE_TREE PYTHON`."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

# Prints 40 steps as ninja does. The last one writes the observer, or fails where the test says so.
CMAKE = """#!/bin/bash
if [[ $1 != --build ]]; then exit 0; fi
echo '[0/2] Re-checking globbed directories...'
for step in {1..40}; do echo "[$step/40] Building CXX object $step.o"; done
if [[ -n ${BROKEN:-} ]]; then echo 'error: no such thing'; exit 1; fi
mkdir -p "$2/lib/nanwatch" && echo made >"$2/lib/nanwatch/libnanwatch_observer-9.9.so"
"""


class BuildObserver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        for name in ("scripts/build-observer.sh", "scripts/cmake/torch_probe.py"):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, self.tree / name)
        self.programs = pathlib.Path(folder.name) / "programs"
        self.programs.mkdir()
        (self.programs / "cmake").write_text(CMAKE)
        (self.programs / "cmake").chmod(0o755)

    def build(self, **environment):
        return subprocess.run(
            ["scripts/build-observer.sh", "--no-setup", "--python", PYTHON, "--prefix", self.tree / "prefix"], cwd=self.tree, text=True,
            capture_output=True, env={**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}", **environment})

    def test_it_shows_how_far_it_is(self):
        ran = self.build()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        shown = [line for line in ran.stdout.splitlines() if line.endswith(" of 40 compiled")]
        # 1, then each tenth.
        self.assertEqual(shown, [f"build-observer: {step} of 40 compiled" for step in (1, *range(4, 41, 4))])
        self.assertEqual((self.tree / "prefix/lib/nanwatch/libnanwatch_observer-9.9.so").read_text(), "made\n")

    def test_a_failed_build_fails_and_shows_its_log(self):
        ran = self.build(BROKEN="1")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("error: no such thing", ran.stderr)
        self.assertIn("build-observer: the observer did not compile", ran.stderr)
        self.assertFalse((self.tree / "prefix").exists())


if __name__ == "__main__":
    SOURCE, PYTHON = pathlib.Path(sys.argv[1]), sys.argv[2]
    unittest.main(argv=sys.argv[:1])
