# SPDX-License-Identifier: Apache-2.0
"""A training whose checks are switched off for some steps, so that their cost can be measured; in the third such step a fault happens.

  measured_training.py FAULT [STEPS]     FAULT: none, parameter, state, buffer, validation, killed, exit, raises, ends, work_after, forks,
                                         extremes (a buffer that holds Inf from the start)

With a fault it ends when that has been followed by a few more steps, else after STEPS steps: where the last of them is unchecked, which
depends on the speed of the machine, it goes on until one is checked. Prints the loss of each of the STEPS steps.
"""
import itertools
import os
import signal
import sys

import torch

from watched_ops import asker

fault, steps = sys.argv[1], int((sys.argv[2:] or [40_000])[0])
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
if fault == "extremes":
    model.register_buffer("smallest", torch.full((4,), float("inf")))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
are_unchecked = asker()
off_steps = 0
left = None
for step in itertools.count():
    if step >= steps and not are_unchecked():
        break
    optimizer.zero_grad()
    inputs = torch.randn(8, 16)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs[:, :4])
    loss.backward()
    off_steps += are_unchecked()
    if off_steps == 3 and left is None and fault not in ("none", "extremes"):
        left = 40
        print("step of the fault", step, file=sys.stderr)
        if fault == "parameter":
            model[0].weight.grad.add_(torch.log(loss.detach() * 0 - 1))
        elif fault == "state":
            optimizer.state[model[0].weight]["exp_avg_sq"][0, 0] = float("inf")
        elif fault == "buffer":
            model[1].running_mean[0] = float("nan")
        elif fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "exit":
            os._exit(0)
        elif fault == "raises":
            raise ValueError("a bad value")
        elif fault in ("ends", "work_after"):
            break
        elif fault == "forks":
            child = os.fork()
            if child == 0:
                print(torch.log(loss.detach() * 0 - 1).item(), file=sys.stderr)
                os._exit(0)
            os.waitpid(child, 0)
    optimizer.step()
    if left == 40 and fault == "validation":
        with torch.no_grad():
            print(torch.log(-model(inputs).square()).mean().item(), file=sys.stderr)
    if step < steps:
        print(loss.item().hex())
    if left is not None:
        left -= 1
        if left == 0:
            break
if fault == "work_after":
    print(torch.log(-torch.ones(4)).mean().item(), file=sys.stderr)
