# SPDX-License-Identifier: Apache-2.0
"""Healthy training steps of the models of ../models.py; small ones where there is no GPU."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import models  # noqa: E402


def train(name, steps=5):
    torch.manual_seed(0)
    has_gpu = torch.cuda.is_available()
    step = models.STEPS[name]("cuda" if has_gpu else "cpu", not has_gpu)
    for _ in range(steps):
        loss = step.run()
    assert torch.isfinite(loss), "the step is not healthy"
