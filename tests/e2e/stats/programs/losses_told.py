# SPDX-License-Identifier: Apache-2.0
"""A training that computes its losses in the way asked for, and prints what they were beside what `nanwatch top` shows: losses_told.py WAY"""
import json
import os
import subprocess
import sys

import torch
from torch.utils.checkpoint import checkpoint

STEPS = 8
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)


def loss_of_batch():
    return model(torch.randn(8, 4)).square().mean()


class Scalar(torch.nn.Module):
    """Returns a number that is not the loss."""
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (x * self.weight).mean()


def another_scalar_is_dropped():
    features = model(torch.randn(8, 4)).square()
    other = scalar(torch.randn(8, 4))
    del other
    loss = features.mean()
    loss.backward()
    return loss


def two_are_scaled_and_then_begun_at():
    first, second = loss_of_batch(), loss_of_batch()
    for scaled in [scaler.scale(first), scaler.scale(second)]:
        scaled.backward()
    return second


def begun_at_twice():
    loss = loss_of_batch()
    scaled = scaler.scale(loss)
    scaled.backward(retain_graph=True)
    scaled.backward()
    return loss


def looked_at_before():
    loss = loss_of_batch()
    scaled = scaler.scale(loss)
    torch.autograd.grad(scaled, model.weight, retain_graph=True)
    scaled.backward()
    return loss


def several_at_once():
    sum(scaler.scale([loss_of_batch(), loss_of_batch()])).backward()


def scaled_by_another_class():
    loss = loss_of_batch()
    sharded.scale(loss).backward()
    return loss


def a_part_is_computed_again():
    loss = checkpoint(scalar, model(torch.randn(4, 4)).flatten(), use_reentrant=True) + 100
    loss.backward()
    return loss


way = sys.argv[1]
scalar = Scalar()
if way == "scaled_by_another_class":
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    sharded = ShardedGradScaler(device="cpu", init_scale=256.0)
losses = []
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = globals()[way]()
    losses.append(None if loss is None else loss.item())
    optimizer.step()
shown = subprocess.run([os.environ["NANWATCH_TOOL"], "top", "--once", "--json"], capture_output=True, text=True, check=True)
told, = [run["losses"] for run in json.loads(shown.stdout)["runs"] if run["pid"] == os.getpid()]
print(json.dumps({"losses": losses, "told": told}))
