# SPDX-License-Identifier: Apache-2.0
"""Promise: level sampled reads a part of large results, and all of them once something bad shows. It names the op whose result is bad
first, calls an origin exact only if all that its op was given is known, watches some steps in full after, and comes back down."""
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
# Of the size of these tensors there are no others in the program. So the first op that leaves one has its first page read, the second
# its second, and the NaN, which lies on the tenth, is outside the sample of both.
ODD = """odd = torch.full((96, 128), 0.5)
            odd[77, 3] = -2
            """
FAULTS = {
    # On all pages.
    "spread": "hidden = hidden * torch.sqrt(hidden)",
    # A mask beside it, which is bad as well and did no harm.
    "masked": "mask = torch.zeros(128, 128).masked_fill(torch.ones(128, 128).triu(1) > 0, -torch.inf)\n"
              "            weights = torch.softmax(mask, 1)\n"
              "            hidden = hidden * torch.sqrt(hidden)",
    # Met by the mean, when what log1p gave is still there.
    "kept": ODD + "out = torch.log1p(odd)\n            hidden = hidden + (out * out).mean()",
    # The same where that is gone: the product is the first bad value that anybody can read.
    "gone": ODD + "hidden = hidden + (torch.log1p(odd) * 2).mean()",
    # And where it was written over.
    "over": ODD + "hidden = hidden + torch.log1p(odd).mul_(2).mean()",
    # What autograd keeps of log1p's argument is known, whatever else is unread.
    "small": "large = torch.ones(128, 128).exp()\n            hidden = hidden + torch.log1p(hidden[0, :2] * 0 - 3).sum()",
    "none": "pass",
}
WRITTEN = """
import numpy, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    if step == 3: model.weight.detach().numpy()[0, 1] = numpy.nan
    optimizer.step()
"""
LIMIT = "1024"  # The results of the model are of 64 KB.
STEPS_IN_FULL = 17  # The one in which it was found, from there on, and 16 more (shim/observe/level/level_control.cc).


def place(origin):
    return origin["op"], origin["layer"], origin["phase"], int(origin["step"]), origin["exact"]


class Sampled(PromiseTest):
    @classmethod
    def start(cls, workplace):
        programs = {name: workplace.program(name, TEXT.format(fault=fault)) for name, fault in FAULTS.items()}
        cls.jobs = {name: (bare, workplace.run_watched(programs[name], ("--level", "sampled"), NANWATCH_TEST_SAMPLE_LIMIT=LIMIT))
                    for name, bare in workplace.run_bare_twins(programs).items()}
        cls.full = workplace.run_watched(programs["none"], ("--level", "full"))
        small = workplace.program("small_one", "import torch; print(torch.ones(3).sum().item())")
        cls.written = workplace.run_watched(workplace.program("written", WRITTEN), ("--level", "sampled"))
        cls.former = workplace.run_watched(small, ("--level", "layer"))
        cls.former_alone = workplace.run_preloaded(small, NANWATCH_LEVEL="layer", NANWATCH_LOG="stderr")

    def verdict(self, name):
        return self.jobs[name][1].verdict()

    def test_an_op_whose_inputs_are_known_is_named_exactly(self):
        origin = origins(self.verdict("spread"))[0]
        self.assertEqual(place(origin), ("aten::sqrt", "blocks.1", "forward", 7, True))
        self.assertIn("spread.py:12 in forward", origin["source"])
        self.assertEqual(place(origins(self.verdict("small"))[0]), ("aten::log1p", "blocks.1", "forward", 7, True))

    def test_a_mask_beside_it_is_not_taken_for_it(self):
        self.assertEqual(place(origins(self.verdict("masked"))[0])[:4], ("aten::sqrt", "blocks.1", "forward", 7))

    def test_what_was_outside_the_sample_is_found_where_it_was_made_and_not_called_exact(self):
        origin = origins(self.verdict("kept"))[0]
        self.assertEqual(place(origin), ("aten::log1p", "blocks.1", "forward", 7, False))
        self.assertIn("sampled", origin["unseen"])
        self.assertIn("kept.py:14 in forward", origin["source"])
        self.assertIn("or an op before it whose result was read in part only", self.jobs["kept"][1].stderr())
        chain = [link["op"] for link in self.verdict("kept")["incidents"][0]["chain"]]
        self.assertEqual(chain[:3], ["aten::log1p", "aten::mul", "aten::mean"])

    def test_behind_a_value_that_is_gone_nothing_is_called_exact(self):
        for name, op in (("gone", "aten::mul"), ("over", "aten::mul_")):
            with self.subTest(name):
                origin = origins(self.verdict(name))[0]
                self.assertEqual(place(origin), (op, "blocks.1", "forward", 7, False))
                self.assertIn("sampled", origin["unseen"])

    def test_an_update_whose_parameters_nobody_read_before_is_not_sure_to_have_made_it(self):
        origin = origins(self.written.verdict())[0]
        self.assertEqual((origin["op"], int(origin["step"]), origin["exact"]), ("aten::addcdiv_", 3, False))
        self.assertIn("inputs", origin["unseen"])

    def test_it_comes_back_down(self):
        for name in ("spread", "kept", "gone"):
            with self.subTest(name):
                steps = {level: int(count) for level, count in self.verdict(name)["coverage"]["steps_watched"].items()}
                self.assertEqual(steps, {"sampled": 39 - STEPS_IN_FULL, "full": STEPS_IN_FULL})

    def test_the_former_name_of_the_level_is_taken_and_mentioned(self):
        by_name = {"--level": self.former, "alone": self.former_alone}
        for how, job in by_name.items():
            with self.subTest(how):
                self.assertEqual(job.status(), 0, job.stderr())
                self.assertIn("nanwatch: level 'layer' is called 'sampled' now", job.stderr())
        self.assertIn("level sampled; the report follows", self.former.stderr())
        self.assertEqual(self.former.verdict()["run"]["level"], "sampled")

    def test_results_are_the_same_and_a_healthy_run_is_clean(self):
        for name, (bare, watched) in self.jobs.items():
            with self.subTest(name):
                self.assert_same(bare, watched)
        verdict = self.assert_clean(self.jobs["none"][1])
        self.assertEqual(list(verdict["coverage"]["steps_watched"]), ["sampled"])
        # Gradients and what updates write are read in full, results of the model are not.
        read, in_full = (int(job["coverage"]["bytes_checked"]) for job in (verdict, self.full.verdict()))
        self.assertLess(read, in_full * 3 / 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
