# SPDX-License-Identifier: Apache-2.0
"""fsdp2.py [--fault]: for torchrun; fully_shard over gloo, each rank with its own part of the data.

With the fault, one rank's batch holds a sequence that is all padding, and its attention has no key to look at.
"""
import sys

import torch
import torch.distributed
from exactly import show
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH, STEPS, BAD_STEP, LENGTH, WIDTH = 4, 6, 3, 5, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, padding):
        query, key, value = self.project(x).chunk(3, dim=-1)
        scores = (query @ key.transpose(1, 2)).masked_fill(padding[:, None, :], float("-inf"))
        weights = scores.softmax(-1)  # here
        return self.out(weights @ value)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH))

    def forward(self, x, padding):
        x = self.norm(x + self.attention(x, padding))
        return x + self.feed(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, tokens, padding):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, padding)
        return self.head(x.mean(1))


def main():
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(5)
    model, mesh = Net(), init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(50 + rank)
    losses = []
    for step in range(STEPS):
        tokens, labels = torch.randint(20, (BATCH, LENGTH)), torch.randint(3, (BATCH,))
        padding = torch.arange(LENGTH).repeat(BATCH, 1) >= torch.randint(1, LENGTH, (BATCH, 1))
        if "--fault" in sys.argv and step == BAD_STEP and rank == ranks - 1:
            padding[2] = True
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens, padding), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    for turn in range(ranks):  # Showing gathers the whole weights, so all take part.
        torch.distributed.barrier()
        show(losses, model, f"rank {rank}") if turn == rank else show_nothing(model)
    torch.distributed.destroy_process_group()


def show_nothing(model):
    for value in model.state_dict().values():
        value.full_tensor()


main()
