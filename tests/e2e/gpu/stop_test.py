# SPDX-License-Identifier: Apache-2.0
"""--on-anomaly stop on a GPU: the step waits for what the GPU says of its gradients, and a bad one is not applied."""
import unittest

from gpu_job import LAGS, GpuJobTest
from stopping import BAD_UPDATE, PLAIN, SCALED, UNCAUGHT, Stops

# A GPU goes on whatever the host does. Here that takes the GIL, which the waiting thread must have let go.
ON_GPU = """
import ctypes, threading
device, driver, never = "cuda", ctypes.CDLL("libcuda.so.1"), threading.Event()

def go_on():
    while not never.wait(0.002):
        driver.fake_cuda_run_all()

threading.Thread(target=go_on, daemon=True).start()
"""
CAPTURED = ON_GPU + """
import torch
torch.manual_seed(3)
layer = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
x = torch.randn(4, 8, device=device)

def step():
    optimizer.zero_grad(set_to_none=False)
    layer(x).square().mean().backward()
    optimizer.step()

stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        step()
    torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    step()
for _ in range(3):
    graph.replay()
torch.cuda.synchronize()
print("done")
"""


# What an autograd thread has launched on the default stream nobody asks for, while the step runs on another.
SIDE_STREAM = ON_GPU + """
import time, torch
torch.manual_seed(3)
layer = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
stream, longest = torch.cuda.Stream(), 0
for i in range(4):
    optimizer.zero_grad()
    loss = layer(torch.randn(4, 8, device=device)).square().mean()
    with torch.cuda.stream(stream):
        loss.backward()
        begin = time.monotonic()
        optimizer.step()
        longest = max(longest, time.monotonic() - begin)
print("in time" if longest < 1 else longest)
"""
TWO_DEVICES = ON_GPU + """
import time, torch
torch.manual_seed(3)
first, second = torch.nn.Linear(8, 8).to("cuda:0"), torch.nn.Linear(8, 8).to("cuda:1")
optimizers = [torch.optim.SGD(layer.parameters(), lr=1e-3) for layer in (first, second)]
longest = 0
for i in range(4):
    for optimizer in optimizers:
        optimizer.zero_grad()
    (first(torch.randn(4, 8).to("cuda:0")) + second(torch.randn(4, 8).to("cuda:1")).to("cuda:0")).square().mean().backward()
    begin = time.monotonic()
    for optimizer in optimizers:
        optimizer.step()
    longest = max(longest, time.monotonic() - begin)
print("in time" if longest < 1 else longest)
"""
# The first tensors of a GPU that anybody asks for are the first step's gradients.
AT_ONCE = PLAIN.replace("i == 5", "i == 0")


def on_gpu(text):
    return text.replace('device = "cpu"\n', ON_GPU, 1)


class Stop(Stops, GpuJobTest):
    UPDATE_LEVELS = ("full", "sampled", "canary")
    SCALED_OPTIONS = (("--level", "full"), ("--level", "canary"), ("--budget", "1"))

    @classmethod
    def start(cls, workplace):
        programs = {"plain": on_gpu(PLAIN), "uncaught": on_gpu(UNCAUGHT), "scaled": on_gpu(SCALED), "captured": CAPTURED,
                    "update": on_gpu(BAD_UPDATE), "side": SIDE_STREAM, "devices": TWO_DEVICES, "at_once": on_gpu(AT_ONCE)}
        cls.commands = {name: cls.program(name, text) for name, text in programs.items()}

    def test_the_update_is_not_applied_however_late_the_gpu_is(self):
        for lag in LAGS:
            with self.subTest(lag=lag):
                job = self.run_stopping("plain", "--level", "full", NANWATCH_FAKE_LAG=lag)
                self.assertEqual(job.status(), 0, job.stderr())
                first, message, last = job.stdout().splitlines()
                self.assertEqual(first, "5 nanwatch NonFiniteGradient True", job.stderr())
                self.assertIn("4 of 4 gradients at step 5, first in inner.weight", message)
                self.assertIn("began with aten::log in layer gate", message)
                self.assertEqual(last, "went on")
                self.assertNotIn("parameter", job.verdict()["incidents"][0]["reach"])

    def test_at_other_levels_too(self):
        for level in ("sampled", "canary", "idle"):
            with self.subTest(level):
                job = self.run_stopping("plain", "--level", level)
                self.assertEqual(job.status(), 0, job.stderr())
                first, message, _ = job.stdout().splitlines()
                self.assertEqual(first, "5 nanwatch NonFiniteGradient True", job.stderr())
                self.assertIn("first in inner.weight", message)

    def test_the_first_step_is_stopped_though_the_gpu_is_only_then_set_up(self):
        for level in ("full", "canary", "idle"):
            with self.subTest(level):
                job = self.run_stopping("at_once", "--level", level)
                self.assertEqual(job.status(), 0, job.stderr())
                self.assertEqual(job.stdout().splitlines()[0], "0 nanwatch NonFiniteGradient True", job.stderr())

    def test_what_was_launched_elsewhere_is_not_waited_for_in_vain(self):
        for name, devices in (("side", "1"), ("devices", "2")):
            for level in ("full", "sampled"):
                with self.subTest(name, level=level):
                    job = self.run_stopping(name, "--level", level, NANWATCH_FAKE_DEVICES=devices)
                    self.assertEqual((job.status(), job.stdout()), (0, "in time\n"), job.stderr())

    def test_what_is_captured_is_not_waited_for(self):
        job = self.run_stopping("captured")
        self.assertEqual((job.status(), job.stdout()), (0, "done\n"), job.stderr())

    def test_without_the_option_nothing_is_interfered_with(self):
        job = self.workplace.run_watched(self.commands["uncaught"])
        self.assertEqual(job.status(), 0, job.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=2)
