# SPDX-License-Identifier: Apache-2.0
"""torch.compile(mode="reduce-overhead"), whose kernels are graphs too; one replay meets a negative number."""
import torch
from logarithm import batch, network

model, optimizer = network()
fast = torch.compile(model, mode="reduce-overhead")
for step in range(10):
    optimizer.zero_grad(set_to_none=True)
    torch.compiler.cudagraph_mark_step_begin()
    fast(batch(step)).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
