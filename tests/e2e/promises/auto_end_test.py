# SPDX-License-Identifier: Apache-2.0
"""Promise: a job that ends among steps that level auto has left out is read once more, or it is not called clean."""
import unittest

from watched_job import PromiseTest

# Level auto leaves out the last of so few steps.
TRAINING = """
import os
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters())
for step in range(8):
    x = torch.rand(8, 4) - (0.5 if step == FAULT else 0)
    optimizer.zero_grad()
    model(x.log()).square().mean().backward()
    optimizer.step()
END
"""


class AutoEnd(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def watch(name, fault, end):
            text = TRAINING.replace("FAULT", str(fault)).replace("END", end)
            return workplace.run_watched(workplace.program(name, text), ("--level", "auto"))

        cls.ruined = {step: watch(f"ruined_{step}", step, "pass") for step in (5, 6, 7)}
        cls.healthy = watch("healthy", -1, "pass")
        cls.left = {fault: watch(f"left_{fault + 1}", fault, "os._exit(0)") for fault in (6, -1)}

    def test_weights_that_were_ruined_in_the_last_steps_are_found_at_the_end(self):
        for step, job in self.ruined.items():
            with self.subTest(step):
                verdict = job.verdict()
                self.assertGreater(int(verdict["coverage"]["steps_watched"]["idle"]), 0)
                self.assertEqual(verdict["verdict"], "anomaly")
                incident = verdict["incidents"][0]
                origin = incident["origin"]
                self.assertEqual((origin["kind"], origin["exact"], origin["unseen"]), ("parameter", False, ["level"]))
                self.assertLess(int(origin["step"]), 8, "there is no ninth step")
                self.assertIn("parameter", incident["reach"])
                self.assertEqual(incident["pattern"]["id"], "parameter-bad-after-unchecked-steps")
                self.assertIn("in steps that were not checked", " ".join(job.stderr().split()))

    def test_weights_that_are_finite_at_the_end_are_clean(self):
        coverage = self.assert_clean(self.healthy)["coverage"]
        self.assertGreater(int(coverage["steps_watched"]["idle"]), 0)

    def test_what_nobody_could_read_at_the_end_is_not_called_clean(self):
        for fault, job in self.left.items():
            with self.subTest(fault):
                verdict = job.verdict()
                self.assertEqual((verdict["verdict"], verdict["unknown_because"]), ("unknown", "steps_not_checked"))
                self.assertIn("level auto had left out", " ".join(job.stderr().split()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
