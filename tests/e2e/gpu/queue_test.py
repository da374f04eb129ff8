# SPDX-License-Identifier: Apache-2.0
"""The queue of GPU events is used round and round: a job lives through its end, and what is found behind it is told.

The queue of a job is 32 MiB and ends where a page begins that nobody may touch. Here it is some KB, and begins full of what may be
left of older events.
"""
import unittest

from gpu_job import GpuJobTest, origins

# Ops whose events are of many sizes, so that what is left over at the queue's end is of every size too.
TRAINS = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for step in range({steps}):
    optimizer.zero_grad()
    hidden = model[:3](torch.randn(4, 8, device="cuda"))
    hidden = torch.cat([part * 1.5 for part in hidden.view(4, 2, 8).unbind(1)], dim=1)
    if step == {steps} - 2: hidden = hidden.sub(100).sqrt()
    loss = model[3](hidden).square().mean()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
print("done")
"""
BYTES = {"small": 1 << 14, "roomy": 1 << 18}
STEPS = 60
LEVELS = {"canary": ("--level", "canary"), "sampled": ("--level", "sampled"), "full": ("--level", "full"), "auto": ("--budget", "50")}
# Bytes of the smallest event that an op whose result is looked at has; and of the events of a step whose ops are not.
OP_BYTES_LEAST, STEP_BYTES_LEAST = 1024, 1024
ROUNDS = 3


class Queue(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        program = cls.program("trains", TRAINS.format(steps=STEPS))
        cls.bare = workplace.run_bare(program)
        cls.jobs = {}
        for level, options in LEVELS.items():
            for size, amount in BYTES.items():
                cls.jobs[level, size] = workplace.run_watched(program, options, NANWATCH_TEST_GPU_QUEUE_BYTES=str(amount), NANWATCH_FAKE_LAG="0")
                cls.jobs[level, size].status()

    def test_a_job_goes_on_where_the_queue_begins_anew(self):
        for (level, size), job in self.jobs.items():
            with self.subTest(level=level, size=size):
                self.assert_same(self.bare, job)

    def test_the_queue_was_used_up_several_times(self):
        for (level, size), job in self.jobs.items():
            with self.subTest(level=level, size=size):
                job.status()
                coverage = job.verdict()["coverage"]
                noted = int(coverage["tensors_checked"]) * OP_BYTES_LEAST if level == "full" else STEPS * STEP_BYTES_LEAST
                if size == "small" or level == "full":
                    self.assertGreater(noted, ROUNDS * BYTES[size])

    def test_a_fault_behind_its_end_is_told(self):
        for level in ("sampled", "full"):
            with self.subTest(level=level):
                self.assertEqual([(o["op"], int(o["step"])) for o in origins(self.jobs[level, "roomy"].verdict())], [("aten::sqrt", STEPS - 2)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
