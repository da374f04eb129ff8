# SPDX-License-Identifier: Apache-2.0
"""accelerate_loop.py [--fault log|data]: a loop of the user's around Accelerate, in bfloat16 autocast.

Gradients are accumulated over two batches and clipped, the schedule steps with the optimizer, and the state is saved and loaded
in the middle. `--fault log` takes the logarithm of a gate that is closed; `--fault data` has a NaN in a batch.
"""
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from exactly import show
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, BATCHES, BAD_BATCH = 4, 12, 6


class LogGate(nn.Module):
    def forward(self, x):
        return torch.log(torch.relu(x))  # here


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Softplus(), LogGate(), nn.Dropout(0.1))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(self.embed(x)))


def batches():
    inputs, labels = torch.randn(BATCH * BATCHES, 6), torch.randint(3, (BATCH * BATCHES,))
    if "data" in sys.argv:
        inputs[BATCH * BAD_BATCH + 2, 3] = float("nan")
    if "log" in sys.argv:
        inputs[BATCH * BAD_BATCH + 2] = 3e4  # Softplus of a large negative number is zero.
    return DataLoader(TensorDataset(inputs, labels), BATCH)


def main():
    set_seed(7)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, batches(), schedule)
    losses = []
    for number, (inputs, labels) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
        if number == 3:
            accelerator.save_state("state")
            accelerator.load_state("state")
    show(losses, accelerator.unwrap_model(model))


main()
