# SPDX-License-Identifier: Apache-2.0
"""Promise: what a live process checks can be changed while it runs, and nothing else of it changes."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from watched_job import NANWATCH, TIMEOUT_S, PromiseTest, await_condition

PROGRAM = [sys.executable, pathlib.Path(__file__).parent / "programs/attended.py"]
STEPS_BEFORE, BAD = 12, 3
CYCLES = int(os.environ.get("NANWATCH_TEST_ATTACH_CYCLES", "100"))  # the promise is of 1,000


class Attended:
    """The program, started at level idle, and what a user would do to it."""

    def __init__(self, test, *arguments, level="idle"):
        self._workplace = test.workplace
        self.job = self._workplace.run_watched([*PROGRAM, *arguments], ("--level", level))
        self._folder = self.job._folder
        await_condition((self._folder / "ready").exists, "the program is ready")
        # Its own process: `nanwatch run` is its parent.
        self.run = next(run for run in self.runs() if run["state"] == "watching" and run["program"] == "attended.py"
                        and run["job"] in self.job._err.read_text())

    def runs(self):
        return json.loads(self._workplace.tool("ps", "--all", "--json"))["runs"]

    def level(self):
        return next(run["level"] for run in self.runs() if run["id"] == self.run["id"])

    def attach(self, *options, verb="attach"):
        ran = subprocess.run([NANWATCH, verb, self.run["id"], "--json", *options], env=self._workplace.watched,
                             capture_output=True, text=True, timeout=TIMEOUT_S)
        return ran.returncode, json.loads(ran.stdout)["targets"][0]

    def await_level(self, level):
        await_condition(lambda: self.level() == level, f"the level is {level}")

    def go(self):
        (self._folder / "go").touch()
        return self.job


class Attach(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.bare = {arguments: workplace.run_bare([*PROGRAM, *arguments]) for arguments in ((), ("--nan",))}
        for job in cls.bare.values():
            (job._folder / "go").touch()

    def assert_same_losses(self, job, *arguments):
        self.assertEqual(self.bare[arguments].status(), 0, self.bare[arguments].stderr())
        self.assertEqual(job.stdout(), self.bare[arguments].stdout())

    def test_a_nan_made_after_attaching_is_found_and_the_losses_stay_the_same(self):
        program = Attended(self, "--nan")
        status, target = program.attach()
        self.assertEqual((status, target["applied"], target["before"], target["level"]), (0, True, "idle", "full"))
        job = program.go()
        origin = job.verdict()["incidents"][0]["origin"]
        found = (origin["op"], origin["class"], origin["layer"], int(origin["step"]), origin["phase"])
        self.assertEqual(found, ("aten::log", "produce", "gate", STEPS_BEFORE + BAD, "forward"))
        self.assert_same_losses(job, "--nan")

    def test_with_stacks_the_finding_tells_who_called_its_line(self):
        program = Attended(self, "--nan")
        status, target = program.attach("--stacks")
        self.assertEqual((status, target["level"], target["stacks"]), (0, "full", True))
        job = program.go()
        origin = job.verdict()["incidents"][0]["origin"]
        self.assertEqual((origin["source"], origin["op"]), ("attended.py:20 in forward", "aten::log"))
        self.assertEqual(origin["callers"], ["attended.py:29 in forward", "attended.py:40 in step", "attended.py:52 in main",
                                             "attended.py:55 in <module>"])
        report = self.workplace.tool("report", self.run_id(job))
        self.assertIn("\ncalled by attended.py:29 in forward\n          attended.py:40 in step\n", report)
        self.assert_same_losses(job, "--nan")

    def test_stacks_last_until_the_next_request(self):
        program = Attended(self, "--nan")
        for options in (("--stacks",), ()):
            self.assertEqual(program.attach(*options)[0], 0)
        origin = program.go().verdict()["incidents"][0]["origin"]
        self.assertEqual((origin["source"], origin["callers"]), ("attended.py:20 in forward", []))

    @staticmethod
    def run_id(job):
        return job.verdict()["run"]["id"]

    def test_canary_tells_where_it_was_met_and_says_that_it_saw_no_more(self):
        program = Attended(self, "--nan")
        self.assertEqual(program.attach("--level", "canary")[0], 0)
        job = program.go()
        self.assert_same_losses(job, "--nan")
        verdict = job.verdict()
        origin = verdict["incidents"][0]["origin"]
        self.assertEqual((verdict["verdict"], int(origin["step"]), origin["exact"]), ("anomaly", STEPS_BEFORE + BAD, False))
        self.assertIn("gradient", verdict["incidents"][0]["reach"])
        self.assertIn("parameter", verdict["incidents"][0]["reach"])

    def test_the_former_name_of_a_level_is_taken_and_mentioned(self):
        program = Attended(self)
        ran = subprocess.run([NANWATCH, "attach", program.run["id"], "--level", "layer"], env=self.workplace.watched,
                             capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual((ran.returncode, program.level()), (0, "sampled"), ran.stderr)
        self.assertEqual(ran.stderr, "nanwatch: level 'layer' is called 'sampled' now; the old name works in this release only\n")
        self.assert_same_losses(program.go())

    def test_after_detaching_nothing_is_checked(self):
        program = Attended(self, "--nan", level="full")
        status, target = program.attach(verb="detach")
        self.assertEqual((status, target["before"], target["level"]), (0, "full", "idle"))
        self.assertEqual(program.level(), "idle")
        job = program.go()
        self.assertEqual(job.verdict()["incidents"], [])
        self.assert_same_losses(job, "--nan")

    def test_a_request_with_a_duration_runs_out_by_itself(self):
        program = Attended(self)
        status, target = program.attach("--for", "0.3s")
        self.assertEqual((status, target["level"]), (0, "full"))
        program.await_level("idle")
        self.assert_same_losses(program.go())

    def test_many_changes_cost_neither_results_nor_the_process(self):
        program = Attended(self)
        for _ in range(CYCLES):
            self.assertEqual(program.attach("--level", "full")[0], 0)
            self.assertEqual(program.attach(verb="detach")[0], 0)
        job = program.go()
        self.assertEqual(job.status(), 0, job.stderr())
        self.assert_same_losses(job)

    def test_a_process_that_takes_no_step_is_said_not_to_have_answered(self):
        job = self.workplace.run_watched(self.workplace.program("hung", """
import pathlib, sys, torch
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
layer(torch.ones(1, 2)).sum().backward()
optimizer.step()
pathlib.Path("ready").touch()
while not pathlib.Path("go").exists():
    pass
"""), ("--level", "idle"))
        await_condition((job._folder / "ready").exists, "the program is ready")
        runs = json.loads(self.workplace.tool("ps", "--json"))["runs"]
        run = next(run for run in runs if run["program"] == "hung.py")
        ran = subprocess.run([NANWATCH, "attach", str(run["pid"]), "--wait", "0.2"], env=self.workplace.watched,
                             capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("not applied yet", ran.stdout)
        self.assertIn("hung collective", ran.stdout)
        (job._folder / "go").touch()
        self.assertEqual(job.status(), 0)

    def test_a_process_without_the_library_is_told_from_one_that_is_not_there(self):
        for pid, words in ((str(os.getpid()), "has not loaded torch"), ("4194305", "there is no process 4194305")):
            ran = subprocess.run([NANWATCH, "attach", pid], env=self.workplace.watched, capture_output=True, text=True,
                                 timeout=TIMEOUT_S)
            self.assertEqual(ran.returncode, 1)
            self.assertIn(words, ran.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
