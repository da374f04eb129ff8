# SPDX-License-Identifier: Apache-2.0
"""Promise: with --on-anomaly stop the job ends before a bad gradient is applied, with an exception that says what began it; without it,
and for updates that a GradScaler skips, nothing is interfered with."""
import unittest

from stopping import BAD_UPDATE, PLAIN, SCALED, UNCAUGHT, Stops
from watched_job import PromiseTest

RANKS = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, port_file):
    dist.init_process_group("gloo", init_method=f"file://{port_file}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        for i in range(6):
            x = torch.randn(3, 4)
            if i == 4 and rank == 1:
                x = x / 0
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    except FloatingPointError:
        open(f"stopped-{rank}", "w").write(f"{i} {all(p.isfinite().all().item() for p in model.parameters())}")

if __name__ == "__main__":
    mp.spawn(work, args=(os.path.abspath("store"),), nprocs=2)
    print("both")
"""

# The loss is lost to a logarithm; the slope of abs() at 0 then makes NaN of the gradients by itself.
LOST_BEFORE = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for i in range(4):
        x = torch.randn(5, 3) * (0 if i == 2 else 1)
        loss = torch.log(model(x).abs() * (x.abs().sum() > 0)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
except FloatingPointError as error:
    print(error)
"""

# Every key of a row is masked in step 3.
MASKED = """
import torch

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 8 ** 0.5
        return scores.masked_fill(mask, float("-inf")).softmax(-1) @ self.value(x)

torch.manual_seed(0)
model = torch.nn.Sequential()
model.attention = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
try:
    for i in range(5):
        mask = torch.ones(4, 5, 5).triu(1).bool()
        mask[2] |= i == 3
        optimizer.zero_grad()
        model.attention(torch.randn(4, 5, 8), mask).square().mean().backward()
        optimizer.step()
except FloatingPointError as error:
    print(error)
"""


class Stop(Stops, PromiseTest):
    @classmethod
    def start(cls, workplace):
        programs = {"plain": PLAIN, "uncaught": UNCAUGHT, "scaled": SCALED, "ranks": RANKS, "masked": MASKED, "update": BAD_UPDATE,
                    "lost": LOST_BEFORE}
        cls.commands = {name: workplace.program(name, text) for name, text in programs.items()}

    def test_an_exception_says_where_it_began_and_the_update_is_not_applied(self):
        job = self.run_stopping("plain")
        first, message, last = job.stdout().splitlines()
        self.assertEqual(first, "5 nanwatch NonFiniteGradient True", job.stderr())
        self.assertIn("4 of 4 gradients at step 5, first in inner.weight", message)
        self.assertIn("began with aten::log in layer gate", message)
        self.assertEqual(last, "went on")
        self.assertEqual(job.verdict()["incidents"][0]["origin"]["op"], "aten::log")
        self.assertNotIn("parameter", job.verdict()["incidents"][0]["reach"])

    def test_the_exception_names_what_spoiled_the_loss_as_the_report_does(self):
        job = self.run_stopping("lost")
        self.assertIn("began with aten::log", job.stdout(), job.stderr())
        self.assertEqual(job.verdict()["incidents"][0]["origin"]["op"], "aten::log")

    def test_the_exception_names_what_made_nan_of_a_mask_as_the_report_does(self):
        job = self.run_stopping("masked")
        origin = job.verdict()["incidents"][0]["origin"]
        self.assertEqual((origin["op"], int(origin["step"])), ("aten::_softmax", 3))
        self.assertIn("at step 3, first in", job.stdout())
        self.assertIn(f"began with {origin['op']}", job.stdout())

    def test_at_level_canary_it_says_what_that_level_knows(self):
        job = self.run_stopping("plain", "--level", "canary")
        first, message, _ = job.stdout().splitlines()
        self.assertEqual(first, "5 nanwatch NonFiniteGradient True", job.stderr())
        self.assertIn("first in inner.weight", message)

    def test_steps_that_a_budget_leaves_unwatched_are_stopped_too(self):
        job = self.run_stopping("plain", "--level", "idle")
        self.assertEqual(job.stdout().splitlines()[0], "5 nanwatch NonFiniteGradient True", job.stderr())

    def test_every_rank_that_was_given_the_gradient_stops(self):
        job = self.run_stopping("ranks")
        self.assertEqual((job.status(), job.stdout()), (0, "both\n"), job.stderr())
        self.assertEqual([job.file(f"stopped-{rank}") for rank in (0, 1)], ["4 True", "4 True"])

    def test_without_the_option_nothing_is_interfered_with(self):
        bare, watched = self.workplace.run_bare(self.commands["uncaught"]), self.workplace.run_watched(self.commands["uncaught"])
        self.assertEqual((bare.status(), watched.status()), (0, 0), watched.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=2)
