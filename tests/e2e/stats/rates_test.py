# SPDX-License-Identifier: Apache-2.0
"""The learning rate of each step is the optimizer's own, and beside it stands what the checks were measured to cost by then."""
import csv
import io
import json
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import PromiseTest  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/scheduled_rate.py"
STEPS = 2500


class Rates(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def job(*arguments, options=("--level", "full")):
            return workplace.run_watched([sys.executable, PROGRAM, *arguments], options)
        cls.measured = job(str(STEPS), options=("--level", "full", "--measure", "25"))
        cls.canary = job("250", options=("--level", "canary"))
        cls.tensor = job("250", "tensor")

    def steps(self, job):
        self.assertEqual(job.verdict()["verdict"], "clean", job.stderr())
        text = self.workplace.tool("export", job.verdict()["run"]["id"], "--format", "csv")
        return list(csv.DictReader(io.StringIO(text)))

    def compare(self, job):
        steps, rates = self.steps(job), json.loads(job.stdout())
        known = [(int(step["step"]), float(step["learning_rate"])) for step in steps if step["learning_rate"]]
        for step, rate in known:
            self.assertEqual(rate, rates[step], step)
        return len(known), steps

    def test_the_rate_is_that_of_the_first_group_and_follows_its_schedule(self):
        self.assertEqual(self.compare(self.canary)[0], 250)
        known, steps = self.compare(self.measured)
        self.assertGreater(known, len(steps) / 2)
        unread = [step for step in steps if not step["learning_rate"]]
        self.assertEqual({step["level"] for step in unread}, {"idle"}, "where nothing is read")

    def test_a_rate_that_is_a_tensor_is_not_read(self):
        self.assertEqual(self.compare(self.tensor)[0], 0)

    def test_the_overhead_is_that_of_the_run_as_it_was_measured_by_then(self):
        steps = self.steps(self.measured)
        coverage = self.measured.verdict()["coverage"]
        told = [float(step["overhead"]) for step in steps if step["overhead"]]
        self.assertEqual(steps[0]["overhead"], "")
        self.assertTrue(math.isclose(told[-1], coverage["overhead_percent"] / 100, rel_tol=0.2, abs_tol=0.02), (told[-1], coverage))
        self.assertGreater(len(set(told)), 1)
        self.assertTrue(all(not step["overhead"] for step in self.steps(self.canary)))

    def test_the_page_has_both(self):
        path = self.workplace.folder / "page.html"
        self.workplace.tool("report", self.measured.verdict()["run"]["id"], "--html", path)
        page = path.read_text()
        for title in ("Learning rate", "Overhead of nanwatch"):
            self.assertIn(f'"title":"{title}"', page)


if __name__ == "__main__":
    unittest.main()
