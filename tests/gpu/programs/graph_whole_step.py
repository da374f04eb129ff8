# SPDX-License-Identifier: Apache-2.0
"""A whole step captured by torch.cuda.graph, the update with it; one replay meets a negative number."""
import torch
from logarithm import batch, network, warm_up

model, _ = network()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)
inputs = batch(0)
warm_up(model, optimizer, inputs)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    model(inputs).square().mean().backward()
    optimizer.step()
for step in range(10):
    inputs.copy_(batch(step))
    graph.replay()
torch.cuda.synchronize()
