# SPDX-License-Identifier: Apache-2.0
"""A job's first tensors on a GPU are looked at, the very first too; where the GPU is so busy that its kernels are not ready, the job goes on."""
import unittest

from gpu_job import GpuJobTest

FIRST = """
import torch
x = torch.full((8,), -1.0, device="cuda").sqrt()
print(x.isnan().all().item())
"""
TRAINING = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(64, 8, device="cuda")).square().mean().backward()
    optimizer.step()
print("trained")
"""


class Beginning(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        first, training = cls.program("first", FIRST), cls.program("training", TRAINING)
        cls.first = workplace.run_watched(first)
        cls.training = {level: workplace.run_watched(training, ("--level", level)) for level in ("full", "sampled", "canary")}
        cls.busy = workplace.run_watched(training, NANWATCH_FAKE_OWN_LAG_MS="300")

    def test_nothing_goes_by_while_checks_begin(self):
        for level, job in self.training.items():
            with self.subTest(level):
                coverage = job.verdict()["coverage"]
                self.assertEqual(int(coverage["unchecked"].get("gpu_not_ready", 0)), 0)
                self.assertGreater(int(coverage["tensors_checked"]), 0)

    def test_what_the_first_ops_make_is_told(self):
        self.assert_origin(self.first.verdict(), op="aten::sqrt")

    def test_a_busy_gpu_is_not_waited_for(self):
        self.assertEqual((self.busy.status(), self.busy.stdout()), (0, "trained\n"), self.busy.stderr())
        self.assertGreater(int(self.busy.verdict()["coverage"]["unchecked"]["gpu_not_ready"]), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
