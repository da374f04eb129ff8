# SPDX-License-Identifier: Apache-2.0
"""The training that programs of several promises begin with: six batches, of which they do something in the fourth."""
TRAIN = """
import numpy as np
import os
import torch
torch.manual_seed(0)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x, scale=None):
        return inside(self.fc(x), scale)

def inside(y, scale):
    return y

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

def step(x, scale=None):
    optimizer.zero_grad()
    loss = net(x, scale).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()

data = [torch.randn(5, 4) for _ in range(6)]
"""
