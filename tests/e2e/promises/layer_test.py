# SPDX-License-Identifier: Apache-2.0
"""Promise: level layer reads what crosses module boundaries, names the op inside when that is bad, and calls it exact only when it
is; it then watches some steps in full, and comes back down."""
import unittest

from blocks import MODEL
from watched_job import PromiseTest, origins

TEXT = """
import torch
torch.manual_seed(1)
""" + MODEL + """model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(40):
    optimizer.zero_grad()
    loss = model(torch.randn(128, 128), step == 7).square().mean()
    loss.backward()
    print(loss.item().hex(), *[p.grad.double().sum().item().hex() for p in model.parameters()])
    if loss.isfinite():
        optimizer.step()
"""
FAULTS = {
    # Kept for the backward, so that it is there to be looked at.
    "kept": "hidden = hidden * torch.sqrt(hidden)",
    # A mask beside it, which is bad as well and did no harm.
    "masked": "mask = torch.zeros(128, 128).masked_fill(torch.ones(128, 128).triu(1) > 0, -torch.inf)\n"
              "            weights = torch.softmax(mask, 1)\n"
              "            hidden = hidden * torch.sqrt(hidden)",
    # Nobody keeps what log gave, and it is gone when the block returns.
    "gone": "hidden = torch.log(hidden - 10) * 2",
    # A branch that where() leaves out comes back in the backward, as a slope times 0.
    "backward": "hidden = torch.where(hidden > 0, torch.sqrt(hidden), hidden)",
    "none": "pass",
}
STEPS_IN_FULL = 17  # The one in which it was found, from there on, and 16 more (shim/observe/level/level_control.cc).


def place(origin):
    return origin["op"], origin["layer"], origin["phase"], int(origin["step"]), origin["exact"]


class Layer(PromiseTest):
    @classmethod
    def start(cls, workplace):
        programs = {name: workplace.program(name, TEXT.format(fault=fault)) for name, fault in FAULTS.items()}
        cls.jobs = {name: (bare, workplace.run_watched(programs[name], ("--level", "layer")))
                    for name, bare in workplace.run_bare_twins(programs).items()}

    def verdict(self, name):
        return self.jobs[name][1].verdict()

    def test_an_op_whose_result_is_still_there_is_named_exactly(self):
        origin = origins(self.verdict("kept"))[0]
        self.assertEqual(place(origin), ("aten::sqrt", "blocks.1", "forward", 7, True))
        self.assertIn("kept.py:12 in forward", origin["source"])

    def test_a_mask_beside_it_is_not_taken_for_it(self):
        self.assertEqual(place(origins(self.verdict("masked"))[0]), ("aten::sqrt", "blocks.1", "forward", 7, True))

    def test_an_op_behind_one_whose_result_is_gone_is_not_called_exact(self):
        self.assertEqual(place(origins(self.verdict("gone"))[0]), ("aten::mul", "blocks.1", "forward", 7, False))
        self.assertIn("or an op before it that was not observed", self.jobs["gone"][1].stderr())

    def test_what_a_dead_branch_brings_back_in_backward_is_found_where_the_forward_made_it(self):
        origin = origins(self.verdict("backward"))[0]
        self.assertEqual(place(origin)[:4], ("aten::sqrt", "blocks.1", "forward", 7))

    def test_it_comes_back_down(self):
        for name in ("kept", "gone"):
            with self.subTest(name):
                steps = {level: int(count) for level, count in self.verdict(name)["coverage"]["steps_watched"].items()}
                self.assertEqual(steps, {"layer": 39 - STEPS_IN_FULL, "full": STEPS_IN_FULL})

    def test_results_are_the_same_and_a_healthy_run_is_clean(self):
        for name, (bare, watched) in self.jobs.items():
            with self.subTest(name):
                self.assert_same(bare, watched)
        verdict = self.assert_clean(self.jobs["none"][1])
        self.assertEqual(list(verdict["coverage"]["steps_watched"]), ["layer"])
        # Most results are noted, not read.
        self.assertLess(int(verdict["coverage"]["tensors_checked"]), int(verdict["coverage"]["ops_seen"]) / 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
