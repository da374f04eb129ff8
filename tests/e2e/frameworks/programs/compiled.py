# SPDX-License-Identifier: Apache-2.0
"""compiled.py WHAT [--fault inside|before|data|backward]: a model with torch.compile.

WHAT is compiled: `model` by torch.compile, `eager` the same with the backend that leaves the ops as they are, `layer` one
layer by torch.compile, `method` that layer by its own compile(), `step` the function that computes the loss.
`--fault inside` is a logarithm of zero in the compiled layer, `before` a division by zero in the layer before it, `data` a NaN in
the batch, `backward` the slope of a root at zero.
"""
import sys

import torch
from exactly import show
from torch import nn

STEPS, BAD_STEP = 6, 4
WHAT, FAULT = sys.argv[1], sys.argv[-1]


class Shares(nn.Module):
    def forward(self, counts):
        return counts / counts.sum(1, keepdim=True)  # before


class Gate(nn.Module):
    def forward(self, x):
        if FAULT == "backward":
            return torch.tanh(x) + torch.sqrt(x.square() * (x.abs() < 50))
        return torch.tanh(x) * torch.log(torch.relu(x + 20) + (FAULT != "inside"))  # inside


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shares, self.inner, self.gate, self.head = Shares(), nn.Linear(6, 8), Gate(), nn.Linear(8, 3)

    def forward(self, counts):
        return self.head(self.gate(self.inner(self.shares(counts))))


def main():
    torch.manual_seed(8)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trained = model
    if WHAT == "model":
        trained = torch.compile(model)
    elif WHAT == "eager":
        trained = torch.compile(model, backend="eager")
    elif WHAT == "layer":
        model.gate = torch.compile(model.gate)
    elif WHAT == "method":
        model.gate.compile()

    def loss_of(counts, labels):
        return nn.functional.cross_entropy(trained(counts), labels)

    if WHAT == "step":
        loss_of = torch.compile(loss_of)
    losses = []
    for step in range(STEPS):
        counts, labels = torch.randint(1, 9, (4, 6)).float(), torch.randint(3, (4,))
        if step == BAD_STEP and FAULT == "before":
            counts[2] = 0
        if step == BAD_STEP and FAULT == "data":
            counts[2, 1] = float("nan")
        if step == BAD_STEP and FAULT in ("inside", "backward"):
            counts[2, 0] = 1e-3 - counts[2, 1:].sum()  # Shares are huge then, and some gates closed.
        optimizer.zero_grad()
        loss = loss_of(counts, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    show(losses, model)


main()
