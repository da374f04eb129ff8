# SPDX-License-Identifier: Apache-2.0
"""What is told of each step of a job on a GPU is what torch says there itself: its loss, the norm of its gradients, its scale."""
import pathlib
import sys
import unittest

from gpu_job import FAKE_GPU, LAGS, GpuJobTest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "stats"))

from step_figures import StepFigures  # noqa: E402


class Telemetry(StepFigures, GpuJobTest):
    @classmethod
    def start(cls, workplace):
        def job(*arguments, lag="50", level="full"):
            return cls.figures_job(workplace, [sys.executable, FAKE_GPU], "--device", "cuda", *arguments, level=level, NANWATCH_FAKE_LAG=lag)
        cls.late = {lag: job(lag=lag) for lag in LAGS}
        cls.levels = {level: job(level=level) for level in ("sampled", "canary")}
        # Behind the first hundred steps, where the canary looks at no op of an update.
        cls.long = job("--steps", "110", level="canary")
        cls.half = job("--dtype", "bfloat16")
        cls.classes = job("--loss", "cross_entropy")
        cls.start_scaled(job)
        cls.scattered = job("--scattered")
        # The GPU is asked for the first time where the first pass begins.
        cls.first = {steps: job("--loss-outside", "--steps", steps, level="canary") for steps in ("1", "12")}

    def test_loss_and_norm_are_torch_s(self):
        for way, job in (*self.late.items(), ("half", self.half), ("classes", self.classes)):
            with self.subTest(way):
                self.assertEqual(len(self.compare(job)["told"]["losses"]), 12)

    def test_at_other_levels_too(self):
        self.assertEqual(len(self.compare(self.levels["sampled"])["told"]["losses"]), 12)
        # The first loss is the first that the GPU is asked about, and is told where that was ready within 20 ms.
        self.assertIn(len(self.compare(self.levels["canary"])["told"]["losses"]), (11, 12))
        self.compare(self.long)

    def test_what_is_not_known_of_the_first_step_is_not_told(self):
        told = self.said(self.first["1"])["told"]
        if told["losses"]:
            self.compare(self.first["1"])
        else:
            self.assertIsNone(told["loss"])
        self.assertIn(len(self.compare(self.first["12"])["told"]["losses"]), (11, 12))

    def test_a_norm_is_not_told_where_a_gradient_was_not_summed(self):
        self.compare(self.scattered, gradient_norm=None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
