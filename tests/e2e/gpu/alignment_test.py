# SPDX-License-Identifier: Apache-2.0
"""Memory of a GPU that does not stand on its elements' alignment is left alone, and said to be: reading it would end the job's context."""
import unittest

from gpu_job import GpuJobTest

# A slice of a storage stands where DLPack and from_blob may put a tensor.
PROGRAM = """
import torch
odd = torch.empty(0, device="cuda").set_(torch.zeros(4100, dtype=torch.uint8, device="cuda").untyped_storage()[1:4097])
assert odd.data_ptr() % 4 != 0 and odd.numel() == 1024
optimizer = torch.optim.SGD([torch.nn.Parameter(odd)], lr=0.1)
for step in range(6):
    x = torch.ones(64, device="cuda")
    odd.fill_(2.0)
    made = (x - (3.0 if step == 4 else 0.0) * odd[:64]).sqrt()
    parameter = optimizer.param_groups[0]["params"][0]
    parameter.grad = odd.clone()
    optimizer.step()
print(made.sum().item())
"""


class Alignment(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        program = cls.program("misaligned", PROGRAM)
        cls.bare = workplace.run_bare(program)
        cls.jobs = {level: workplace.run_watched(program, ("--level", level)) for level in ("full", "sampled")}

    def test_it_is_unchecked_and_all_else_is_checked_as_ever(self):
        for level, job in self.jobs.items():
            with self.subTest(level):
                self.assertEqual(job.stdout(), self.bare.stdout())
                verdict = job.verdict()
                unchecked = verdict["coverage"]["unchecked"]
                self.assertGreater(int(unchecked["opaque"]), 0)
                self.assertNotIn("gpu_not_ready", unchecked, "the context is as it was")
                self.assert_origin(verdict, op="aten::sqrt", step=4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
