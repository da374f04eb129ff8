# SPDX-License-Identifier: Apache-2.0
"""Promise: tensors that cannot be checked pass by as if we were not there, and the report says that they were not checked."""
import pathlib
import sys
import unittest

from watched_job import PromiseTest

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/unusual_tensors.py"
REASONS = {"sparse", "quantized", "nested", "meta", "fake", "functorch", "opaque"}

# Ops on tensors without memory make nanwatch look into the ops that follow: those that allocate fill their memory with NaN first.
FILLED = """
import torch
torch.use_deterministic_algorithms(True)
(torch.ones(3) * 2).sum()
torch.ones(8, device="meta").cos()
weight = torch.empty(8)
torch.zeros(8), torch.randn(8), torch.ones_like(weight)
print(torch.rand(8) * 2 < 3)
"""


class UnusualTensors(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = [sys.executable, PROGRAM]
        cls.filled = workplace.run_watched(workplace.program("filled", FILLED))
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)

    def test_the_program_prints_what_it_prints_without_us(self):
        self.assert_same(self.bare, self.watched)
        self.assertIn("train_once", self.bare.stdout())

    def test_each_kind_that_was_passed_over_is_counted_by_its_reason(self):
        coverage = self.watched.verdict()["coverage"]
        self.assertEqual(REASONS - {reason for reason, count in coverage["unchecked"].items() if int(count) > 0}, set())
        self.assertGreater(int(coverage["tensors_checked"]), 0)

    def test_what_torch_fills_fresh_memory_with_is_made_by_no_op(self):
        verdict = self.filled.verdict()
        self.assertEqual((verdict["verdict"], verdict["incidents"]), ("clean", []))

    def test_nothing_of_it_is_an_anomaly(self):
        self.assertNotEqual(self.watched.verdict()["verdict"], "anomaly")


if __name__ == "__main__":
    unittest.main(verbosity=2)
