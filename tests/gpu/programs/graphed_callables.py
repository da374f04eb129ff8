# SPDX-License-Identifier: Apache-2.0
"""A module made a graph by torch.cuda.make_graphed_callables; one replay meets a negative number."""
import torch
from logarithm import batch, network

model, optimizer = network()
graphed = torch.cuda.make_graphed_callables(model, (batch(0),))
for step in range(10):
    optimizer.zero_grad(set_to_none=True)
    graphed(batch(step)).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
