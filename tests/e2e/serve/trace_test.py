# SPDX-License-Identifier: Apache-2.0
"""The trace of a job and the one that torch.profiler made of it have the same clock: laid side by side, a step is where it was."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))
from watched_job import PromiseTest

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/profiled.py"
APART_NS = 1_000_000  # the observer reads its clock in the optimizer's step, the profiler when the step has ended


def slices(trace, name):
    """Begin and end in nanoseconds since 1970, of slice 0 and those after it."""
    found = {event["name"]: event for event in trace["traceEvents"] if event.get("ph") == "X"}
    base = trace["baseTimeNanoseconds"]
    return [(base + found[name.format(i)]["ts"] * 1e3, base + (found[name.format(i)]["ts"] + found[name.format(i)]["dur"]) * 1e3) for i in range(12)]


class Trace(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.profiled = workplace.folder / "profiler.json"
        cls.job = workplace.run_watched([sys.executable, PROGRAM, cls.profiled])

    def test_each_step_ends_where_the_profiler_saw_it_end(self):
        run = self.job.verdict()["run"]["id"]
        ours = json.loads(self.workplace.tool("export", run, "--format", "trace"))
        theirs = json.loads(self.profiled.read_text())
        self.assertEqual(ours["baseTimeNanoseconds"], theirs["baseTimeNanoseconds"], "a viewer adds times to one base")
        apart = [(mine, marked) for mine, marked in zip(slices(ours, "step {}"), slices(theirs, "mine {}"))
                 if not marked[0] < mine[1] < marked[1] + APART_NS]
        self.assertEqual(apart, [])


if __name__ == "__main__":
    unittest.main()
