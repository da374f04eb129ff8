# SPDX-License-Identifier: Apache-2.0
"""pytest with a model's tests: several trainings in one process, pytest's own frames around them, and its exit status."""
import importlib.util
import sys
import unittest

from framework_job import FrameworkTest, program, source_of

NAME = "pytest_suite"


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed: it was NOT tried")
class Pytest(FrameworkTest):
    @classmethod
    def start(cls, workplace):
        suite = program(NAME)[-1]
        cls.command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", suite]
        cls.healthy = workplace.run_watched([*cls.command, "-k", "trains_on_ones"])
        cls.faulty = workplace.run_watched(cls.command)

    def test_a_suite_that_passes_is_clean(self):
        self.assertEqual(self.healthy.status(), 0, self.healthy.stdout())
        self.assertEqual(self.healthy.verdict()["verdict"], "clean", self.healthy.stderr())

    def test_the_failing_test_is_named_by_its_line_and_pytests_status_stays(self):
        self.assert_origin(self.faulty, status=1, kind="op", op="aten::log", phase="forward", source=source_of(NAME))
        self.assertEqual(self.faulty.verdict()["run"]["program"], "pytest")


if __name__ == "__main__":
    unittest.main()
