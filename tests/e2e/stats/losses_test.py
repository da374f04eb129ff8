# SPDX-License-Identifier: Apache-2.0
"""The losses that are told are those that passes begin at, without the scale of a scaler, however a program comes to them."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import NANWATCH, PromiseTest  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/losses_told.py"
WAYS = ("another_scalar_is_dropped", "two_are_scaled_and_then_begun_at", "begun_at_twice", "looked_at_before", "several_at_once",
        "scaled_by_another_class", "a_part_is_computed_again")
# The criterion returns the loss, from which another is made.
DIVIDED = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
criterion = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(8, 4)
    if step == 4: x[0, 0] = float("nan")
    loss = criterion(model(x), torch.zeros(8, 1)) / 4
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


class Losses(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {(way, level): workplace.run_watched([sys.executable, PROGRAM, way], ("--level", level), NANWATCH_TOOL=str(NANWATCH))
                    for way in WAYS for level in ("canary", "full")}
        cls.divided = workplace.run_watched(workplace.program("divided", DIVIDED), ("--level", "canary"))

    def test_they_are_told_as_torch_has_them_or_not_at_all(self):
        for (way, level), job in self.jobs.items():
            with self.subTest(way=way, level=level):
                self.assertEqual(job.status(), 0, job.stderr())
                said = json.loads(job.stdout())
                losses = [loss for loss in said["losses"] if loss is not None]
                self.assertEqual(len(said["told"]), len(losses), said)
                for told, loss in zip(said["told"], losses):
                    self.assertAlmostEqual(told, loss, delta=1e-5 * abs(loss))
                self.assertEqual(job.verdict()["verdict"], "clean")

    def test_a_bad_loss_and_what_is_made_of_it_are_one_incident(self):
        incidents = self.divided.verdict()["incidents"]
        self.assertEqual([(incident["origin"]["op"], int(incident["origin"]["step"])) for incident in incidents], [("torch.nn.Module.__call__", 4)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
