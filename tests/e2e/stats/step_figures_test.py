# SPDX-License-Identifier: Apache-2.0
"""What is told of each step is what torch says there itself: its loss, the norm of its gradients, its scale."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from step_figures import StepFigures  # noqa: E402
from watched_job import PromiseTest  # noqa: E402


class Steps(StepFigures, PromiseTest):
    @classmethod
    def start(cls, workplace):
        def job(*arguments, level="full"):
            return cls.figures_job(workplace, [sys.executable], *arguments, level=level)
        cls.jobs = {"full": job(), "sampled": job(level="sampled"), "canary": job(level="canary"), "half": job("--dtype", "bfloat16"),
                    "classes": job("--loss", "cross_entropy")}
        cls.start_scaled(job)

    def test_loss_and_norm_are_torch_s(self):
        for way, job in self.jobs.items():
            with self.subTest(way):
                self.assertEqual(len(self.compare(job)["told"]["losses"]), 12)


if __name__ == "__main__":
    unittest.main(verbosity=2)
