# SPDX-License-Identifier: Apache-2.0
"""Ranks that train over gloo and pass each other values by hand: `ranks.py CASE COUNT [UNWATCHED]` starts itself COUNT times.

The starter does not import torch. In each case one rank makes a NaN of its own (the line ends with `# here`), and the others
get it by a collective. A rank's place comes from the environment, as from any launcher.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

STEPS = 4


def start_ranks(count, unwatched=None):
    with tempfile.TemporaryDirectory() as folder:
        places = [dict(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), OMP_NUM_THREADS="1",
                       MEETING=folder + "/meeting")
                  for rank in range(count)]
        if unwatched is not None:
            places[unwatched]["NANWATCH"] = "0"
        ranks = [subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env=os.environ | place) for place in places]
        sys.exit(max(rank.wait() for rank in ranks))


def spoil(values, at, rank, step):
    """Of good numbers, on one rank in one step, NaN."""
    if (rank, step) == at:
        return torch.log(-values.abs() - 1)  # here
    return values


def average(rank, count, model, optimizer):
    """Gradients are averaged by hand; rank 2 makes a bad loss in step 2."""
    for step in range(STEPS):
        optimizer.zero_grad()
        spoil(model(torch.randn(4, 6)), (2, 2), rank, step).pow(2).mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= count
        optimizer.step()


def overlap(rank, count, model, optimizer):
    """As average, but all reductions are under way at once, beside a hundred other ops; rank 2 makes a bad loss in step 2."""
    for step in range(STEPS):
        optimizer.zero_grad()
        spoil(model(torch.randn(4, 6)), (2, 2), rank, step).pow(2).mean().backward()
        works = [dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters()]
        other = torch.ones(4)
        for _ in range(100):
            other = other * 1.01
        for work in works:
            work.wait()
        for parameter in model.parameters():
            parameter.grad /= count
        optimizer.step()


def pipeline(rank, count, model, optimizer):
    """Each rank works on what the one before it has sent, and trains on a loss of its own.

    Rank 1 spoils what it sends in step 1."""
    for step in range(STEPS):
        x = torch.randn(4, 6)
        if rank > 0:
            dist.recv(x, rank - 1)
        optimizer.zero_grad()
        h = spoil(model(x), (1, 1), rank, step)
        h.pow(2).mean().backward()
        optimizer.step()
        if rank < count - 1:
            dist.send(h.detach(), rank + 1)


def gather(rank, count, model, optimizer):
    """A contrastive loss over the embeddings of all ranks; rank 3 spoils its own in step 1."""
    for step in range(STEPS):
        optimizer.zero_grad()
        own = spoil(model(torch.randn(4, 6)), (3, 1), rank, step)
        everyone = [torch.empty_like(own) for _ in range(count)]
        dist.all_gather(everyone, own.detach())
        (own @ torch.cat(everyone).t()).logsumexp(1).mean().backward()
        optimizer.step()


def broadcast(rank, count, model, optimizer):
    """Rank 0 has loaded weights with a NaN and gives them to all."""
    if rank == 0:
        # Written by nobody that is watched; on the fake GPU the memory is the host's, too.
        ctypes.cast(model[0].weight.data_ptr(), ctypes.POINTER(ctypes.c_float))[1 * 6 + 2] = float("nan")
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).pow(2).mean().backward()
        optimizer.step()


def parallel(rank, count, model, optimizer):
    """DistributedDataParallel; rank 1 makes a bad loss in step 2."""
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=bool(os.environ.get("AS_VIEW")))
    for step in range(STEPS):
        optimizer.zero_grad()
        spoil(model(torch.randn(4, 6)), (1, 2), rank, step).pow(2).mean().backward()
        optimizer.step()


def late(rank, count, model, optimizer):
    """Rank 1 makes its NaN in step 1, but only after rank 0 has made one of its own in step 2.

    The later step came first by the clock."""
    for step in range(STEPS):
        optimizer.zero_grad()
        out = model(torch.randn(4, 6))
        if (rank, step) == (1, 1):
            store.wait(["rank 0 is through"])
        out = spoil(out, (1, 1), rank, step)
        if (rank, step) == (0, 2):
            out = torch.sqrt(-out.abs() - 1)
        out.pow(2).mean().backward()
        optimizer.step()
    if rank == 0:
        store.set("rank 0 is through", "yes")
    dist.barrier()


def be_rank():
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ.get("BY_SPAWN"):  # as torch.multiprocessing.spawn gives a rank: by an argument alone
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
    globals()[sys.argv[1]](rank, count, model, torch.optim.SGD(model.parameters(), lr=0.1))
    dist.barrier()
    dist.destroy_process_group()


if "MEETING" in os.environ:
    import torch
    import torch.distributed as dist
    from torch import nn

    store = dist.FileStore(os.environ["MEETING"], int(os.environ["WORLD_SIZE"]))
    be_rank()
else:
    start_ranks(*map(int, sys.argv[2:]))
