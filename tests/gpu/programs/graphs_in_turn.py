# SPDX-License-Identifier: Apache-2.0
"""Two graphs replayed in turn: one trains, the other one's third replay meets a negative number. Nothing reads its results."""
import torch
from logarithm import FAULT_AT, batch, network

model, optimizer = network()
inputs = batch(0)
seen = torch.zeros((), device=inputs.device)


def train():
    model(inputs).square().mean().backward()


def evaluate():
    with torch.no_grad():
        seen.copy_(model(inputs).square().mean())


def captured(function):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


training, evaluation = captured(train), captured(evaluate)
for step in range(40):
    inputs.copy_(batch(0))
    training.replay()
    optimizer.step()
    if step in (2, 4, FAULT_AT - 1, 30):
        inputs.copy_(batch(FAULT_AT if step == FAULT_AT - 1 else 0))
        evaluation.replay()
torch.cuda.synchronize()
