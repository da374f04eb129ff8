"""What is told of each step, beside what torch says there itself, of jobs of programs/steps_told_by_torch.py."""
import json
import math
import pathlib

from watched_job import NANWATCH

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/steps_told_by_torch.py"


class StepFigures:
    """For a test case whose workplace is `workplace`."""

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
        expected = {"loss": said["scaled"], "gradient_norm": said["norm"]} | expected
        for name, value in expected.items():
            told = said["told"][name]
            same = told is None if value is None else told is not None and math.isclose(told, value, rel_tol=1e-5)
            self.assertTrue(same, (name, value, said))
        self.assertEqual(job.verdict()["verdict"], "clean")
        return said
