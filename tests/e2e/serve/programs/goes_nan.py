# SPDX-License-Identifier: Apache-2.0
"""A small training that goes NaN at step 5 and, given a path, waits for that file before it ends."""
import pathlib
import sys
import time

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    x = torch.rand(16, 4)
    y = model(x)
    loss = (torch.log(y - 1e6) if step == 5 else y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("trained", flush=True)
if len(sys.argv) > 1:
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.01)
