# SPDX-License-Identifier: Apache-2.0
"""What is told of each step, beside what torch says there itself, of jobs of programs/steps_told_by_torch.py."""
import json
import math
import pathlib

from watched_job import NANWATCH

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/steps_told_by_torch.py"


class StepFigures:
    """For a test case whose workplace is `workplace`; what a GradScaler does is the same wherever the job runs."""

    @classmethod
    def start_scaled(cls, job):
        """`job(*arguments, level=...)` starts one."""
        cls.scaled = {level: job("--scaler", level=level) for level in ("full", "sampled", "canary")}
        cls.outside = {(level, *scaler): job("--loss-outside", *scaler, level=level)
                       for level in ("full", "canary") for scaler in ((), ("--scaler",))}
        cls.fused = {level: job("--scaler", "--fused", level=level) for level in ("full", "canary")}
        # So large that the first scaled gradients overflow.
        cls.skipping = {level: job("--scaler", "--scale", str(2.0 ** 127), "--loud", "8", level=level) for level in ("full", "canary")}

    @staticmethod
    def figures_job(workplace, before, *arguments, level="full", **environment):
        """`before`: the command that runs a Python program."""
        return workplace.run_watched([*before, PROGRAM, *arguments], ("--level", level), NANWATCH_TOOL=str(NANWATCH), **environment)

    def said(self, job):
        self.assertEqual(job.status(), 0, job.stderr())
        return json.loads(job.stdout())

    def compare(self, job, **expected):
        """Loss and norm, or what is expected in their place, None where nothing may be told."""
        said = self.said(job)
        expected = {"loss": said["loss"], "gradient_norm": said["norm"]} | expected
        for name, value in expected.items():
            told = said["told"][name]
            same = told is None if value is None else told is not None and math.isclose(told, value, rel_tol=1e-5)
            self.assertTrue(same, (name, value, said))
        self.assertEqual(job.verdict()["verdict"], "clean")
        return said

    def test_the_loss_is_told_wherever_it_is_computed(self):
        for way, job in self.outside.items():
            with self.subTest(way):
                self.compare(job)

    def test_the_scale_is_the_scaler_s(self):
        for level, job in self.scaled.items():
            with self.subTest(level):
                self.compare(job, scale=1024.0)

    def test_the_norm_is_that_of_the_gradients_without_their_scale(self):
        for level, job in self.fused.items():
            with self.subTest(level):
                self.compare(job)

    def test_steps_that_a_scaler_skips_are_no_steps(self):
        for level, job in self.skipping.items():
            with self.subTest(level):
                said = self.said(job)
                self.assertGreater(said["skipped"], 2)
                self.assertEqual((said["told"]["step"], said["told"]["scale"]), (12 - said["skipped"], said["scale"]))
                self.assertEqual(job.verdict()["verdict"], "expected")
