# SPDX-License-Identifier: Apache-2.0
"""Is a healthy rank ever called the origin? DistributedDataParallel jobs over gloo, beside processes that do nothing but compute.

    parallel_soak.py [--runs 200] [--busy 2] [--seconds N]

Each job has two or three ranks; in one step one of them makes a NaN of its own. Right is one anomaly, at that rank, op, step and
layer, and nothing else. Prints each wrong job and the count; the exit status is 1 when one was wrong.
"""
import argparse
import collections
import os
import signal
import sys
import time

import torch
from torch import nn

import forked_ranks

STEPS = 5


class Spoil(nn.Module):
    def __init__(self):
        super().__init__()
        self.spoils = False

    def forward(self, x):
        return torch.log(-x.abs() - 1) if self.spoils else x


def train(bad_rank, bad_step, as_view, broadcasts):
    def work(rank, count):
        model = nn.Sequential()
        for name, module in (("body", nn.Linear(6, 16)), ("norm", nn.BatchNorm1d(16) if broadcasts else nn.Tanh()),
                             ("spoil", Spoil()), ("head", nn.Linear(16, 3))):
            model.add_module(name, module)
        parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=as_view)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(STEPS):
            model.spoil.spoils = (rank, step) == (bad_rank, bad_step)
            optimizer.zero_grad()
            parallel(torch.randn(8, 6)).square().mean().backward()
            optimizer.step()
    return work


def answer(statuses, verdict, count, bad_rank, bad_step):
    """"right", or what is wrong."""
    if any(statuses):
        return f"statuses {statuses}"
    if verdict is None:
        return "no verdict"
    if sorted(run["rank"] for run in verdict["runs"]) != list(range(count)):
        return f"runs of ranks {sorted(run['rank'] for run in verdict['runs'])}"
    found = [(i["origin"]["rank"], int(i["origin"]["step"]), i["origin"]["op"], i["origin"]["layer"], i["origin"]["class"])
             for i in forked_ranks.anomalies(verdict)]
    right = [(bad_rank, bad_step, "aten::log", "spoil", "produce")]
    return "right" if found == right else f"{found} is not {right}"


def start_busy():
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            pass
    return pid


def soak(environment):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--busy", type=int, default=2, help="processes that compute beside the jobs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="starts no job after that")
    arguments = parser.parse_args()
    busy = [start_busy() for _ in range(arguments.busy)]
    answers = collections.Counter()
    began = time.monotonic()
    try:
        for run in range(arguments.runs):
            if time.monotonic() - began > arguments.seconds:
                break
            count = 2 + run % 2
            bad_rank, bad_step = run % count, 1 + run % 3
            work = train(bad_rank, bad_step, as_view=run % 4 < 2, broadcasts=run % 3 == 0)
            statuses, verdict = forked_ranks.run_job(work, count, f"soak-{os.getpid()}-{run}", environment)
            said = answer(statuses, verdict, count, bad_rank, bad_step)
            answers["right" if said == "right" else "wrong"] += 1
            if said != "right":
                print(f"run {run}, {count} ranks: {said}", flush=True)
    finally:
        for pid in busy:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
    print(f"{sum(answers.values())} jobs, {answers['right']} right, {answers['wrong']} wrong, {arguments.busy} busy processes beside them, "
          f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if answers["wrong"] else 0)


forked_ranks.main(soak)
