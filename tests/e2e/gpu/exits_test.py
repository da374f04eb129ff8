# SPDX-License-Identifier: Apache-2.0
"""A watched job ends as it ends without us, in whatever way it ends and at every level: no crash, no hang, not a word more.

NANWATCH_EXITS is how often each kind of end is tried at each level (exit_soak.py; 1).
"""
import json
import os
import pathlib
import unittest

from gpu_job import FAKE_GPU, GpuJobTest

SOAK = pathlib.Path(__file__).resolve().parent / "exit_soak.py"
ROUNDS = int(os.environ.get("NANWATCH_EXITS", "1"))
LEVELS = {"canary": {"NANWATCH_LEVEL": "canary"}, "sampled": {"NANWATCH_LEVEL": "sampled"}, "full": {"NANWATCH_LEVEL": "full"},
          "auto": {"NANWATCH_LEVEL": "auto"}, "sampled, memory of the driver's": {"NANWATCH_LEVEL": "sampled", "NANWATCH_FAKE_NO_REGISTRATION": "1"}}


class ExitWorkplace(GpuJobTest.WORKPLACE):
    def __init__(self):
        super().__init__(timeout_s=280 + 60 * ROUNDS)


class Exits(GpuJobTest):
    WORKPLACE = ExitWorkplace

    @classmethod
    def start(cls, workplace):
        _, soak = workplace.program("exit_soak", SOAK.read_text())
        python, _ = workplace.program("none", "")
        command = [python, FAKE_GPU, soak]
        cls.bare = json.loads(workplace.run_bare([*command, "1"]).stdout())
        cls.jobs = {}
        for level, environment in LEVELS.items():
            cls.jobs[level] = workplace.run_preloaded([*command, str(ROUNDS)], **environment)
            cls.jobs[level].status()  # one after another: each is as many processes as there are kinds of end

    def test_every_end_is_as_without_us(self):
        for level, job in self.jobs.items():
            self.assertEqual(job.status(), 0, job.stderr())
            for kind, watched in json.loads(job.stdout()).items():
                with self.subTest(kind, level=level):
                    expected = self.bare[kind]["outcomes"]
                    self.assertEqual(watched["outcomes"], [expected[0] | {"times": ROUNDS}])

    def test_those_that_ended_were_watched(self):
        for level, job in self.jobs.items():
            for kind, watched in json.loads(job.stdout()).items():
                with self.subTest(kind, level=level):
                    self.assertGreater(watched["launches_least"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
