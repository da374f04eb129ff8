# SPDX-License-Identifier: Apache-2.0
"""Promise: the steps of optimizers are counted, at every level, whatever becomes of them, and one that is compiled stays as it is."""
import unittest

from watched_job import PromiseTest

LEVELS = ("idle", "canary", "full")

# Each step has another inside it; two of five end with an exception.
MODEL = """
import torch

class Twice(torch.optim.SGD):
    fails = False

    def step(self, closure=None):
        super().step(closure)
        if self.fails:
            raise RuntimeError("no more")

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
x = torch.randn(3, 4)
twice = Twice(model.parameters(), lr=1e-3)

def backward():
    model.zero_grad()
    model(x).square().sum().backward()

for twice.fails in (False, True, False, True, False):
    backward()
    try:
        twice.step()
    except RuntimeError:
        pass
"""
COMPLETED = 3
# Until torch has been given the hooks of a step, which takes Python's main thread a moment, a step that raises is one that ended.
HOOKED = """
import sys, torch
for _ in range(10 ** 8):
    if sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks: break
"""
BAD = "model(x / 0)\n"
# Plain steps, and such that call a closure several times.
MORE = """
plain = torch.optim.AdamW(model.parameters())
closure_taker = torch.optim.LBFGS(model.parameters(), max_iter=3)

def closure():
    closure_taker.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    return loss

for _ in range(3):
    backward()
    plain.step()
for _ in range(2):
    closure_taker.step(closure)
"""

COMPILED = """
import torch
from torch._dynamo.utils import counters
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters())
step = torch.compile(optimizer.step, backend="eager")
for _ in range(4):
    model.zero_grad()
    model(torch.randn(3, 4)).square().sum().backward()
    step()
print(sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"], model.weight.sum().item().hex())
"""

# More steps than the segment keeps: the daemon has to have followed them.
LONG = """
import torch

model = torch.nn.Linear(4, 2)
x = torch.randn(3, 4)
for optimizer, steps, bad in ((torch.optim.SGD(model.parameters(), lr=1e-5), 4000, -1),
                              (torch.optim.Adam(model.parameters(), lr=1e-5), 6000, 5321)):
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        (loss / 0 if step == bad else loss).backward()
        if step != bad:
            optimizer.step()
"""


class Steps(PromiseTest):
    def verdict(self, level, text):
        job = self.workplace.run_watched(self.workplace.program(f"steps_{level}", text), ("--level", level))
        self.assertEqual(job.status(), 0, job.stderr())
        return job.verdict()

    def test_steps_that_end_with_an_exception_are_not_counted(self):
        verdict = self.verdict("full", HOOKED + MODEL + BAD)
        self.assertEqual(verdict["incidents"][0]["origin"]["step"], COMPLETED)

    def test_a_long_training_after_another_long_one_counts_from_its_beginning(self):
        verdict = self.verdict("full", LONG)
        self.assertEqual(verdict["incidents"][0]["origin"]["step"], 5321)

    def test_every_level_sees_the_same_steps(self):
        seen = {level: self.verdict(level, MODEL + MORE)["coverage"]["steps_watched"] for level in LEVELS}
        self.assertEqual({level: set(steps) for level, steps in seen.items()}, {level: {level} for level in LEVELS})
        self.assertEqual(len({int(steps[level]) for level, steps in seen.items()}), 1, seen)

    def test_a_compiled_step_is_compiled_as_it_was(self):
        program = self.workplace.program("compiled", COMPILED)
        bare = self.workplace.run_bare(program)
        watched = self.workplace.run_watched(program, ("--level", "idle"))
        self.assertEqual((bare.status(), watched.status()), (0, 0), watched.stderr())
        self.assertEqual(watched.stdout(), bare.stdout())


if __name__ == "__main__":
    unittest.main(verbosity=2)
