# SPDX-License-Identifier: Apache-2.0
"""gpu_check_test.py SOURCE_TREE PYTHON: scripts/gpu_check.sh where there is no GPU, or not even torch."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TREE, PYTHON = sys.argv[1:3]


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, *options, python=PYTHON):
        # Without a device for torch, whatever this machine has.
        return subprocess.run([f"{TREE}/scripts/gpu_check.sh", *options], cwd=self.folder, capture_output=True, text=True, check=False,
                              env={**os.environ, "NANWATCH_PYTHON": str(python), "CUDA_VISIBLE_DEVICES": ""})

    def test_without_a_gpu_it_says_so_runs_nothing_and_exits_with_77(self):
        ran = self.run_script("--out", "results")
        self.assertEqual((ran.returncode, ran.stdout), (77, "gpu_check: no GPU: nothing was run\n"), ran.stderr)
        self.assertFalse((self.folder / "results").exists())

    def test_without_torch_it_fails(self):
        python = self.folder / "python"
        python.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
        python.chmod(0o755)
        ran = self.run_script(python=python)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("cannot import torch: nothing was run", ran.stderr)

    def test_an_unknown_option_is_named(self):
        ran = self.run_script("--frob")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("'--frob' is unknown", ran.stderr)

    def test_questions_have_ids_of_their_own_that_name_their_file(self):
        ran = self.run_script("--list")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        names = [line.split("\t")[0] for line in ran.stdout.splitlines()]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual({name.split(".")[0] for name in names}, {"smoke", "batches", "kernels", "sums", "measures", "no_sync", "ends", "steps", "overhead", "verdicts", "build"})

    def test_a_file_of_questions_that_is_not_there_is_named(self):
        ran = self.run_script("--only", "kernels,frob", "--list")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("there are no questions 'frob'", ran.stderr)

    def test_one_result_is_not_merged(self):
        ran = self.run_script("--merge", "/dev/null", "--out", "results")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("two results or more", ran.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
