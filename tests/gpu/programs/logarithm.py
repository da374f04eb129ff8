# SPDX-License-Identifier: Apache-2.0
"""A small network with a logarithm, and batches of which one has a number that it cannot take."""
import torch
from torch import nn

FAULT_AT = 7  # step
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Gate(nn.Module):
    def forward(self, x):
        return torch.log(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.inp, self.out = Gate(), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.inp(self.gate(x))))


def batch(step):
    x = torch.rand(16, 8, device=DEVICE) + 0.5
    if step == FAULT_AT:
        x[3, 2] = -1.0
    return x


def warm_up(model, optimizer, inputs):
    """Three passes on another stream, as torch.cuda.graph asks for before a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(inputs).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)


def network():
    torch.manual_seed(0)
    model = Net().to(DEVICE)
    return model, torch.optim.SGD(model.parameters(), lr=1e-2)
