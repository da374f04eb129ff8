# SPDX-License-Identifier: Apache-2.0
"""fleet_rank.py [--zero-in-rank R]: a rank of a training over gloo, for torchrun.

With the option, rank R takes the logarithm of a zero in step 4. Averaged gradients carry what comes of it to all others.
"""
import argparse
import os

import torch
import torch.distributed as dist


def train(zero_in_rank):
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for step in range(8):
        optimizer.zero_grad()
        prediction = model(torch.rand(4, 8, generator=generator))
        weight = torch.ones(4, 1)
        if rank == zero_in_rank and step == 4:
            weight[0] = 0
        (prediction.square() * weight * torch.log(weight)).mean().add(prediction.mean()).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero-in-rank", type=int, metavar="R")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    train(arguments.zero_in_rank)
    dist.destroy_process_group()
    # torch aborts where a thread of gloo's drops the last reference to a gradient while Python is ending.
    os._exit(0)


if __name__ == "__main__":
    main()
