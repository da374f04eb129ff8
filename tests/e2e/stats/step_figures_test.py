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
        cls.jobs = {"full": job(), "layer": job(level="layer"), "canary": job(level="canary"), "half": job("--dtype", "bfloat16"),
                    "classes": job("--loss", "cross_entropy")}
        cls.scaled = {level: job("--scaler", level=level) for level in ("full", "layer", "canary")}
        cls.fused = {level: job("--scaler", "--fused", level=level) for level in ("full", "canary")}
        # So large that the first scaled gradients overflow.
        cls.skipping = {level: job("--scaler", "--scale", str(2.0 ** 127), "--loud", "8", level=level) for level in ("full", "canary")}

    def test_loss_and_norm_are_torch_s(self):
        for way, job in self.jobs.items():
            with self.subTest(way):
                self.assertEqual(len(self.compare(job)["told"]["losses"]), 12)

    def test_the_scale_is_the_scaler_s(self):
        for level, job in self.scaled.items():
            with self.subTest(level):
                # What canary sees is the loss that the model returns, which is scaled afterwards.
                self.compare(job, scale=1024.0, **({"loss": self.said(job)["loss"]} if level == "canary" else {}))

    def test_the_norm_is_that_of_the_gradients_without_their_scale(self):
        for level, job in self.fused.items():
            with self.subTest(level):
                self.compare(job, **({"loss": self.said(job)["loss"]} if level == "canary" else {}))

    def test_steps_that_a_scaler_skips_are_no_steps(self):
        for level, job in self.skipping.items():
            with self.subTest(level):
                said = self.said(job)
                self.assertGreater(said["skipped"], 2)
                self.assertEqual((said["told"]["step"], said["told"]["scale"]), (12 - said["skipped"], said["scale"]))
                self.assertEqual(job.verdict()["verdict"], "expected" if level == "full" else "clean")


if __name__ == "__main__":
    unittest.main(verbosity=2)
