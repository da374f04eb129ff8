# SPDX-License-Identifier: Apache-2.0
"""What only the parameters one by one can tell is warned of, each on a program that shows it; and a program that shows nothing is left alone."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import PromiseTest  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "shows.py"
# The warning, its parameter or layer, and what its evidence says.
EXPECTED = {
    "epsilon": ("epsilon-lost", "0.weight", "eps 1e-08 rounds to 0 in the type of 6 parameters at step 0"),
    "dead": ("dead-units", "off", "of each gradient of off is zero in"),
    "too_large": ("update-too-large", None, "of 3 weight matrices"),
    "vanishing": ("gradient-vanishing-layer", "0.weight", "per element at step"),
    "forgotten": ("parameters-without-gradient", "forgotten.weight", "in each of the 30 steps up to step 29: forgotten.weight"),
}
QUIET = ("nothing", "epsilon_fits")
LEVELS = ("full", "canary")


class Warned:
    """For a test case: the program is run by PYTHON, at each of LEVELS."""
    PYTHON, LEVELS, EXPECTED = [sys.executable], LEVELS, EXPECTED

    @classmethod
    def start(cls, workplace):
        cls.jobs = {}
        for name in (*cls.EXPECTED, *QUIET):
            for level in cls.LEVELS:
                cls.jobs[name, level] = workplace.run_watched([*cls.PYTHON, PROGRAM, name], options=["--level", level, "--stats", "2"])
            for level in cls.LEVELS:
                cls.jobs[name, level].status()

    def warnings(self, name, level):
        job = self.jobs[name, level]
        self.assertEqual(job.status(), 0, job.stderr())
        return job.verdict()["warnings"]

    def test_each_is_told_once_with_its_parameter_and_its_numbers(self):
        for name, (warning_id, param, evidence) in self.EXPECTED.items():
            for level in self.LEVELS:
                with self.subTest(name=name, level=level):
                    all_told = self.warnings(name, level)
                    told = [warning for warning in all_told if warning["id"] == warning_id]
                    self.assertEqual(len(told), 1, all_told)
                    self.assertIn(evidence, told[0]["evidence"])
                    self.assertNotIn("?", told[0]["evidence"])
                    if param:
                        self.assertEqual(told[0]["param"], param)
                    self.assertEqual(told[0]["severity"], "info" if name == "forgotten" else "warning")
                    self.assertIn(told[0]["evidence"][:40], " ".join(self.jobs[name, level].stderr().split()))

    def test_nothing_is_said_of_what_shows_none_of_it(self):
        for name in QUIET:
            for level in self.LEVELS:
                with self.subTest(name=name, level=level):
                    self.assertEqual(self.warnings(name, level), [])


class ParameterWarnings(Warned, PromiseTest):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
