# SPDX-License-Identifier: Apache-2.0
"""compiled_unseen.py WHAT: what a compiled region does and no call of a module shows.

`batch` is made bad by a compiled function whose inputs need no gradient, `buffer` and `statistics` are written by the kernels of
a compiled model, `update` is a compiled update by hand, `metric` is a number that only Python reads.
"""
import sys

import torch
from torch import nn

STEPS, BAD_STEP = 5, 2
WHAT = sys.argv[1]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)
        self.register_buffer("center", torch.zeros(3))

    def forward(self, x, count):
        z = self.norm(self.fc(x))
        with torch.no_grad():
            self.center.copy_(z.sum(0) * count / count)
        return (z - self.center).square().mean() if WHAT == "buffer" else z.square().mean()


@torch.compile
def prepared(x):
    return torch.log(x) * 2


@torch.compile
def updated(weight, gradient, count):
    with torch.no_grad():
        weight.sub_(0.01 * gradient * count / count)


@torch.compile
def score(p):
    return torch.log(p).mean()


torch.manual_seed(3)
model = Model()
trained = torch.compile(model) if WHAT in ("buffer", "statistics") else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(STEPS):
    bad = step == BAD_STEP
    x = torch.rand(8, 4) + 0.1
    if WHAT == "batch":
        x[2, 1] -= 2 * bad
        x = prepared(x)
    if WHAT == "statistics" and bad:
        x = x * 1e20
    loss = trained(x, torch.tensor(float(not bad or WHAT != "buffer")))
    optimizer.zero_grad()
    loss.backward()
    if WHAT == "update":
        for p in model.parameters():
            updated(p, p.grad, torch.tensor(float(not bad)))
    else:
        optimizer.step()
    if WHAT == "metric":
        with torch.no_grad():
            print(score(torch.rand(4) - 1.0 * bad).item())
