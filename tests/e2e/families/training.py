# SPDX-License-Identifier: Apache-2.0
"""Skeletons of training programs, filled with the few lines in which a case differs."""
import textwrap

BEGIN = """
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0), np.random.seed(0)
"""

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(6, 8)
        self.odd = Odd()
        self.out = nn.Linear(8, 2)

    def forward(self, x, *given):
        return self.out(self.odd(torch.tanh(self.enc(x)), *given))
"""

LOOP = """
for step in range({steps}):
    x, y = torch.randn(4, 6), torch.randint(0, 2, (4,))
{before}
    opt.zero_grad()
{forward}
{backward}
{after}
"""

LENGTH = """
class Length(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        length = x.pow(2).sum(-1, keepdim=True).sqrt()
        ctx.save_for_backward(x, length)
        return length

    @staticmethod
    def backward(ctx, slope):
        x, length = ctx.saved_tensors
        return slope * (x / {divisor})
"""


def indented(text, depth):
    return textwrap.indent(textwrap.dedent(text).strip("\n"), "    " * depth)


def layer(forward, init="", name="Odd", given="h, *given"):
    """A module with this `forward`; `init` may give it parameters and buffers."""
    return (f"\nclass {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n{indented(init, 2)}\n"
            f"\n    def forward(self, {given}):\n{indented(forward, 2)}\n")


def loop(loss="model(x).pow(2).mean()", before="pass", forward=None, backward="loss.backward()\nopt.step()", after="pass",
         steps=5):
    """`before` changes the batch (x, y) of a `step`; `forward` stands for more lines than `loss`,
    `after` comes after the update."""
    return LOOP.format(steps=steps, before=indented(before, 1), forward=indented(forward or f"loss = {loss}", 1),
                       backward=indented(backward, 1), after=indented(after, 1))


def training(definitions="", model="Net()", optimizer="torch.optim.Adam(model.parameters(), lr=1e-3)", prepare="", **of_loop):
    """`definitions` are classes; `prepare` runs after the model and the optimizer were made."""
    net = NET if "class Odd" in definitions and "class Net" not in definitions else ""
    return (BEGIN + textwrap.dedent(definitions) + net
            + f"\nmodel = {model}\nopt = {optimizer}\n" + textwrap.dedent(prepare) + "\n"
            + loop(**of_loop))


def with_layer(does, init="", before="pass", given="", **more):
    """A net whose layer `odd` has this forward of the activations `h`;
    `given` are the further arguments that the loop passes on."""
    of_loop = dict(more)
    of_loop.setdefault("loss", f"model(x{', ' + given if given else ''}).pow(2).mean()")
    return training(layer(does, init), before=before, **of_loop)
