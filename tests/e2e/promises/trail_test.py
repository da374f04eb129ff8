# SPDX-License-Identifier: Apache-2.0
"""Promise: what went before an origin is told, with how large it was: what was growing."""
import json
import unittest

from watched_job import PromiseTest

# Doubles its activations until one is too large; prints what each of the last ops left.
PROGRAM = """
import json
import torch

class Grow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((400,), {start}, dtype=torch.{dtype}))

    def forward(self, inputs):
        product = inputs * self.weight
        if LARGEST is not None: LARGEST["product"].append(product.detach().abs().max().item())
        square = product.square()
        if LARGEST is not None: LARGEST["square"].append(square.detach().abs().max().item())
        return square

LARGEST = {{"product": [], "square": []}} if {asked} else None
model = torch.nn.Sequential(Grow())
inputs = torch.linspace(-1, 1, {count}, dtype=torch.{dtype}).reshape(-1, 400)
for step in range({steps}):
    loss = model(inputs).float().max()
    loss.backward()
    with torch.no_grad():
        model[0].weight.mul_(2)
        model[0].weight.grad = None
if LARGEST is not None: print(json.dumps(LARGEST))
"""


class Trail(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {}
        for name, dtype, start, count, steps in (("half", "float16", 1.0, 4000, 12), ("long", "float32", 1e15, 40_000, 18)):
            for asked in (False, True):
                text = PROGRAM.format(dtype=dtype, start=start, count=count, steps=steps, asked=asked)
                program = workplace.program(f"{name}_{asked}", text)
                cls.jobs[name, asked] = workplace.run_bare(program) if asked else workplace.run_watched(program, ("--level", "full"))

    def incident(self, name):
        return self.jobs[name, False].verdict()["incidents"][0]

    def largest(self, name):
        numbers = json.loads(self.jobs[name, True].stdout())
        return {key: [n for n in values if n < float("inf")] for key, values in numbers.items()}

    def test_the_op_before_the_origin_is_told_with_its_largest_result(self):
        for name in ("half", "long"):
            with self.subTest(name):
                incident = self.incident(name)
                self.assertEqual((incident["origin"]["op"], incident["origin"]["layer"]), ("aten::pow", "0"))
                last = incident["trail"][-1]
                self.assertEqual((last["op"], last["layer"], last["phase"], last["steps_before"]),
                                 ("aten::mul", "0", "forward", 0))
                step = len(self.largest(name)["square"])
                self.check(last, self.largest(name)["product"][step])

    def test_what_the_origin_s_own_op_made_before_is_told_step_by_step(self):
        for name in ("half", "long"):
            with self.subTest(name):
                told = self.incident(name)["history"]
                made = self.largest(name)["square"][-16:]
                self.assertEqual([op["steps_before"] for op in told], list(range(len(made), 0, -1)))
                for op, largest in zip(told, made, strict=True):
                    self.check(op, largest)

    def check(self, op, largest):
        """Exact, or of a sample: one in 37 of normally distributed numbers."""
        if op["at_least"]:
            self.assertLessEqual(op["largest"], largest * 1.0001)
            self.assertGreaterEqual(op["largest"], largest / 4)
        else:
            self.assertAlmostEqual(op["largest"] / largest, 1, 3)

    def test_half_precision_is_told_exactly(self):
        self.assertFalse(any(op["at_least"] for op in self.incident("half")["history"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
