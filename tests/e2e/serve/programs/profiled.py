# SPDX-License-Identifier: Apache-2.0
"""A training under torch.profiler, which marks each of its steps. The last one goes bad: profiled.py TRACE"""
import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    for step in range(12):
        with record_function(f"mine {step}"):
            loss = model(torch.rand(256, 512)).square().mean()
            if step == 11:
                loss = torch.log(-loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
profiler.export_chrome_trace(sys.argv[1])
