# SPDX-License-Identifier: Apache-2.0
"""Promise: what nanwatch costs is measured by switching its checks off for a few steps, and no answer is lost for that."""
import json
import pathlib
import re
import sys
import unittest

from watched_job import PromiseTest, origins

PROGRAMS = pathlib.Path(__file__).parent / "programs"
# A quarter of the steps, so that a short job has enough of them.
STEPS = 3000
OFTEN = ("--level", "full", "--measure", "25")


class Measuring(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def command(fault, steps=40_000):
            return [sys.executable, PROGRAMS / "measured_training.py", fault, str(steps)]

        cls.bare = workplace.run_bare(command("none", STEPS))
        cls.clean = workplace.run_watched(command("none", STEPS), OFTEN)
        cls.never = workplace.run_watched(command("none", STEPS), ("--level", "full"))
        cls.stops = workplace.run_watched(command("none", STEPS), (*OFTEN, "--on-anomaly", "stop"))
        cls.short = workplace.run_watched(command("none", 300), ("--level", "full", "--measure", "1"))
        cls.extremes = workplace.run_watched(command("extremes", STEPS), ("--level", "canary", "--measure", "25"))
        cls.faults = {fault: workplace.run_watched(command(fault), OFTEN)
                      for fault in ("parameter", "state", "buffer", "validation", "killed", "exit", "raises", "ends", "work_after", "forks")}

        cls.ranks = workplace.run_watched([sys.executable, PROGRAMS / "measured_ranks.py"], OFTEN)

    def step_of_fault(self, fault):
        return int(re.search(r"step of the fault (\d+)", self.faults[fault].stderr()).group(1))

    def test_the_results_are_the_same(self):
        self.assert_same(self.bare, self.clean)

    def test_a_healthy_job_is_clean_and_says_what_it_cost_and_what_was_not_checked_for_that(self):
        coverage = self.assert_clean(self.clean)["coverage"]
        off = int(coverage["unchecked"]["measuring"])
        self.assertEqual(off, int(coverage["steps_watched"]["idle"]))
        self.assertGreater(off, 12 * 4)
        self.assertLess(off, STEPS / 4 + 1)
        low, high = coverage["overhead_interval"]
        self.assertTrue(low <= coverage["overhead_percent"] <= high, coverage)
        self.assertGreater(high, 1, "every op of a small model is checked")
        told = " ".join(self.clean.stderr().split())
        self.assertIn(f"overhead {coverage['overhead_percent']:.1f} % ({low:.1f} .. {high:.1f})", told)
        self.assertIn(f"{off:,} unchecked to measure the overhead", told)

    def test_nothing_is_measured_unless_it_is_asked_for_and_not_in_a_short_job(self):
        for job in (self.never, self.stops, self.short):
            coverage = self.assert_clean(job)["coverage"]
            self.assertIsNone(coverage["overhead_percent"])
            self.assertIsNone(coverage["overhead_interval"])
            self.assertEqual(set(coverage["steps_watched"]), {"full"})
            self.assertEqual(coverage["unchecked"], {})
            self.assertIn("overhead not measured", " ".join(job.stderr().split()))

    def expect_not_exact(self, fault):
        verdict = self.faults[fault].verdict()
        self.assertEqual(verdict["verdict"], "anomaly", json.dumps(verdict["incidents"])[:2000])
        origin = verdict["incidents"][0]["origin"]
        self.assertIn("measuring", origin["unseen"], origin)
        # It is found where the block of unchecked steps ends, before the next step computes with it.
        self.assertLessEqual(0, int(origin["step"]) - self.step_of_fault(fault), origin)
        self.assertLess(int(origin["step"]) - self.step_of_fault(fault), 33, origin)
        self.assertEqual([origin["op"] for origin in origins(verdict) if origin["exact"]], [])
        self.assertIn("to measure its own cost", " ".join(self.faults[fault].stderr().split()))
        return verdict

    def test_a_bad_parameter_made_meanwhile_is_found_and_not_called_exact(self):
        verdict = self.expect_not_exact("parameter")
        self.assertIn("parameter", verdict["incidents"][0]["reach"])

    def test_a_bad_state_made_meanwhile_is_found_and_not_called_exact(self):
        verdict = self.expect_not_exact("state")
        self.assertIn("optimizer_state", verdict["incidents"][0]["reach"])

    def test_a_bad_buffer_made_meanwhile_is_found_and_not_called_exact(self):
        verdict = self.expect_not_exact("buffer")
        self.assertIn("running_mean", verdict["incidents"][0]["origin"]["param"])

    def test_a_validation_is_watched_whenever_it_runs(self):
        verdict = self.faults["validation"].verdict()
        self.assertEqual(verdict["verdict"], "anomaly")
        self.assertEqual(verdict["incidents"][0]["origin"]["op"], "aten::log")

    def test_a_job_that_ends_meanwhile_is_not_called_clean(self):
        for fault in ("killed", "exit", "raises", "ends", "work_after"):
            with self.subTest(fault):
                verdict = self.faults[fault].verdict()
                self.assertEqual((verdict["verdict"], verdict["unknown_because"]), ("unknown", "steps_not_checked"))
                self.assertIn("switched its checks off to measure its own cost", " ".join(self.faults[fault].stderr().split()))

    def test_a_buffer_that_begins_with_inf_is_no_fault_of_unchecked_steps(self):
        verdict = self.extremes.verdict()
        self.assertEqual(verdict["incidents"], [])
        self.assertNotIn("measuring", json.dumps([verdict["harmless"] if "harmless" in verdict else [], verdict["coverage"]["unchecked"]]))

    def test_a_child_that_is_forked_meanwhile_is_watched_from_its_first_op(self):
        verdict = self.faults["forks"].verdict()
        self.assertEqual((verdict["verdict"], len(verdict["runs"])), ("expected", 2))
        self.assertIn("aten::log, made NaN from finite values", " ".join(self.faults["forks"].stderr().split()))

    def test_ranks_switch_together_and_still_know_their_collectives_by_number(self):
        self.assertEqual(self.ranks.status(), 0, self.ranks.stderr())
        seen = dict(re.findall(r"rank (\d): (\d+ unchecked, \d+, fault at \d+)", self.ranks.stderr()))
        self.assertEqual(seen["0"], seen["1"])
        step = int(seen["0"].split()[-1])
        told = [(origin["rank"], origin["op"], origin["class"], int(origin["step"])) for origin in origins(self.ranks.verdict())]
        self.assertEqual(told, [(1, "aten::log", "produce", step)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
