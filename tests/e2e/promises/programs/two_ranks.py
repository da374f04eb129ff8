# SPDX-License-Identifier: Apache-2.0
"""Starts itself twice as the two ranks of a job over gloo, and prints what each printed, rank by rank.

The starter does not import torch. With `nan` as argument, rank 1 makes a NaN in its second step.
"""
import os
import subprocess
import sys
import tempfile

STEPS = 3


def start_ranks():
    with tempfile.TemporaryDirectory() as folder:
        places = [dict(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MEETING=f"file://{folder}/meeting") for rank in (0, 1)]
        ranks = [subprocess.Popen([sys.executable, *sys.argv], env=os.environ | place, stdout=subprocess.PIPE, text=True)
                 for place in places]
        outputs = [rank.communicate()[0] for rank in ranks]
    print("".join(outputs), end="")
    sys.exit(max(rank.returncode for rank in ranks))


def be_rank():
    import torch
    import torch.distributed

    rank = int(os.environ["RANK"])
    torch.manual_seed(5)
    torch.distributed.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(),
                                                                          torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 6)).pow(2).mean()
        if "nan" in sys.argv[1:] and rank == 1 and step == 1:
            loss = loss * torch.log(torch.full((), -1.0))
        loss.backward()
        optimizer.step()
        print("rank", rank, float(loss.detach()).hex(), flush=True)
    torch.distributed.destroy_process_group()


be_rank() if "MEETING" in os.environ else start_ranks()
