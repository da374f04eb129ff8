# SPDX-License-Identifier: Apache-2.0
"""A training whose learning rate halves every 100 steps, and which prints the rate of each step: scheduled_rate.py STEPS [tensor]"""
import json
import sys

import torch

torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
rate = torch.tensor(0.01) if "tensor" in sys.argv[2:] else 0.01
optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "lr": rate}, {"params": model[2].parameters(), "lr": 1e-4}])
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.5)
rates = []
for step in range(int(sys.argv[1])):
    x = torch.rand(32, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    rates.append(float(optimizer.param_groups[0]["lr"]))
    optimizer.step()
    scheduler.step()
print(json.dumps(rates))
