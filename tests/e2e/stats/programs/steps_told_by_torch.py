# SPDX-License-Identifier: Apache-2.0
"""A training that prints, of its last step, what torch says there and what `nanwatch top` shows of it: steps_told_by_torch.py [--device cuda] ..."""
import argparse
import json
import os
import subprocess

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--dtype", default="float32")
parser.add_argument("--loss", default="mse_loss", choices=("mse_loss", "cross_entropy"))
parser.add_argument("--scaler", action="store_true")
parser.add_argument("--scale", type=float, default=256.0)
parser.add_argument("--fused", action="store_true", help="the optimizer divides by the scale itself")
parser.add_argument("--loss-outside", action="store_true")
parser.add_argument("--loud", type=float, default=1.0)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--scattered", action="store_true", help="a gradient has holes in its memory")
arguments = parser.parse_args()
device, dtype = arguments.device, getattr(torch, arguments.dtype)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = torch.nn.Linear(40, 60), torch.nn.Linear(60, 3)
        self.unused = torch.nn.Linear(5, 5)

    def forward(self, x, y):
        result = self.head(torch.relu(self.inner(x))).float() * arguments.loud
        return result if arguments.loss_outside else loss_of(result, y)


def loss_of(result, y):
    return getattr(torch.nn.functional, arguments.loss)(result, y if arguments.loss == "mse_loss" else y.argmax(1))


torch.manual_seed(1)
model = Model().to(device, dtype)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=arguments.fused)
scaler = torch.amp.GradScaler(device, init_scale=arguments.scale, growth_interval=5, enabled=arguments.scaler)
skipped = 0
for step in range(arguments.steps):
    optimizer.zero_grad()
    y = torch.randn(7, 3).to(device)
    loss = model(torch.randn(7, 40).to(device, dtype), y)
    loss = loss_of(loss, y) if arguments.loss_outside else loss
    scaler.scale(loss).backward()
    if not arguments.fused:
        scaler.unscale_(optimizer)
    if arguments.scattered:
        model.inner.weight.grad = torch.ones(60, 80, device=device)[:, ::2]
    norm = torch.stack([p.grad.double().square().sum() for p in model.parameters() if p.grad is not None]).sum().sqrt()
    if arguments.fused and arguments.scaler:
        norm = norm / scaler.get_scale()
    scaler.step(optimizer)
    scale = scaler.get_scale()
    scaler.update()
    skipped += scaler.get_scale() < scale
if device == "cuda":
    torch.cuda.synchronize()
for _ in range(300):  # what a GPU has answered is told a moment later
    shown = subprocess.run([os.environ["NANWATCH_TOOL"], "top", "--once", "--json"], capture_output=True, text=True, check=True)
    runs = [run for run in json.loads(shown.stdout)["runs"] if run["pid"] == os.getpid()]
    if runs and runs[0]["step"] == arguments.steps - skipped:
        break
else:
    raise SystemExit(f"the last step was never told: {runs}")
print(json.dumps({"told": runs[0], "norm": norm.item(), "loss": loss.item(), "scale": scaler.get_scale(),
                  "skipped": skipped}))
