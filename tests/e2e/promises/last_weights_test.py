# SPDX-License-Identifier: Apache-2.0
"""Promise: a job whose last act puts bad weights into its model is not called harmless, though no op reads them again."""
import unittest

from watched_job import PromiseTest, origins

TRAINING = """
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    weights = model[2].weight.clone()
    weights[1] = {row}
    normal = weights / weights.norm(dim=1, keepdim=True)
{last}
torch.save(model.state_dict(), "last.pt")
"""
LAST = {"a new parameter": "model[2].weight = nn.Parameter(normal)",
        "a state that is assigned": "model.load_state_dict({**model.state_dict(), '2.weight': normal}, assign=True)"}


class LastWeights(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {(name, row): workplace.run_watched(workplace.program(f"{name.split()[1]}{row}", TRAINING.format(row=row, last=last)))
                    for name, last in LAST.items() for row in (0, 1)}
        cls.dropped = workplace.run_watched(workplace.program("dropped", TRAINING.format(row=0, last="del normal")))

    def test_weights_that_are_put_in_last_are_reached(self):
        for name in LAST:
            with self.subTest(name):
                verdict = self.jobs[name, 0].verdict()
                self.assertEqual([(o["op"], o["exact"]) for o in origins(verdict)], [("aten::div", True)])
                self.assertEqual(verdict["verdict"], "anomaly")
                self.assertIn("parameter", verdict["incidents"][0]["reach"])

    def test_finite_ones_are_clean(self):
        for name in LAST:
            with self.subTest(name):
                self.assertEqual(self.jobs[name, 1].verdict()["verdict"], "clean")

    def test_what_is_not_put_in_is_harmless(self):
        self.assertEqual(self.dropped.verdict()["verdict"], "expected")


if __name__ == "__main__":
    unittest.main(verbosity=2)
