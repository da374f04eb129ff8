# SPDX-License-Identifier: Apache-2.0
"""A training of many steps with peaks of one step, under a GradScaler; prints what torch says of each: long_training.py STEPS DATABASE

Its steps are so short that the daemon would miss some: it lets it read them, which DATABASE shows."""
import json
import os
import sqlite3
import sys
import time

import torch


def await_reading(steps):
    """Until the daemon has stored so many steps of this process."""
    deadline = time.monotonic() + 120
    database = sqlite3.connect(f"file:{sys.argv[2]}?mode=ro", uri=True)
    asked = "SELECT steps FROM cursor JOIN run ON run.key = cursor.run WHERE run.pid = ?"
    while not any(read >= steps for (read,) in database.execute(asked, (os.getpid(),))):
        if time.monotonic() > deadline:
            raise SystemExit("the daemon reads no steps")
        time.sleep(0.01)
    database.close()

torch.manual_seed(5)
steps = int(sys.argv[1])
peaks = {steps // 9, steps // 5 + 1, steps // 2, steps - 3}
dips = {steps // 7, steps // 3 + 1}
model = torch.nn.Linear(4, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.1 if step == steps // 4 + 1 else 1 if step < steps // 2 else 0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=steps // 8)
losses, norms, rates, scales = [], [], [], []
for step in range(steps):
    if step % 500 == 499:
        await_reading(step - 10)
    x = torch.rand(8, 4) * (1000 if step in peaks else 1e-3 if step in dips else 1)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scales.append(scaler.get_scale())
    rates.append(optimizer.param_groups[0]["lr"])
    norms.append(torch.stack([p.grad.double().square().sum() for p in model.parameters()]).sum().sqrt() / scales[-1])
    losses.append(loss.detach())
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
print(json.dumps({"peaks": sorted(peaks), "dips": sorted(dips), "loss": torch.stack(losses).tolist(), "gradient_norm": torch.stack(norms).tolist(),
                  "learning_rate": rates, "scale": scales}))
