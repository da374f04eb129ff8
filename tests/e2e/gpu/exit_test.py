# SPDX-License-Identifier: Apache-2.0
"""What a program does last is told, although the driver ends with the process; and its end is as without us."""
import time
import unittest

from gpu_job import GpuJobTest, origins

# Nothing waits for the GPU at the end.
LAST_LINE = """
import ctypes, sys, torch
def hold(value): ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    optimizer.zero_grad()
    hidden = model[0](torch.ones(64, 8, device="cuda"))
    model[1](hidden).square().mean().backward()
    optimizer.step()
{last}
"""
SPOILED = {
    "by_return": "hold(model[1]((hidden.detach() - 100).sqrt()))",
    "by_exit": "hold(model[1]((hidden.detach() - 100).sqrt())); sys.exit(7)",
    "by_exception": "hold(model[1]((hidden.detach() - 100).sqrt())); raise ValueError('the end')",
    # No exit handler runs behind it. The device goes on meanwhile, as one of hardware does.
    "by_os_exit": "import os; hold(model[1]((hidden.detach() - 100).sqrt())); ctypes.CDLL(None).fake_torch_cuda_end(); os._exit(9)",
}
# A child that ends by exit handlers has none of its parent's GPU.
FORK = """
import os, sys, torch
x = torch.ones(64, 64, device="cuda")
y = x @ x
if os.fork() == 0:
    sys.exit(0)
print(os.wait()[1])
z = (y - 1e9).log()
"""
LEVELS = ("full", "sampled")
MEMORY = ("0", "1")


class Exit(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.spoiled, cls.healthy, cls.bare = {}, {}, {}
        for name, last in SPOILED.items():
            program = cls.program(f"spoiled_{name}", LAST_LINE.format(last=last))
            cls.bare[name] = workplace.run_bare(program)
            for level in LEVELS:
                for memory in MEMORY if name == "by_return" else ("0",):
                    cls.spoiled[name, level, memory] = workplace.run_watched(
                        program, ("--level", level), NANWATCH_FAKE_NO_REGISTRATION=memory, **({"NANWATCH_FAKE_END_US": "200"} if name == "by_os_exit" else {}))
        program = cls.program("healthy", LAST_LINE.format(last="hold(model(torch.ones(64, 8, device='cuda'))); print('ends')"))
        cls.bare["healthy"] = workplace.run_bare(program)
        for number, (level, memory) in enumerate((level, memory) for level in LEVELS for memory in MEMORY):
            cls.healthy[level, memory] = workplace.run_preloaded(
                program, NANWATCH_LEVEL=level, NANWATCH_FAKE_NO_REGISTRATION=memory, NANWATCH_JOB=f"healthy{number}")
        # A loop that is seconds ahead of its GPU, as one without .item() is.
        program = cls.program("far_ahead", LAST_LINE.format(last=SPOILED["by_return"]))
        cls.behind, cls.seconds = {}, {}
        for us in ("2000", "100000"):
            cls.behind[us] = workplace.run_watched(program, NANWATCH_FAKE_LAG="100000", NANWATCH_FAKE_END_US=us)
            began = time.monotonic()
            cls.behind[us].status()
            cls.seconds[us] = time.monotonic() - began
        fork = cls.program("fork", FORK)
        cls.bare["fork"] = workplace.run_bare(fork)
        cls.fork = workplace.run_watched(fork)

    def test_what_the_last_line_has_made_is_told(self):
        for (name, level, memory), job in self.spoiled.items():
            with self.subTest(name, level=level, memory=memory):
                self.assertEqual((job.status(), job.stdout()), (self.bare[name].status(), self.bare[name].stdout()))
                verdict = job.verdict()
                self.assertEqual([(o["op"], o["class"], int(o["step"])) for o in origins(verdict)], [("aten::sqrt", "produce", 6)])
                self.assertEqual(int(verdict["coverage"]["unchecked"].get("gpu_busy", 0)), 0)

    def test_a_gpu_that_is_behind_is_waited_for_while_it_answers(self):
        self.assertEqual([o["op"] for o in origins(self.behind["2000"].verdict())], ["aten::sqrt"])
        self.assertEqual([job.status() for job in self.behind.values()], [0, 0])
        self.assertLess(self.seconds["100000"], self.seconds["2000"] + 15, "one that takes longer is not")

    def test_a_healthy_job_ends_without_a_word(self):
        for (level, memory), job in self.healthy.items():
            with self.subTest(level=level, memory=memory):
                self.assert_same(self.bare["healthy"], job)
                self.assertEqual(job.stderr(), self.bare["healthy"].stderr())

    def test_a_forked_child_leaves_its_parent_s_gpu_alone(self):
        self.assertEqual((self.fork.status(), self.fork.stdout()), (0, "0\n"), self.fork.stderr())
        self.assertEqual([o["op"] for o in origins(self.fork.verdict())], ["aten::log"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
