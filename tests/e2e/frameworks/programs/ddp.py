# SPDX-License-Identifier: Apache-2.0
"""ddp.py [--fault]: for torchrun; DistributedDataParallel over gloo, each rank with its own part of the data.

With the fault, the last rank meets two equal points, and the direction between them is 0/0.
"""
import sys

import torch
import torch.distributed
from exactly import show
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH, BATCHES, BAD_BATCH = 4, 6, 3


class Direction(nn.Module):
    def forward(self, points):
        between = points[:, :4] - points[:, 4:]
        return between / between.norm(dim=1, keepdim=True)  # here


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(Direction(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, points):
        return self.head(self.encoder(points))


def data(ranks):
    """In the order in which DistributedSampler deals samples out, in turn to each rank."""
    points, labels = torch.randn(BATCH * BATCHES * ranks, 8), torch.randint(3, (BATCH * BATCHES * ranks,))
    if "--fault" in sys.argv:
        bad = (BATCH * BAD_BATCH + 1) * ranks + ranks - 1
        points[bad, 4:] = points[bad, :4]
    return TensorDataset(points, labels)


def main():
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(5)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    samples = data(ranks)
    losses = []
    for points, labels in DataLoader(samples, BATCH, sampler=DistributedSampler(samples, shuffle=False)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    for turn in range(ranks):
        torch.distributed.barrier()
        if turn == rank:
            show(losses, model, f"rank {rank}")
    torch.distributed.destroy_process_group()


main()
