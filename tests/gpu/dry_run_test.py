# SPDX-License-Identifier: Apache-2.0
"""dry_run_test.py BUILD GRID_FOR: the questions that need a whole product, asked in small on the CPU."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD, GRID_FOR = pathlib.Path(sys.argv[1]), sys.argv[2]


class DryRun(unittest.TestCase):
    def asked(self, file, *options, preload=True):
        """What a file says about each of its questions."""
        with tempfile.TemporaryDirectory() as folder:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH")}
            if preload:
                environment |= {"LD_PRELOAD": str(BUILD / "tests/bench/lib/libnanwatch.so"), "NANWATCH_LEVEL": "full", "NANWATCH_DIR": folder,
                                "NANWATCH_STATE_DIR": f"{folder}/state"}
            ran = subprocess.run([sys.executable, HERE / f"{file}.py", "--dry-run", *options], env=environment, capture_output=True,
                                 text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return dict(line.split(": ", 1) for line in ran.stdout.splitlines() if line.startswith(file + "."))

    def test_steps_are_measured_with_the_observer(self):
        nanwatch = BUILD / "bin/nanwatch"
        self.assertEqual(self.asked("steps", "--only", "steps.gpt2", "--nanwatch", nanwatch, "--grid-for", GRID_FOR),
                         {"steps.gpt2": "not asked: a dry run measures nothing"})

    def test_waits_are_looked_for_only_where_there_is_an_observer(self):
        self.assertEqual(set(self.asked("no_sync").values()), {"not asked: a dry run measures nothing"})
        self.assertEqual(set(self.asked("no_sync", preload=False).values()), {"not asked: the preload library is not in this process"})

    def test_ends_are_compared_with_bare_ones(self):
        self.assertEqual(set(self.asked("ends", "--nanwatch", BUILD / "bin/nanwatch", preload=False).values()), {"not asked: a dry run measures nothing"})

    def test_the_first_program_runs_before_all_others(self):
        self.assertEqual(self.asked("smoke", "--nanwatch", BUILD / "bin/nanwatch", preload=False), {"smoke.eager": "not asked: a dry run measures nothing"})

    def test_programs_run_under_the_product(self):
        said = self.asked("verdicts", "--only", "verdicts.eager,verdicts.graphs,verdicts.programs", "--nanwatch", BUILD / "bin/nanwatch", preload=False)
        self.assertEqual(said["verdicts.eager"], "not asked: a dry run measures nothing")
        self.assertEqual(said["verdicts.graphs"], "not asked: graphs need a GPU")

    def test_what_is_missing_is_named(self):
        self.assertIn("is not there", self.asked("verdicts", "--only", "verdicts.eager", "--nanwatch", "/nowhere/nanwatch", preload=False)["verdicts.eager"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
