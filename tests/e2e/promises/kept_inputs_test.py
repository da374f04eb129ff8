# SPDX-License-Identifier: Apache-2.0
"""Promise: of the first bad op of a run, whose inputs nobody asked for, those are shown that autograd kept for its backward."""
import unittest

from watched_job import PromiseTest

PROGRAM = """
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

def packed(tensor):
    print("packed", tuple(tensor.shape))
    return tensor

def unpacked(tensor):
    print("unpacked", tuple(tensor.shape))
    return tensor

torch.manual_seed(0)
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
for step in range(5):
    bad = step == 3
    h = layer(torch.randn(4, 8)).tanh() + 2
    {made}
    loss = made.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
LOGARITHM = "(h * (0 if bad else 1)).log()"
CASES = {
    "product": "made = (h * (1e30 if bad else 1)) @ (h.T * (1e30 if bad else 1))",
    "quotient": "made = h / (h.detach() * (0 if bad else 1))",
    "logarithm": f"made = {LOGARITHM}",
    "in place": "made = (h * (0 if bad else 1)).log_()",
    "view": "made = (h * (0 if bad else 1)).view(-1)[::2].log()",
    "exponential": "made = (h * (1e3 if bad else 1)).exp()",
    "hooks": f"with torch.autograd.graph.saved_tensors_hooks(packed, unpacked): made = {LOGARITHM}",
    "checkpoint": f"made = checkpoint(lambda h: {LOGARITHM}, h, use_reentrant=False)",
    "no gradient": f"made = h + torch.no_grad()(lambda: {LOGARITHM})()",
    "number": "made = h * (float('nan') if bad else 1)",
    # 2 in every place of a batch that came without an op, but for one.
    "bad batch": "b = torch.from_numpy(__import__('numpy').full((4, 8), 2, 'float32'))\n"
                 "    if bad: b.numpy()[1, 2] = float('nan')\n"
                 "    made = b / h",
}


class KeptInputs(PromiseTest):
    @classmethod
    def start(cls, workplace):
        programs = {name: workplace.program(name.replace(" ", "_"), PROGRAM.format(made=made)) for name, made in CASES.items()}
        cls.bare = workplace.run_bare_twins({name: programs[name] for name in ("hooks", "checkpoint", "in place")})
        cls.watched = {name: workplace.run_watched(program, ("--level", "full")) for name, program in programs.items()}

    def origin(self, name):
        incidents = self.watched[name].verdict()["incidents"]
        self.assertEqual(len(incidents), 1)
        self.assertEqual(int(incidents[0]["origin"]["step"]), 3)
        return incidents[0]["origin"]

    def assert_shown(self, name, op, *inputs):
        """`inputs`: role, shape, smallest and largest value; None: whatever it is."""
        origin = self.origin(name)
        self.assertEqual((origin["op"], origin["class"], origin["inputs_seen"]), (op, "produce", False))
        shown = [(one["role"], [int(size) for size in one["shape"]]) for one in origin["inputs"]]
        self.assertEqual(shown, [(role, shape) for role, shape, _, _ in inputs])
        for one, (_, _, smallest, largest) in zip(origin["inputs"], inputs):
            self.assertEqual((int(one["nan"]), int(one["pos_inf"]), int(one["neg_inf"])), (0, 0, 0))
            if smallest is not None:
                self.assertEqual((one["finite_min"], one["finite_max"]), (smallest, largest))

    def test_both_factors_of_a_product(self):
        self.assert_shown("product", "aten::mm", ("self", [4, 8], None, None), ("mat2", [8, 4], None, None))
        for one in self.origin("product")["inputs"]:
            self.assertTrue(1e29 < one["finite_max"] < 1e32)

    def test_the_divisor_of_a_quotient(self):
        self.assert_shown("quotient", "aten::div", ("other", [4, 8], 0, 0))

    def test_what_a_logarithm_was_given(self):
        self.assert_shown("logarithm", "aten::log", ("self", [4, 8], 0, 0))

    def test_of_a_view_what_it_shows(self):
        self.assert_shown("view", "aten::log", ("self", [16], 0, 0))

    def test_nothing_where_only_the_result_was_kept_or_nothing_at_all(self):
        self.assert_shown("exponential", "aten::exp")
        self.assert_shown("no gradient", "aten::log")

    def test_nothing_of_what_the_op_wrote_over(self):
        self.assert_shown("in place", "aten::log_")

    def test_hooks_of_the_program_are_not_called_for_it(self):
        self.assert_shown("hooks", "aten::log")
        self.assert_shown("checkpoint", "aten::log")
        for name, job in self.bare.items():
            with self.subTest(name):
                self.assertEqual(self.watched[name].stdout(), job.stdout())

    def test_a_batch_that_no_op_brought_is_the_origin_and_shown(self):
        origin = self.origin("bad batch")
        self.assertEqual((origin["kind"], origin["op"]), ("input_data", "aten::div"))
        self.assertEqual([(one["role"], int(one["nan"])) for one in origin["inputs"]], [("self", 1), ("other", 0)])

    def test_a_python_number_is_asked_for_and_no_batch(self):
        origin = self.origin("number")
        self.assertEqual((origin["kind"], origin["op"], origin["class"]), ("op", "aten::mul", "scalar"))


if __name__ == "__main__":
    unittest.main()
