# SPDX-License-Identifier: Apache-2.0
"""Small training programs as text, and what is asked of the cause that nanwatch tells for each.

A test method returns the program; its decorator says which pattern it triggers, or which it resembles:

    @triggers("exp-overflow", evidence="largest argument 120.5 in float32", op="aten::exp")
    @resembles("exp-overflow", instead="half-precision-overflow")

every_pattern_test.py sees to it that each entry of patterns.json has both.
"""
import functools
import pathlib
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "families"))

from watched_program import WatchedProgramTest, main  # noqa: E402, F401

EXPECTED, CLEAN = "the verdict expected", "the verdict clean"

PROGRAM = '''
import math

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F
{top}

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, x):
{layer}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.layer = Layer()
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.layer(self.first(x)))


torch.manual_seed(0)
model = Model(){cast}
optimizer = {optimizer}
for step in range({steps}):
    x, y, kinds = torch.randn(6, 4), torch.randn(6, 3), torch.randint(0, 3, (6,))
{before}
    optimizer.zero_grad()
{loss}
{update}
'''


def program(layer="return x", init="pass", before="pass", loss="loss = F.mse_loss(model(x), y)", cast="", top="",
            optimizer="torch.optim.SGD(model.parameters(), lr=0.1)", update="loss.backward()\noptimizer.step()", steps=4):
    """A model of three layers on random data. The texts given are its middle layer, what happens before each step, ..."""
    def indented(text, columns):
        return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * columns)
    return PROGRAM.format(layer=indented(layer, 8), init=indented(init, 8), before=indented(before, 4), loss=indented(loss, 4),
                          update=indented(update, 4), top=indented(top, 0), cast=cast, optimizer=optimizer, steps=steps)


def triggers(pattern, evidence, **origin):
    """The first incident has this pattern, all of `evidence` in its words, and these fields of an origin."""
    def decorate(program_of):
        @functools.wraps(program_of)
        def test(self):
            incident = self.assert_anomaly(program_of(self), pattern=pattern, **origin)
            self.assertIn(evidence, incident["pattern"]["evidence"])
        test.triggers = pattern
        return test
    return decorate


def resembles(pattern, instead, **origin):
    """It gets `instead`: another pattern's id, or no alarm at all."""
    assert pattern != instead

    def decorate(program_of):
        @functools.wraps(program_of)
        def test(self):
            if instead in (EXPECTED, CLEAN):
                self.assert_no_alarm(program_of(self), verdict="expected" if instead == EXPECTED else "clean")
            else:
                self.assert_anomaly(program_of(self), pattern=instead, **origin)
        test.resembles = pattern
        return test
    return decorate


class PatternTest(WatchedProgramTest):
    """Its test methods return programs."""
