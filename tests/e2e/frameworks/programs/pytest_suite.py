# SPDX-License-Identifier: Apache-2.0
"""The tests of a small model, as pytest runs them; the second fails."""
import torch


def train(value):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.log(model(torch.ones(2, 4)).square() + value).mean()  # here
        loss.backward()
        optimizer.step()
    return loss


def test_trains_on_ones():
    assert train(1.0).isfinite()


def test_trains_on_minus_a_thousand():
    assert train(-1000.0).isfinite()
