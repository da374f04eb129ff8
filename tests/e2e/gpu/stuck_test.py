# SPDX-License-Identifier: Apache-2.0
"""A stream that never gets on, or a whole GPU, keeps a job from nothing: it goes on, ends, and what others have answered is told."""
import time
import unittest

from gpu_job import GpuJobTest, origins

# What is launched on the side stream waits for ever; on the default stream it is answered.
TRAINS = """
import ctypes, torch
def hold(value): ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
side = torch.cuda.Stream()
for step in range(6):
    optimizer.zero_grad()
    with torch.cuda.stream(side): hold(torch.ones(4, device="cuda") * step)
    hidden = model[0](torch.ones(64, 8, device="cuda"))
    model[1](hidden).square().mean().backward()
    optimizer.step()
hold(model[1]((hidden.detach() - 100).sqrt()))
print("done")
"""
LEVELS = ("canary", "sampled", "full")


class Stuck(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        program = cls.program("trains", TRAINS)
        cls.bare = workplace.run_bare(program)
        cls.side = {level: workplace.run_watched(program, ("--level", level), NANWATCH_FAKE_STUCK="1", NANWATCH_FAKE_LAG="0") for level in LEVELS}
        cls.all, cls.seconds = {}, {}
        for stuck in ("", "0123"):
            began = time.monotonic()
            cls.all[stuck] = workplace.run_watched(program, NANWATCH_FAKE_STUCK=stuck)
            cls.all[stuck].status()
            cls.seconds[stuck] = time.monotonic() - began

    def test_a_job_with_a_stuck_stream_ends_as_without_us(self):
        for level, job in self.side.items():
            with self.subTest(level=level):
                self.assert_same(self.bare, job)

    def test_what_other_streams_have_answered_is_told_at_the_end(self):
        self.assertEqual([(o["op"], int(o["step"])) for o in origins(self.side["full"].verdict())], [("aten::sqrt", 6)])

    def test_a_gpu_that_never_answers_is_not_waited_for(self):
        self.assert_same(self.bare, self.all["0123"])
        self.assertLess(self.seconds["0123"], 3 * self.seconds[""] + 15)


if __name__ == "__main__":
    unittest.main(verbosity=2)
