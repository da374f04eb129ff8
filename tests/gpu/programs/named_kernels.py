# SPDX-License-Identifier: Apache-2.0
"""The logarithm of negative numbers once kernels have been traced for a while; then a profiled step, and what the profiler saw of it."""
import time

import torch

from logarithm import batch, network

model, optimizer = network()
healthy = batch(0)


def step():
    optimizer.zero_grad()
    model(healthy).square().mean().backward()
    optimizer.step()


begin = time.monotonic()
while time.monotonic() - begin < 3:
    step()
torch.cuda.synchronize()
bad = torch.log(-healthy)
torch.cuda.synchronize()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profiler:
    step()
    torch.cuda.synchronize()
model.inp.weight.data.add_(bad.sum())
torch.cuda.synchronize()
on_gpu = [event.name for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
print(sum(not name.startswith("nanwatch_") for name in on_gpu))
