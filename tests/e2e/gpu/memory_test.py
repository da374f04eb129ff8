# SPDX-License-Identifier: Apache-2.0
"""A GPU's memory: what is held for a check is let go of before a job runs out, so that watching costs it none."""
import unittest

from gpu_job import GpuJobTest

# Most of the peak is what the forward leaves for the backward. A launch is a batch of 16 ops, and what they leave is held until then.
TRAINING = """
import torch
torch.manual_seed(0)
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(256, 256), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(512, 256).cuda()
for _ in range(4):
    optimizer.zero_grad()
    with torch.no_grad():
        for _ in range(20):  # what dies at once
            (x * 2).add(1).sigmoid()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex(), torch.cuda.max_memory_allocated())
"""
LEVELS = ("canary", "sampled", "full")


class Memory(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        training = cls.program("training", TRAINING)
        cls.bare = workplace.run_bare(training)
        cls.peak = int(cls.bare.stdout().split()[1])
        cls.with_no_more = {level: workplace.run_watched(training, ("--level", level), NANWATCH_FAKE_MEMORY=str(cls.peak)) for level in LEVELS}
        cls.with_less = workplace.run_bare(training, NANWATCH_FAKE_MEMORY=str(cls.peak - 1))

    def test_a_watched_job_has_enough_where_a_bare_one_has(self):
        for level, job in self.with_no_more.items():
            with self.subTest(level=level):
                self.assertEqual(job.status(), 0, job.stderr())
                self.assertEqual(job.stdout(), self.bare.stdout())
                self.assert_clean(job)

    def test_one_byte_less_is_too_little(self):
        self.assertNotEqual(self.with_less.status(), 0)
        self.assertIn("CUDA out of memory", self.with_less.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=2)
