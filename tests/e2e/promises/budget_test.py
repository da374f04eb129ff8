# SPDX-License-Identifier: Apache-2.0
"""Promise: with a budget the job chooses how each step is watched, says what it chose, and its results stay the same."""
import unittest

from watched_job import PromiseTest

TRAINING = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(32, {width}), torch.nn.ReLU(), torch.nn.Linear({width}, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for i in range({steps}):
    optimizer.zero_grad()
    x = torch.randn({width} // 4, 32)
    loss = torch.nn.functional.mse_loss(model(x), x[:, :4])
    {fault}
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
"""
EXPLOSION = """if i >= 120:
        loss = loss * 10.0 ** (i - 120)
    if i == 130:
        loss = loss * torch.log(loss.detach() * 0 - 1)"""


class Budget(PromiseTest):
    @classmethod
    def start(cls, workplace):
        plain = workplace.program("plain", TRAINING.format(fault="", width=64, steps=600))
        cls.bare, cls.watched = workplace.run_bare(plain), workplace.run_watched(plain, ("--budget", "1"))
        # A budget that has room for the canary on any machine.
        text = TRAINING.format(fault=EXPLOSION, width=2048, steps=140)
        cls.exploding = workplace.run_watched(workplace.program("exploding", text), ("--level", "auto", "--budget", "80"))

    def test_the_results_are_the_same(self):
        self.assert_same(self.bare, self.watched)

    def test_coverage_says_how_the_steps_were_watched(self):
        coverage = self.watched.verdict()["coverage"]
        watched = {level: int(steps) for level, steps in coverage["steps_watched"].items()}
        self.assertEqual(sum(watched.values()), 600)
        self.assertEqual(set(watched), {"idle", "canary", "full"})
        self.assertIn("600 steps (", self.watched.stderr())
        self.assertEqual(self.watched.verdict()["run"]["level"], "auto")

    def test_what_explodes_is_watched_in_full_before_it_is_nan(self):
        origin = self.exploding.verdict()["incidents"][0]["origin"]
        self.assertEqual((origin["op"], origin["class"], int(origin["step"])), ("aten::log", "produce", 130))


if __name__ == "__main__":
    unittest.main(verbosity=2)
