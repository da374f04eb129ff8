# SPDX-License-Identifier: Apache-2.0
"""What is told of steps besides their time: what a level did not look at."""
import argparse
import contextlib
import pathlib
import sys
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import steps  # noqa: E402
from answers import CannotAsk  # noqa: E402


class Switch:
    """An observer whose levels leave `unchecked` tensors of a step unchecked, by mode, of 100."""

    def __init__(self, unchecked):
        self.unchecked, self.mode, self.counts = unchecked, None, {"tensors_checked": 0, "bytes_checked": 0, "unchecked": {}}

    def set(self, mode):
        self.mode = mode

    def run(self):
        """A step."""
        self.counts["tensors_checked"] += 100
        for reason, count in self.unchecked.get(self.mode, {}).items():
            self.counts["unchecked"][reason] = self.counts["unchecked"].get(reason, 0) + count

    def coverage(self, _):
        return self.counts | {"unchecked": dict(self.counts["unchecked"])}


class Steps(unittest.TestCase):
    def unchecked(self, **by_way):
        switch = Switch({steps.OWN_WAYS[f"nanwatch {way}"]: unchecked for way, unchecked in by_way.items()})
        with mock.patch.object(steps, "coverage", switch.coverage):
            return steps.unchecked_by(argparse.Namespace(), switch, switch, 4)

    def test_a_level_that_looks_at_all_has_no_line(self):
        self.assertEqual(self.unchecked(full={"auxiliary": 5}), {})

    def test_what_a_level_passed_over_is_told_and_much_of_it_is_said(self):
        told = self.unchecked(full={"gpu_busy": 60, "gpu_not_ready": 40}, sampled={"gpu_busy": 1})
        self.assertEqual(told["nanwatch full"]["unchecked_per_step"], {"gpu_busy": 60, "gpu_not_ready": 40})
        self.assertIn("50 % were not looked at", told["nanwatch full"]["note"])
        self.assertEqual((set(told), "note" in told["nanwatch sampled"]), ({"nanwatch full", "nanwatch sampled"}, False))

    def test_what_cannot_be_found_out_costs_itself_alone(self):
        def cannot():
            raise CannotAsk("no report")
        missing = {}
        self.assertIsNone(steps.tried("unchecked", cannot, argparse.Namespace(dry_run=False), missing))
        self.assertIsNone(steps.tried("floor", lambda: 1 / 0, argparse.Namespace(dry_run=False), missing))
        self.assertEqual(missing, {"unchecked": "no report", "floor": "ZeroDivisionError: division by zero"})
        with contextlib.suppress(ZeroDivisionError):
            steps.tried("floor", lambda: 1 / 0, argparse.Namespace(dry_run=True), missing)
            self.fail("a dry run has to fail")


if __name__ == "__main__":
    unittest.main(verbosity=2)
