# SPDX-License-Identifier: Apache-2.0
"""Promise: where a machine gave the observer no time before the program began, nothing is claimed of what it may have missed."""
import unittest

from watched_job import BUILD, PromiseTest, origins

STARVE = BUILD / "tests/libnanwatch_starved_start.so"
# `early` is made before anybody watches; what the training makes of it is seen.
PROGRAM = """
import os, pathlib, time, torch
early = torch.log(torch.zeros(()) + {early})
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
{starved}
from torch.optim import optimizer as hooks
while not hooks._global_optimizer_pre_hooks:
    time.sleep(0.001)
for step in range(5):
    optimizer.zero_grad()
    factor = {bad} if step == {bad_step} else 1
    (layer(torch.ones(2, 4)) * factor).mean().backward()
    optimizer.step()
"""
# It is let go once the program has run ops.
GOES_ON = "pathlib.Path(os.environ['STARVED_UNTIL']).touch()"
OWN = "torch.log(layer.weight.sum() * 0 - 1)"


class StarvedStart(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def job(name, bad, bad_step, starved):
            text = PROGRAM.format(early=-1 if bad == "early" else 1, bad=bad, bad_step=bad_step, starved=GOES_ON if starved else "")
            until = {"LD_PRELOAD": str(STARVE), "STARVED_UNTIL": str(workplace.folder / f"{name}.goes_on")} if starved else {}
            return workplace.run_watched(workplace.program(name, text), ("--level", "full"), **until)
        cls.missed = job("missed", "early", 3, True)
        cls.own = job("own", OWN, 3, True)
        cls.own_at_once = job("own_at_once", OWN, 0, True)
        cls.in_time = job("in_time", "early", 3, False)

    def origin(self, job):
        self.assertEqual(job.status(), 0, job.stderr())
        found = origins(job.verdict())
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_a_value_from_before_is_not_said_to_have_come_from_outside(self):
        origin = self.origin(self.missed)
        self.assertEqual((origin["op"], origin["step"], origin["exact"]), ("aten::mul", 3, False))
        self.assertIn("level", origin["unseen"])

    def test_what_was_seen_from_its_beginning_on_is_exact(self):
        self.assertEqual([self.origin(self.own)[field] for field in ("op", "step", "exact")], ["aten::log", 3, True])

    def test_nothing_is_exact_in_the_first_step(self):
        self.assertFalse(self.origin(self.own_at_once)["exact"])

    def test_in_time_the_op_that_made_it_is_named(self):
        self.assertEqual([self.origin(self.in_time)[field] for field in ("op", "exact")], ["aten::log", True])


if __name__ == "__main__":
    unittest.main()
