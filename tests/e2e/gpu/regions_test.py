# SPDX-License-Identifier: Apache-2.0
"""A compiled region on a GPU, whose kernels nobody announces, is judged at its edges as on the CPU.

The backend stands in for Triton, which needs a GPU: its kernels are torch's own, run with their announcements switched off.
"""
import unittest

from gpu_job import GpuJobTest, told

TRAINING = """
import ctypes, pathlib, sys, torch, torch.nn as nn, functorch.compile
from torch._dynamo.backends.common import aot_autograd
announce = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"))["_ZN2at20enableRecordFunctionEb"]
def unannounced(graph, _):
    def run(*args):
        announce(False)
        try:
            return graph.forward(*args)
        finally:
            announce(True)
    return functorch.compile.make_boxed_func(run)
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(8, 16), nn.Linear(16, 1)
    def forward(self, x, number):
        x = torch.relu(self.enter(x))
        return self.leave({middle})
model = Net().cuda()
compiled = torch.compile(model, backend=aot_autograd(fw_compiler=unannounced))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
for step in range(9):
    x, number = torch.randn(32, 8), torch.full((1,), {bad}. if step == 5 else 2.)
    if step == 5 and {spoil}: x[3, 4] = float("nan")
    loss = (compiled(x.cuda(), number.cuda()) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FAULTS = {"forward": {"middle": "x / number", "bad": 0, "spoil": False},
          "backward": {"middle": "x + (x * (number - 2)).square().sum(-1, keepdim=True).sqrt() * 0 + x * (2 - number)",
                       "bad": 2, "spoil": False},
          "batch": {"middle": "x * number", "bad": 2, "spoil": True}}


class Regions(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {}
        for name, fault in FAULTS.items():
            text = TRAINING.format(**fault)
            cls.jobs[name] = (workplace.run_watched(workplace.program(f"cpu_{name}", text.replace(".cuda()", ""))),
                              workplace.run_watched(cls.program(name, text)))

    def test_every_fault_is_what_it_is_on_the_cpu(self):
        for name, (cpu, gpu) in self.jobs.items():
            with self.subTest(name):
                self.assertEqual(gpu.verdict()["verdict"], "anomaly")
                self.assertEqual(told(gpu.verdict()), told(cpu.verdict()))

    def test_a_fault_inside_is_the_region_s(self):
        self.assert_origin(self.jobs["forward"][1].verdict(), op="Torch-Compiled Region: 0/0", phase="forward", step=5,
                           **{"class": "produce"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
