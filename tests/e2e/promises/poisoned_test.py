# SPDX-License-Identifier: Apache-2.0
"""Promise: once parameters are bad nothing is watched until they are good again, which is noticed at once; then all is as before."""
import unittest

from poisoned_training import BY_CANARY, BY_OPS, END, FIRST, HEALS, LOADED, SECOND, incidents, program_text
from watched_job import PromiseTest

LEVELS = {"canary": BY_CANARY, "sampled": BY_OPS, "full": BY_OPS}
# The step of each fault was watched.
UNWATCHED = (LOADED - FIRST - 1) + (END - SECOND - 1)


class Poisoned(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def start(name, options, **changes):
            program = workplace.program(name, program_text(**changes))
            return workplace.run_bare(program), workplace.run_watched(program, options)
        cls.levels = {level: start(level, ("--level", level), in_update=level == "canary") for level in LEVELS}
        cls.heals = {heal: start(f"heals_{heal}", ("--level", "full"), heal=heal) for heal in HEALS}
        cls.never = start("never", ("--level", "full"), loaded=END)
        cls.auto = start("auto", ("--budget", "50"), in_update=True)
        cls.idle = start("idle", ("--level", "idle"))

    def test_a_fault_after_a_good_state_was_loaded_is_an_incident_of_its_own_at_every_level(self):
        for level, (bare, watched) in self.levels.items():
            with self.subTest(level):
                self.assert_same(bare, watched)
                self.assertEqual(incidents(watched.verdict()), LEVELS[level])
                for incident in watched.verdict()["incidents"]:
                    self.assertIn("parameter", incident["reach"])
        self.assert_same(*self.auto)
        # Where the ops of the update are watched just then, several of them may tell of a bad rate. A step that `auto` left out
        # is seen by the next one that it watches.
        faults = [max(fault for fault in (FIRST, SECOND) if fault <= step) for step, *_ in incidents(self.auto[1].verdict())]
        self.assertEqual(set(faults), {FIRST, SECOND})
        for (step, *_), fault in zip(incidents(self.auto[1].verdict()), faults):
            self.assertLess(step - fault, 20)

    def test_a_good_state_is_noticed_whatever_brought_it(self):
        for heal, (bare, watched) in self.heals.items():
            with self.subTest(heal):
                self.assert_same(bare, watched)
                self.assertEqual(incidents(watched.verdict()), BY_OPS)

    def test_coverage_says_in_how_many_steps_nothing_was_checked(self):
        for level, (_, watched) in self.levels.items():
            with self.subTest(level):
                coverage = watched.verdict()["coverage"]
                self.assertEqual((int(coverage["unchecked"].get("after_poisoned", 0)), int(coverage["steps"])), (UNWATCHED, END), coverage)
                self.assertEqual(int(coverage["steps_watched"].get("idle", 0)), UNWATCHED, coverage)

    def test_ops_are_not_seen_while_parameters_are_bad(self):
        coverage = {name: job.verdict()["coverage"] for name, job in (("loads", self.levels["full"][1]), ("never", self.never[1]))}
        per_step = int(coverage["loads"]["ops_seen"]) / (END - UNWATCHED)
        self.assertLess(int(coverage["never"]["ops_seen"]), per_step * (FIRST + 3), coverage)
        self.assertEqual(incidents(self.never[1].verdict()), BY_OPS[:1])

    def test_level_idle_says_nothing(self):
        self.assert_same(*self.idle)
        self.assertEqual(self.idle[1].verdict()["incidents"], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
