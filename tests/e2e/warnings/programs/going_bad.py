# SPDX-License-Identifier: Apache-2.0
"""going_bad.py NAME: trains a small model until a fault that builds up over many steps makes a NaN, and some steps more.

Prints the first step whose loss was not finite, as the program itself sees it.
"""
import math
import sys

import torch
from torch import nn
from torch.nn import functional

AFTERWARDS = 60  # steps: an infinite loss has finite gradients for as long as they do not overflow too


class Seen:
    """Says when the loss went bad, and when it is enough."""

    def __init__(self):
        self.bad_since = None

    def __call__(self, step, loss):
        if self.bad_since is None and not math.isfinite(loss):
            self.bad_since = step
            print(f"the loss is {loss} at step {step}", flush=True)
        return self.bad_since is not None and step >= self.bad_since + AFTERWARDS


def batch():
    points = torch.randn(32, 8)
    return points, points.sin().sum(1, keepdim=True)


def perceptron():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))


def learning_rate_ramp():
    """A schedule that goes up and forgets to stop."""
    model, seen = perceptron(), Seen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.06 ** max(0, step - 60))
    for step in range(400):
        points, targets = batch()
        optimizer.zero_grad()
        loss = functional.mse_loss(model(points), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        if seen(step, loss.item()):
            break


def learning_rate_too_high():
    """A linear model above the stability limit from its first step on."""
    model, seen = nn.Linear(8, 1), Seen()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.8)
    for step in range(400):
        points, targets = batch()
        optimizer.zero_grad()
        loss = functional.mse_loss(model(points), targets)
        loss.backward()
        optimizer.step()
        if seen(step, loss.item()):
            break


class LossInside(nn.Module):
    """A module that returns its loss, as those of transformers do: level canary sees it too."""

    def __init__(self, half=False):
        super().__init__()
        self.inner, self.half_type = nn.Linear(8, 1), torch.float16 if half else torch.float32

    def forward(self, points, targets):
        return (self.inner(points).to(self.half_type) - targets.to(self.half_type)).float().square().mean()


def momentum():
    """Adam's learning rate on SGD with momentum: grows slowly, then without end."""
    model, seen = LossInside(), Seen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(600):
        if step == 80:
            optimizer.param_groups[0]["lr"] = 2.2
        optimizer.zero_grad()
        loss = model(*batch())
        loss.backward()
        optimizer.step()
        if seen(step, loss.item()):
            break


def scaler_sinks():
    """float16 in the backward pass, whose gradients outgrow it; then the forward pass does too."""
    model, seen = LossInside(half=True), Seen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=2000)
    for step in range(600):
        if step == 60:
            optimizer.param_groups[0]["lr"] = 1.3
        optimizer.zero_grad()
        loss = model(*batch())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if seen(step, loss.item()):
            break


def classify(rate, activation, log_from, chance_against, spoil):
    """A perceptron of one hidden layer whose squared error is joined by a logarithm later; `spoil` is called after each step."""
    hidden, head, seen = nn.Linear(8, 16), nn.Linear(16, 1), Seen()
    optimizer = torch.optim.SGD([*hidden.parameters(), *head.parameters()], lr=rate)
    for step in range(300):
        points = torch.randn(32, 8)
        labels = (points.sum(1, keepdim=True) > 0).float()
        chance = head(activation(hidden(points))).sigmoid()
        loss = functional.mse_loss(chance, labels)
        if step >= log_from:
            loss = loss - (labels * chance.log() + (1 - labels) * (1 - chance_against(chance, head)).log()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if seen(step, loss.item()):
            break
        spoil(step, head, optimizer)


def vanishing():
    """One update that is far too large saturates the sigmoids for good; a logarithm finds the exact 1 later."""
    def spoil(step, _, optimizer):
        optimizer.param_groups[0]["lr"] = 1e6 if step + 1 == 70 else 0.5

    classify(0.5, torch.sigmoid, 130, lambda chance, _: chance, spoil)


def slow_vanishing():
    """Outputs of a sigmoid that are pushed ever further from where it has a slope; the exact 1 is met by a logarithm."""
    def spoil(step, head, _):
        if 90 <= step < 100:  # As a penalty of the wrong sign would.
            with torch.no_grad():
                head.bias += 2.5

    classify(0.2, torch.tanh, 160, lambda _, head: (head.bias + 60).sigmoid(), spoil)


def dead_relus():
    """The same with ReLUs: all are off, and nothing but the last bias learns. Then the spread of the outputs is divided by."""
    model, seen = perceptron(), Seen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(300):
        points, targets = batch()
        outputs = model(points)
        loss = functional.mse_loss(outputs, targets)
        if step >= 120:
            loss = loss + ((outputs - outputs.mean()) / (outputs - outputs.mean()).square().mean().sqrt()).mean()
        optimizer.zero_grad()
        loss.backward()
        if step == 70:
            with torch.no_grad():
                for layer in (model[0], model[2]):
                    layer.bias.fill_(-1e3)
        optimizer.step()
        if seen(step, loss.item()):
            break


def half_activations():
    """Weight decay of the wrong sign on a model in float16, whose loss does not mind how large the outputs are."""
    model, seen = perceptron().half(), Seen()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(300):
        points, _ = batch()
        optimizer.zero_grad()
        outputs = model(20 * points.half())
        loss = (outputs - outputs.mean()).float().tanh().square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.03)
        if seen(step, loss.item()):
            break


def forgotten_layer():
    """A layer that forward does not call, and a square root that goes below zero."""
    model, forgotten, seen = perceptron(), nn.Linear(8, 8), Seen()
    optimizer = torch.optim.SGD([*model.parameters(), *forgotten.parameters()], lr=0.02)
    for step in range(100):
        points, targets = batch()
        optimizer.zero_grad()
        loss = functional.mse_loss(model(points), targets) + (torch.tensor(0.01 * (60 - step)).sqrt() * model[4].bias).sum()
        loss.backward()
        optimizer.step()
        if seen(step, loss.item()):
            break


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
