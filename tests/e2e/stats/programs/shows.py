# SPDX-License-Identifier: Apache-2.0
"""shows.py NAME: trains a small model that shows one thing that only its parameters one by one can tell, and stays finite."""
import sys

import torch
from torch import nn
from torch.nn import functional

STEPS = 60


def batch():
    points = torch.randn(64, 8)
    return points, points.sin().sum(1, keepdim=True)


def train(model, optimizer, steps=STEPS, cast=lambda tensor: tensor, after=lambda step: None):
    for step in range(steps):
        points, targets = (cast(tensor) for tensor in batch())
        optimizer.zero_grad()
        loss = functional.mse_loss(model(points), targets)
        loss.backward()
        optimizer.step()
        after(step)
    print(loss.item())


def perceptron(activation=nn.ReLU, width=32):
    return nn.Sequential(nn.Linear(8, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, 1))


def nothing():
    """Momentum, a schedule, a layer that begins at zero, dropout."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 1))
    nn.init.zeros_(model[6].weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    train(model, optimizer, after=lambda step: schedule.step())


def epsilon():
    """Adam on float16 parameters with the eps that it has if none is given."""
    model = perceptron().half()
    train(model, torch.optim.Adam(model.parameters(), lr=1e-3), steps=3, cast=torch.Tensor.half)


def epsilon_fits():
    """The same with an eps that float16 can hold, and on bfloat16 with the usual one."""
    for kind, eps in ((torch.float16, 1e-4), (torch.bfloat16, 1e-8)):
        model = perceptron().to(kind)
        train(model, torch.optim.Adam(model.parameters(), lr=1e-3, eps=eps), steps=3, cast=lambda tensor: tensor.to(kind))


def dead():
    """One layer of three has its ReLUs switched off for good: its bias was pushed far below zero."""
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.alive, self.off, self.head = perceptron(), nn.Linear(8, 32), nn.Linear(32, 1)

        def forward(self, points):
            return self.alive(points) + self.head(self.off(points).relu())

    model = Branches()
    with torch.no_grad():
        model.off.bias.fill_(-100)
    train(model, torch.optim.SGD(model.parameters(), lr=0.01))


def too_large():
    """A learning rate of 0.5, that only normalised layers and a strong decay of the weights survive."""
    def normalised():
        return nn.Sequential(nn.LayerNorm(32, elementwise_affine=False), nn.GELU())

    model = perceptron(normalised)
    train(model, torch.optim.AdamW(model.parameters(), lr=0.5, weight_decay=0.3))


def vanishing():
    """Fourteen layers of sigmoids."""
    layers = [part for _ in range(14) for part in (nn.Linear(16, 16), nn.Sigmoid())]
    model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), *layers, nn.Linear(16, 1))
    train(model, torch.optim.SGD(model.parameters(), lr=0.01))


def forgotten():
    """A layer that forward does not call."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.forgotten = perceptron(), nn.Linear(8, 8)

        def forward(self, points):
            return self.used(points)

    model = Model()
    train(model, torch.optim.SGD(model.parameters(), lr=0.01))


def unusual():
    """Parameters that cannot be read: complex, in every second place of their memory, and one that is empty."""
    parts = [nn.Parameter(torch.randn(64, 64, dtype=torch.complex128)), nn.Parameter(torch.randn(64, 128)[:, ::2]),
             nn.Parameter(torch.empty(0)), nn.Parameter(torch.randn(3))]
    optimizer = torch.optim.SGD(parts, lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        sum(part.abs().square().sum() for part in parts).backward()
        optimizer.step()
    print(len(parts))


def many():
    """1,100 parameters, of which a snapshot has room for 1,023; and one that is too large to be read whole."""
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(549)], nn.Linear(4, 5000), nn.Linear(5000, 1))
    with torch.no_grad():
        for layer in model:
            layer.weight.fill_(0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    print(sum(1 for _ in model.parameters()))


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
