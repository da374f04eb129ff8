# SPDX-License-Identifier: Apache-2.0
"""Forward and backward captured by torch.cuda.graph and replayed, the update eager; one replay meets a negative number."""
import torch
from logarithm import batch, network, warm_up

model, optimizer = network()
inputs = batch(0)
warm_up(model, optimizer, inputs)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    model(inputs).square().mean().backward()
for step in range(10):
    inputs.copy_(batch(step))
    graph.replay()
    optimizer.step()
torch.cuda.synchronize()
