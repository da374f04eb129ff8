# SPDX-License-Identifier: Apache-2.0
"""fleet_rank.py STORE: one rank of a job of several hosts (RANK, WORLD_SIZE); the ranks meet at the file STORE.

Rank 3 takes the logarithm of a zero in step 4. Averaged gradients carry what comes of it to all others.
"""
import os
import sys

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def main():
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=SIZE)
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(RANK)
    for step in range(8):
        optimizer.zero_grad()
        prediction = model(torch.rand(4, 8, generator=generator))
        weight = torch.ones(4, 1)
        if RANK == 3 and step == 4:
            weight[0] = 0
        (prediction.square() * weight * torch.log(weight)).mean().add(prediction.mean()).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= SIZE
        optimizer.step()
    dist.destroy_process_group()
    # torch aborts where a thread of gloo's drops the last reference to a gradient while Python is ending.
    os._exit(0)


if __name__ == "__main__":
    main()
