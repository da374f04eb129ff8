# SPDX-License-Identifier: Apache-2.0
"""Two hundred replays of a captured step, and a graph with a fault in it that is captured and never replayed."""
import torch
from logarithm import batch, network

model, optimizer = network()
inputs, negative = batch(0), -batch(0)


def train(x):
    model(x).square().mean().backward()


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        train(inputs)
torch.cuda.current_stream().wait_stream(side)

graphs = []
for x in (negative, inputs):
    optimizer.zero_grad(set_to_none=True)
    graphs.append(torch.cuda.CUDAGraph())
    with torch.cuda.graph(graphs[-1]):
        train(x)
for step in range(200):
    inputs.copy_(batch(0))
    graphs[1].replay()
    optimizer.step()
torch.cuda.synchronize()
