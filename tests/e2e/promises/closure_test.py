# SPDX-License-Identifier: Apache-2.0
"""Promise: what a closure makes inside an optimizer's step is no state of the optimizer; what the optimizer makes is."""
import unittest

from watched_job import PromiseTest

# The loss is bad in one step, and the program keeps it.
PROGRAM = """
import torch
torch.manual_seed(0)

class Careful(torch.optim.SGD):
    def step(self, closure):
        with torch.enable_grad():
            loss = closure()
        return super().step() if loss.isfinite() else None

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
optimizer = {optimizer}
kept = []
for step in range(6):
    inputs, targets = torch.randn(6, 4), torch.randn(6, 3)
    def closure():
        optimizer.zero_grad()
        outputs = model(inputs)
        if step == 3: outputs = torch.log(outputs - 100)
        loss = (outputs - targets).square().mean()
        kept.append((outputs, loss))
        loss.backward()
        return loss
    optimizer.step(closure)
print(len(kept))
"""
OPTIMIZERS = {"careful": "Careful(model.parameters(), lr=1e-2, momentum=0.9)", "lbfgs": "torch.optim.LBFGS(model.parameters(), lr=1e-2)"}


class Closure(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {name: workplace.run_watched(workplace.program(name, PROGRAM.format(optimizer=text)), ("--level", "full"))
                    for name, text in OPTIMIZERS.items()}

    def incident(self, name):
        incident = self.jobs[name].verdict()["incidents"][0]
        self.assertEqual((incident["origin"]["op"], int(incident["origin"]["step"])), ("aten::log", 3))
        return incident

    def test_a_loss_that_the_closure_keeps_is_no_state(self):
        self.assertEqual(set(self.incident("careful")["reach"]) & {"parameter", "optimizer_state"}, set())

    def test_what_lbfgs_makes_of_it_is_its_state(self):
        self.assertIn("optimizer_state", self.incident("lbfgs")["reach"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
