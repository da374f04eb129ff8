# SPDX-License-Identifier: Apache-2.0
"""The trace of a job and the one that torch.profiler made of it have the same clock: laid side by side, a step is where it was.
Perfetto and catapult, the viewer behind chrome://tracing, read both as one."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))
import viewers
from watched_job import PromiseTest

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/profiled.py"
STEPS = 12
APART_NS = 1_000_000  # the observer reads its clock in the optimizer's step, the profiler when the step has ended


def slices(trace, name):
    """Begin and end in nanoseconds since 1970, of slice 0 and those after it."""
    found = {event["name"]: event for event in trace["traceEvents"] if event.get("ph") == "X"}
    base = trace["baseTimeNanoseconds"]
    return [(base + found[name.format(i)]["ts"] * 1e3, base + (found[name.format(i)]["ts"] + found[name.format(i)]["dur"]) * 1e3) for i in range(STEPS)]


class Trace(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.profiled = workplace.folder / "profiler.json"
        cls.job = workplace.run_watched([sys.executable, PROGRAM, cls.profiled])

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run = cls.job.verdict()["run"]
        cls.pid = run["pid"]
        cls.ours = json.loads(cls.workplace.tool("export", run["id"], "--format", "trace"))
        cls.theirs = json.loads(cls.profiled.read_text())
        cls.both = {**cls.theirs, "traceEvents": cls.theirs["traceEvents"] + cls.ours["traceEvents"]}

    def test_each_step_ends_where_the_profiler_saw_it_end(self):
        ours, theirs = self.ours, self.theirs
        self.assertEqual(ours["baseTimeNanoseconds"], theirs["baseTimeNanoseconds"], "a viewer adds times to one base")
        apart = [(mine, marked) for mine, marked in zip(slices(ours, "step {}"), slices(theirs, "mine {}"))
                 if not marked[0] < mine[1] < marked[1] + APART_NS]
        self.assertEqual(apart, [])

    @unittest.skipIf(viewers.MISSING, viewers.MISSING)
    def test_perfetto_and_catapult_show_all_of_it_beside_the_profilers(self):
        at_work = viewers.Viewers(self.workplace.folder / "viewers")
        self.addCleanup(at_work.close)
        steps = [f"step {i}" for i in range(STEPS)]

        alone = at_work.perfetto(self.ours)
        self.assertEqual(alone["problems"], [])
        self.assertEqual([name for name, *_ in alone["slices"] if name.startswith("step")], steps)
        self.assertEqual([name for name, *_ in alone["slices"] if "step" not in name], ["error: aten::log, made NaN from finite values"])
        losses = [value for name, _, value in alone["counters"] if name == "loss value"]
        self.assertEqual(len(losses), STEPS - 1, "a counter has no NaN")
        self.assertEqual([pid for pid, name in alone["processes"] if name == "profiled.py, rank 0"], [self.pid])

        together = at_work.perfetto(self.both)
        self.assertEqual(together["problems"], at_work.perfetto(self.theirs)["problems"])
        end = {name: at + took for name, at, took, _ in together["slices"] if name.startswith(("step ", "mine "))}
        begin = {name: at for name, at, *_ in together["slices"] if name.startswith("mine ")}
        apart = [i for i in range(STEPS) if not begin[f"mine {i}"] < end[f"step {i}"] < end[f"mine {i}"] + APART_NS]
        self.assertEqual(apart, [])

        other = at_work.catapult(self.both)
        self.assertEqual(other["problems"], at_work.catapult(self.theirs)["problems"])
        self.assertEqual(sorted((name for name, *_ in other["slices"] if name.startswith("step ")), key=steps.index), steps)
        self.assertIn("error: aten::log, made NaN from finite values", other["instants"])


if __name__ == "__main__":
    unittest.main()
