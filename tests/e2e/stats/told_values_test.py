# SPDX-License-Identifier: Apache-2.0
"""What `nanwatch report --stats` says of each parameter is what torch itself says in the job, and telling it changes nothing in the job."""
import json
import math
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import NANWATCH, PromiseTest  # noqa: E402

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
TOLD = [sys.executable, PROGRAMS / "told_by_torch.py"]
FIGURES = ("gradient_mean", "gradient_std", "gradient_max_abs", "gradient_norm", "gradient_zero_share")
SAMPLED_MAX = 4096
# A sample of 4,096 elements tells the norm of many more to about 2 %, where they are alike.
OF_A_SAMPLE = 0.1


def stats(workplace, job):
    return json.loads(workplace.tool("report", job.verdict()["run"]["id"], "--stats", "--json"))


def compare_gradient(test, told, by_torch, name):
    test.assertEqual((told["numel"], told["dtype"], told["gradient"]), (by_torch["numel"], by_torch["dtype"], by_torch["gradient"]), name)
    for figure in FIGURES:
        expected = by_torch.get(figure)
        if expected is None:
            test.assertIsNone(told[figure], name)
            continue
        # A mean that cancels is known no better than the elements that it is made of.
        slack = 1e-7 * by_torch["gradient_max_abs"]
        test.assertTrue(math.isclose(told[figure], expected, rel_tol=1e-4, abs_tol=slack), (name, figure, told[figure], expected))


def compare_update(test, told, by_torch, name, sampled_max=SAMPLED_MAX):
    sampled = min(by_torch["numel"], sampled_max)
    test.assertEqual(told["sampled"], sampled, name)
    ratio = by_torch["update_norm"] / by_torch["weight_norm"]
    tolerance = 1e-4 if sampled == by_torch["numel"] else OF_A_SAMPLE
    test.assertTrue(math.isclose(told["update_ratio"], ratio, rel_tol=tolerance), (name, told["update_ratio"], ratio))


class ToldValues(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {kind: workplace.run_watched([*TOLD, "21", *extra], options=["--stats", "5"])
                    for kind, extra in (("single", []), ("half", ["half"]))}

    def compare(self, told, by_torch, name):
        compare_gradient(self, told, by_torch, name)
        compare_update(self, told, by_torch, name)

    def test_every_figure_of_every_parameter_is_torchs(self):
        for kind, job in self.jobs.items():
            report = stats(self.workplace, job)
            self.assertEqual((report["schema"], report["lost"]), ("nanwatch.stats/1", 0))
            by_torch = json.loads(job.file("figures.json"))
            self.assertEqual([entry["step"] for entry in by_torch], [0, 5, 10, 15, 20])
            for entry in by_torch:
                snapshots = [s for s in report["snapshots"] if s["step"] == entry["step"]]
                self.assertEqual([s["optimizer"] for s in snapshots], ["AdamW", "SGD"])
                told = {parameter["name"]: parameter for s in snapshots for parameter in s["parameters"]}
                self.assertEqual(set(told), set(entry["parameters"]))
                for name, expected in entry["parameters"].items():
                    with self.subTest(kind=kind, step=entry["step"], name=name):
                        self.compare(told[name], expected, name)

    def test_the_table_has_a_line_of_each(self):
        job = self.jobs["single"]
        names = json.loads(job.file("figures.json"))[-1]["parameters"]
        table = self.workplace.tool("report", job.verdict()["run"]["id"], "--stats")
        for name in names:
            self.assertEqual(sum(line.split()[0] == name for line in table.splitlines() if line), 1, table)
        self.assertIn("step 20, AdamW: 9 parameters; the newest of 5 snapshots", table)


class Unchanged(PromiseTest):
    WAYS = {"every step": ["--stats", "1"], "every step at canary": ["--stats", "1", "--level", "canary"],
            "every step at auto": ["--stats", "1", "--budget", "100"], "every step at idle": ["--stats", "1", "--level", "idle"],
            "never": ["--stats", "0"]}

    @classmethod
    def start(cls, workplace):
        cls.bare = workplace.run_bare([*TOLD, "40"])
        cls.watched = {way: workplace.run_watched([*TOLD, "40"], options=options) for way, options in cls.WAYS.items()}

    def test_the_losses_are_the_same_bit_for_bit(self):
        for way, job in self.watched.items():
            with self.subTest(way=way):
                self.assert_same(self.bare, job)
                self.assertEqual(job.file("figures.json"), self.bare.file("figures.json"))

    def test_every_step_was_looked_at_where_that_was_asked_for_and_none_else(self):
        steps = {way: job.verdict() for way, job in self.watched.items()}
        for way in ("every step", "every step at canary", "every step at auto"):
            self.assertGreater(steps[way]["stats"]["snapshot"]["step"], 30 if "auto" not in way else -1, way)
        for way in ("every step at idle", "never"):
            self.assertIsNone(steps[way]["stats"], way)
            asked = subprocess.run([NANWATCH, "report", steps[way]["run"]["id"], "--stats"], env=self.workplace.watched,
                                   capture_output=True, text=True)
            self.assertEqual(asked.returncode, 1)
            self.assertIn("there is no snapshot of the parameters", asked.stderr)

    def test_long_ago_is_kept_more_coarsely(self):
        kept = [s["step"] for s in stats(self.workplace, self.watched["every step"])["snapshots"]]
        self.assertLessEqual(len(kept), 32)
        self.assertEqual((kept[0], kept[-1]), (0, 39))
        self.assertEqual(sorted(set(kept))[-4:], [36, 37, 38, 39])


class MoreThanFit(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.job = workplace.run_watched([sys.executable, PROGRAMS / "shows.py", "many"], options=["--stats", "5"])

    def test_what_was_left_out_is_counted_and_said(self):
        report = stats(self.workplace, self.job)
        self.assertEqual(self.job.stdout(), "1102\n")
        self.assertEqual([(s["step"], len(s["parameters"]), s["left_out"]) for s in report["snapshots"]], [(0, 1023, 79), (5, 1023, 79)])
        self.assertIn("1,023 parameters, 79 left out (79 for which there was no room)",
                      " ".join(self.job.stderr().split()))


class Unusual(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.job = workplace.run_watched([sys.executable, PROGRAMS / "shows.py", "unusual"], options=["--stats", "1"])

    def test_what_cannot_be_read_is_counted_and_what_no_module_has_is_told_by_its_place(self):
        self.assertEqual(self.job.stdout(), "4\n", self.job.stderr())
        snapshots = stats(self.workplace, self.job)["snapshots"]
        self.assertEqual([s["step"] for s in snapshots], [0, 1, 2, 3])
        for snapshot in snapshots:
            self.assertEqual((snapshot["unreadable"], snapshot["left_out"], snapshot["on_gpu"]), (2, 0, 0))
            self.assertEqual([(p["name"], p["gradient"], p["sampled"]) for p in snapshot["parameters"]], [("parameter 3", "read", 3)])
            self.assertTrue(math.isclose(snapshot["parameters"][0]["update_ratio"], 0.2, rel_tol=1e-5))


if __name__ == "__main__":
    unittest.main(verbosity=2)
