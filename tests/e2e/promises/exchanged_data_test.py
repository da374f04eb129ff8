# SPDX-License-Identifier: Apache-2.0
"""Promise: `parameter.data = other` is a write into the parameter, though no op makes it."""
import unittest

from watched_job import PromiseTest

TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    x = torch.randn(8, 4)
    saved = [parameter.data.clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters(): parameter.add_(0.01)
    loss = (torch.tanh(model(x)) - 1).pow(2).mean() * {factor}
    optimizer.zero_grad()
    loss.backward()
    for parameter, value in zip(model.parameters(), saved): parameter.data = value
    optimizer.step()
{after}
print([bool(parameter.isfinite().all()) for parameter in model.parameters()])
"""
# Of no steps: 0 / 0.
AVERAGE = """
for parameter in model.parameters():
    parameter.data = torch.zeros_like(parameter) / torch.zeros(())
"""
VALIDATION = """
for parameter in model.parameters():
    good = parameter.data
    parameter.data = good * 2
    parameter.data = good
"""


class ExchangedData(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def start(name, factor="1.0", after=""):
            program = workplace.program(name, TRAINING.format(factor=factor, after=after))
            return workplace.run_bare(program), workplace.run_watched(program, ("--level", "full"))
        cls.jobs = {"healthy": start("healthy", after=VALIDATION), "average": start("average", after=AVERAGE),
                    "swapped": start("swapped", factor='(float("nan") if step == 10 else 1.0)')}

    def test_what_the_program_does_is_the_same(self):
        for name, (bare, watched) in self.jobs.items():
            with self.subTest(name):
                self.assert_same(bare, watched)
                self.assertEqual("False" in bare.stdout(), name != "healthy")

    def test_weights_that_are_only_put_in_another_place_are_clean(self):
        self.assert_clean(self.jobs["healthy"][1])

    def test_weights_that_are_replaced_by_bad_ones_after_the_last_step_are_an_anomaly(self):
        verdict = self.jobs["average"][1].verdict()
        self.assertEqual([(incident["severity"], incident["origin"]["op"]) for incident in verdict["incidents"]], [("critical", "aten::div")])
        self.assertIn("parameter", verdict["incidents"][0]["reach"])

    def test_weights_that_died_stay_dead_in_another_place(self):
        # What each step makes of them is a consequence: neither a bad batch nor a parameter that somebody has loaded.
        verdict = self.jobs["swapped"][1].verdict()
        self.assertEqual([(incident["origin"]["op"], incident["origin"]["step"]) for incident in verdict["incidents"]], [("aten::mul", 10)])
        self.assertEqual(int(verdict["coverage"]["unchecked"]["after_poisoned"]), 9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
