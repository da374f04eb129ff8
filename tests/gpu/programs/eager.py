# SPDX-License-Identifier: Apache-2.0
"""Eager ops on the GPU; the logarithm of a negative number at one step."""
from logarithm import batch, network

model, optimizer = network()
for step in range(10):
    optimizer.zero_grad()
    model(batch(step)).square().mean().backward()
    optimizer.step()
