# SPDX-License-Identifier: Apache-2.0
"""Two ranks train together (gloo, DistributedDataParallel) while nanwatch measures what it costs; once steps were unchecked twice and
are checked again, rank 1 makes a NaN. Each prints to stderr how many steps it has seen unchecked, and their numbers added up.
The starter, which is called without arguments, does not import torch.
"""
import os
import subprocess
import sys
import tempfile


def start_ranks():
    with tempfile.TemporaryDirectory() as folder:
        places = [dict(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MEETING=f"file://{folder}/meeting") for rank in (0, 1)]
        ranks = [subprocess.Popen([sys.executable, *sys.argv], env=os.environ | place) for place in places]
        sys.exit(max(rank.wait() for rank in ranks))


def be_rank():
    import torch
    import torch.distributed

    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)
    from watched_ops import asker

    are_unchecked = asker()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    off, blocks, was_off, fault = [], 0, False, None
    for step in range(20_000):
        is_off = are_unchecked() and (fault is None or step <= fault)  # later nothing is watched, because parameters are bad
        blocks += was_off and not is_off
        was_off = is_off
        if is_off:
            off.append(step)
        optimizer.zero_grad()
        inputs = torch.randn(8, 16)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs[:, :4])
        if blocks == 2 and not is_off:
            if fault is None:
                fault = step + 5
            if step == fault and rank == 1:
                loss = loss + torch.log(loss.detach() * 0 - 1)
            if step == fault + 4:
                break
        loss.backward()
        optimizer.step()
    print(f"rank {rank}: {len(off)} unchecked, {sum(off)}, fault at {fault}", file=sys.stderr)
    torch.distributed.destroy_process_group()


be_rank() if "MEETING" in os.environ else start_ranks()
