# SPDX-License-Identifier: Apache-2.0
"""CPU ns per call of a trivial module, with the descriptor and with what it replaced.

All ways are interleaved in one process. Usage: overhead_bench.py [rounds]; prints the medians, and
the median of the differences inside each round.
"""

import statistics
import sys
import time

import torch
from torch import nn

import bridge

CALLS = 20000
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 41


class Trivial(nn.Module):
    def forward(self, x):
        return x


class Calling(nn.Module):
    """Times calls of a child, which are not outermost."""

    def __init__(self):
        super().__init__()
        self.child = Trivial()

    def forward(self, x):
        return time_calls(self.child)


def time_calls(module):
    calls = range(CALLS)
    begin = time.thread_time_ns()
    for _ in calls:
        module(None)
    return (time.thread_time_ns() - begin) / CALLS


original = nn.Module.__call__
bridge.install_without_callbacks()
descriptor = nn.Module.__call__


def wrapper(self, *args, **kwargs):
    return original(self, *args, **kwargs)


def compare(name, measure):
    ways = {
        "function": original,
        "function again": original,
        "descriptor": descriptor,
        "python wrapper": wrapper,
    }
    times = {way: [] for way in ways}
    for i in range(ROUNDS):
        order = list(ways)[i % 4 :] + list(ways)[: i % 4]
        for way in order:
            nn.Module.__call__ = ways[way]
            times[way].append(measure())
    nn.Module.__call__ = descriptor
    base = times["function"]
    for way, values in times.items():
        difference = statistics.median(v - b for v, b in zip(values, base))
        print(
            f"{name:10} {way:16} median {statistics.median(values):7.1f} ns  min {min(values):7.1f}"
            f"  paired difference {difference:+6.1f}"
        )


outermost = Trivial()
inner = Calling()
inner(None)
compare("outermost", lambda: time_calls(outermost))
compare("inner", lambda: inner(None))
