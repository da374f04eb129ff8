# SPDX-License-Identifier: Apache-2.0
"""told_by_torch.py STEPS [half] [cuda]: trains a small model (on a GPU all but two layers) and writes what torch itself makes of each parameter to figures.json.

Of the first step of each 5, on a GPU of each step: the gradient as the step used it, and the update against the weight before. Prints
the losses, bit for bit.
"""
import json
import sys

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """A sparse gradient, a convolution that lies in memory channels last, a layer that is not called, one that is frozen."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(500, 16)
        self.rows = nn.Embedding(50, 16, sparse=True)
        self.convolution = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
        self.wide, self.head = nn.Linear(16, 1024), nn.Linear(1024, 3)
        self.forgotten, self.frozen = nn.Linear(4, 4), nn.Linear(16, 16).requires_grad_(False)

    def forward(self, words, images):
        rows = self.rows((words % 50).to(self.rows.weight.device))
        seen = self.frozen(self.embedding(words) + rows.to(words.device)).mean(1)
        wide = self.wide(seen).relu().to(self.head.weight.device)
        return self.head(wide) + self.convolution(images).mean((2, 3))[:, :3].to(wide.device)


def figures(before, parameter):
    told = {"numel": parameter.numel(), "dtype": str(parameter.dtype).removeprefix("torch.")}
    if parameter.grad is not None and not parameter.grad.is_sparse:
        gradient = parameter.grad.double()
        told |= {"gradient_mean": gradient.mean().item(), "gradient_std": gradient.std().item() if gradient.numel() > 1 else 0.0,
                 "gradient_max_abs": gradient.abs().max().item(), "gradient_norm": gradient.norm().item(),
                 "gradient_zero_share": (gradient == 0).double().mean().item()}
    update = (parameter.detach().double() - before.double()).norm().item()
    return told | {"gradient": "none" if parameter.grad is None else "unread" if parameter.grad.is_sparse else "read",
                   "update_norm": update, "weight_norm": before.double().norm().item()}


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    half, device, every = "half" in sys.argv, "cuda" if "cuda" in sys.argv else "cpu", 1 if "cuda" in sys.argv else 5
    model = Model()
    if half:
        model.wide.to(torch.bfloat16)
        model.head.to(torch.float64)
        model.wide.register_forward_pre_hook(lambda _, args: args[0].bfloat16())
        model.head.register_forward_pre_hook(lambda _, args: args[0].double())
    model.to(device)
    for layer in (model.rows, model.head):
        layer.cpu()
    dense = [parameter for name, parameter in model.named_parameters() if name != "rows.weight"]
    optimizers = [torch.optim.AdamW(dense, lr=1e-2), torch.optim.SGD(model.rows.parameters(), lr=0.1)]
    told = []
    for step in range(int(sys.argv[1])):
        words, images, labels = torch.randint(500, (8, 5)), torch.randn(8, 4, 6, 6), torch.randint(3, (8,))
        words, images = words.to(device), images.to(device)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = functional.cross_entropy(model(words, images), labels)
        loss.backward()
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        for optimizer in optimizers:
            optimizer.step()
        print(step, loss.item().hex(), flush=True)
        if step % every == 0:
            told.append({"step": step, "parameters": {name: figures(before[name], parameter) for name, parameter in
                                                      model.named_parameters() if parameter.requires_grad}})
    with open("figures.json", "w") as file:
        json.dump(told, file)


main()
