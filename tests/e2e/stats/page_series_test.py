# SPDX-License-Identifier: Apache-2.0
"""What the page draws by step, of ten thousand steps, is what torch says of them and what the database has: no peak of one step is lost."""
import csv
import io
import json
import math
import pathlib
import re
import sys
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "promises"), str(pathlib.Path(__file__).resolve().parents[2] / "daemon/report/page")]

import browser  # noqa: E402
from watched_job import PromiseTest  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/long_training.py"
DATA = re.compile(r'<script type="application/json" id="page-data">(.*?)</script>', re.DOTALL)
STEPS = 10_000
COLUMNS_MAX = 1000
NEWEST = 1000  # all of them are in the database
DIGITS = 1e-5  # the page has six of each number, the observer's sums are its own


def same(a, b):
    return math.isclose(a, b, rel_tol=DIGITS)


class PageSeries(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def job(steps, *options):
            return workplace.run_watched([sys.executable, PROGRAM, str(steps), workplace.state / "nanwatch.db"], ("--level", "full", *options))
        cls.long, cls.measured = job(STEPS), job(2500, "--measure", "25")
        cls.pages = {}

    def page(self, job):
        """Its address, and its series by their ids."""
        run = job.verdict()["run"]["id"]
        self.assertEqual(job.verdict()["verdict"], "clean", job.stderr())
        path = self.workplace.folder / f"{run}.html"
        if run not in self.pages:
            self.workplace.tool("report", run, "--html", path)
            self.pages[run] = {one["id"]: one for one in json.loads(DATA.search(path.read_text())[1])["series"]}
        return path, self.pages[run]

    def columns(self, series, values):
        """Each column of the page, with those of `values` (by step) that lie in it."""
        ends = [*series["x"][1:], math.inf]
        low, high = series.get("low", series["mean"]), series.get("high", series["mean"])
        for place, (first, end) in enumerate(zip(series["x"], ends)):
            yield first, (low[place], series["mean"][place], high[place]), [value for step, value in values.items() if first <= step < end]

    def stored(self, job):
        text = self.workplace.tool("export", job.verdict()["run"]["id"], "--format", "csv")
        return list(csv.DictReader(io.StringIO(text)))

    def test_the_columns_are_what_the_database_has(self):
        names = ("loss", "gradient_norm", "scale", "learning_rate", "seconds", "overhead")
        for job, known in ((self.long, names[:5]), (self.measured, names)):
            steps, (_, series) = self.stored(job), self.page(job)
            for name in known:
                column = "loss_scale" if name == "scale" else name
                values = {int(step["step"]): float(step[column]) for step in steps if step[column]}
                self.assertEqual(series[name]["values"], len(values), name)
                self.assertLessEqual(len(series[name]["x"]), COLUMNS_MAX, name)
                seen = 0
                for first, drawn, stored in self.columns(series[name], values):
                    seen += len(stored)
                    expected = (min(stored), math.fsum(stored) / len(stored), max(stored))
                    self.assertTrue(all(map(same, drawn, expected)), (name, first, drawn, expected))
                self.assertEqual(seen, len(values), name)

    def test_they_are_what_torch_says(self):
        truth, (_, series) = json.loads(self.long.stdout()), self.page(self.long)
        for name in ("loss", "gradient_norm", "scale", "learning_rate"):
            values = dict(enumerate(truth[name]))
            for first, (low, mean, high), true in self.columns(series[name], values):
                self.assertTrue(any(same(low, value) for value in true) and any(same(high, value) for value in true), (name, first, low, high))
                if first >= STEPS - NEWEST:
                    self.assertTrue(all(map(same, (low, mean, high), (min(true), math.fsum(true) / len(true), max(true)))), (name, first))
            least, most = min(series[name].get("low", series[name]["mean"])), max(series[name].get("high", series[name]["mean"]))
            self.assertTrue(same(least, min(truth[name])), (name, least, min(truth[name])))
            self.assertTrue(same(most, max(truth[name])), (name, most, max(truth[name])))

    def test_a_peak_or_a_dip_of_one_step_is_in_its_column(self):
        truth, (_, series) = json.loads(self.long.stdout()), self.page(self.long)
        for name in ("loss", "gradient_norm"):
            drawn = list(self.columns(series[name], dict(enumerate(truth[name]))))
            for edge, at in (("peaks", 2), ("dips", 0)):
                for step in truth[edge]:
                    column = max((one for one in drawn if one[0] <= step), key=lambda one: one[0])
                    self.assertTrue(same(column[1][at], truth[name][step]), (name, edge, step, column[1], truth[name][step]))
        rate = series["learning_rate"]
        self.assertTrue(same(min(rate["low"]), truth["learning_rate"][STEPS // 4 + 1]))

    @unittest.skipUnless(browser.CHROMIUM, "chromium is not installed: scripts/setup.sh --tests installs it")
    def test_the_pictures_draw_the_columns(self):
        path, series = self.page(self.long)
        window = browser.Browser()
        try:
            window.shape()
            window.open(f"file://{path}")
            self.assertEqual(window.complaints, [])
            drawn = window.evaluate("charts.map(graph => [graph.getLabels()[1], Array.from({length: graph.numRows()}, (_, i) => [graph.getValue(i, 0), graph.getValue(i, 1)])])")
        finally:
            window.close()
        titles = {one["title"]: one for one in series.values()}
        self.assertEqual({title for title, _ in drawn}, set(titles))
        for title, points in drawn:
            one = titles[title]
            band = [list(column) for column in zip(one["low"], one["mean"], one["high"])] if "low" in one else one["mean"]
            self.assertEqual(points, [[x, value] for x, value in zip(one["x"], band)], title)


if __name__ == "__main__":
    unittest.main()
