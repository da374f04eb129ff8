# SPDX-License-Identifier: Apache-2.0
"""Promise: an origin keeps its figures and its cause, however often the same op was bad before in ways that did not matter."""
import unittest

from watched_job import PromiseTest

# An update makes the weights too large. Validation, which counts right answers and reads no loss, meets the overflow first.
VALIDATION = """
import torch
torch.manual_seed(0)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.last = torch.nn.Linear(16, 3)

    def forward(self, inputs):
        return torch.exp(self.last(self.first(inputs).relu()))

model = torch.nn.Sequential(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for epoch in range(3):
    model.train()
    for batch in range(5):
        if (epoch, batch) == (1, 4): optimizer.param_groups[0]["lr"] = 1e3
        loss = (model(torch.randn(6, 8)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.{grad_mode}:
        right = 0
        for batch in range({batches}):
            right += int((model(torch.randn(6, 8)).argmax(1) == 1).sum())
    print(epoch, right)
"""

# A branch that is not used overflows in every step; in the last its value is used.
BRANCH = """
import torch
weight = torch.nn.Parameter(torch.full((4,), 100.0))
optimizer = torch.optim.SGD([weight], lr=0.0)
for step in range(30):
    large = torch.exp(weight)
    loss = torch.where(torch.tensor(step == 29), large, weight.detach() * 2).sum() + weight.sum()
    optimizer.zero_grad()
    if step == 29: loss.backward()
    else: weight.sum().backward()
    optimizer.step()
print(step)
"""

# A table that was made bad before the training, a buffer of the model or not; the rows that are, are taken in step 4.
TABLE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.rows = torch.nn.Embedding(4, 3)
        if {is_buffer}: self.register_buffer("weights", weights)
        else: self.weights = weights

    def forward(self, picked):
        return (self.rows(picked).sum(-1) * self.weights[picked]).mean()

counts = torch.tensor([1.0, 0.0, 2.0, 3.0])
model = Net((1e-2 / counts).sqrt())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(7):
    loss = model(torch.tensor([0, 2, 3] if step < 4 else [0, 1, 3]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(step)
"""

# The same with another table that is bad for long, too; and with one of the same numbers.
TWO_TABLES = TABLE.replace("counts = ", "others = 1 / torch.tensor([0.0, 7.0])\ncounts = ")
SAME_TABLES = TABLE.replace("model = ", "others = (1e-2 / counts).sqrt() * 1\nmodel = ")

# A figure that was bad before has nothing to do with the batch that is, which comes from numpy.
BATCH = """
import numpy, torch
history = [torch.zeros(()) / torch.zeros(())]
samples = numpy.random.default_rng(0).normal(size=(64, 4)).astype("f")
samples[45, 2] = numpy.nan
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    batch = torch.from_numpy(samples)[torch.arange(8) + 8 * step]
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


class LaterValues(PromiseTest):
    @classmethod
    def start(cls, workplace):
        texts = {f"{mode}_{batches}": VALIDATION.format(grad_mode=f"{mode}()", batches=batches)
                 for mode in ("enable_grad", "no_grad") for batches in (3, 40)}
        texts["branch"] = BRANCH
        texts["attribute"] = TABLE.format(is_buffer=False)
        texts["buffer"] = TABLE.format(is_buffer=True)
        texts["two_tables"] = TWO_TABLES.format(is_buffer=False)
        texts["same_tables"] = SAME_TABLES.format(is_buffer=False)
        texts["batch"] = BATCH
        cls.jobs = {name: workplace.run_watched(workplace.program(name, text), ("--level", "full"))
                    for name, text in texts.items()}

    def incident(self, name):
        verdict = self.jobs[name].verdict()
        self.assertEqual(verdict["verdict"], "anomaly", self.jobs[name].stderr())
        return verdict["incidents"][0]

    def test_an_overflow_that_validation_met_first_has_its_figures_and_its_cause(self):
        for name in ("enable_grad_3", "enable_grad_40", "no_grad_3", "no_grad_40"):
            with self.subTest(name):
                incident = self.incident(name)
                origin = incident["origin"]
                self.assertEqual((origin["op"], origin["layer"], int(origin["step"])), ("aten::exp", "0", 10))
                self.assertEqual([output["shape"] for output in origin["outputs"]], [[6, 3]], origin)
                self.assertGreater(int(origin["outputs"][0]["pos_inf"]), 0)
                self.assertIsNotNone(incident["pattern"])

    def test_a_branch_that_was_bad_in_every_step_has_the_figures_of_the_step_that_used_it(self):
        incident = self.incident("branch")
        origin = incident["origin"]
        self.assertEqual((origin["op"], int(origin["step"])), ("aten::exp", 29))
        self.assertEqual([int(output["pos_inf"]) for output in origin["outputs"]], [4], origin)

    def test_a_value_that_was_bad_for_long_is_told_from_its_op_though_nobody_looked_at_inputs_any_more(self):
        for name in ("attribute", "buffer", "two_tables"):
            with self.subTest(name):
                incident = self.incident(name)
                origin = incident["origin"]
                self.assertEqual((origin["kind"], origin["op"], int(origin["step"])), ("op", "aten::reciprocal", 0), origin)
                self.assertEqual((origin["exact"], origin["unseen"]), (False, ["inputs"]))
                self.assertEqual(incident["pattern"]["id"], "division-by-zero")
                self.assertIn("parameter", incident["reach"])

    def test_where_two_values_hold_the_same_numbers_none_of_them_is_blamed(self):
        origin = self.incident("same_tables")["origin"]
        self.assertEqual((origin["kind"], origin["exact"]), ("input_data", False), origin)

    def test_what_was_bad_for_long_is_not_blamed_for_the_batch(self):
        origin = self.incident("batch")["origin"]
        self.assertEqual((origin["kind"], origin["class"], int(origin["step"])), ("input_data", "external", 5), origin)


if __name__ == "__main__":
    unittest.main(verbosity=2)
