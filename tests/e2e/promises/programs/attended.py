# SPDX-License-Identifier: Apache-2.0
"""attended.py [--nan]: trains; after a while it goes on only once somebody has put a file `go` beside it.

While it waits it calls a module, at which a process looks what it is asked for, and prints nothing. Then it takes as many steps again. With
--nan the logarithm of a negative number is in the third of them, in layer `gate`. Prints the losses exactly.
"""
import os
import pathlib
import sys
import time

import torch
from torch import nn

STEPS_BEFORE, STEPS_AFTER, BAD = 12, 12, 3


class Gate(nn.Module):
    def forward(self, x, offset):
        return x + torch.log(x.detach().square().sum() + offset)  # bad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.gate, self.head = nn.Linear(8, 16), Gate(), nn.Linear(16, 4)

    def forward(self, x, offset):
        return self.head(self.gate(torch.relu(self.inner(x)), offset))


def main():
    torch.manual_seed(5)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    waiting = nn.Identity()

    def step(offset):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(torch.randn(6, 8), offset), torch.zeros(6, 4))
        loss.backward()
        optimizer.step()
        print(loss.item().hex())

    for _ in range(STEPS_BEFORE):
        step(1.0)
    pathlib.Path("ready").touch()
    while not os.path.exists("go"):
        waiting(1)
        time.sleep(0.002)
    for i in range(STEPS_AFTER):
        step(-1e6 if "--nan" in sys.argv and i == BAD else 1.0)


main()
