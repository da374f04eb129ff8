# SPDX-License-Identifier: Apache-2.0
"""Switches the observer in this process off and on between steps. The observer is that of build/release/tests/bench/lib (bench_mode.cc)."""
import ctypes
import pathlib
import re
import sys
import time
import types

import torch

BARE, EMPTY_CALLBACK, FULL, IDLE, CANARY, AUTO, STATS, SAMPLED = range(8)


def observer_path(deadline_s=20):
    """The observer's file, once it is mapped and sees modules: a thread of its own does that while torch is imported."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        found = re.search(r"/\S*libnanwatch_observer-\S+\.so", pathlib.Path("/proc/self/maps").read_text())
        if found and not isinstance(torch.nn.Module.__dict__["__call__"], types.FunctionType):
            return found.group(0)
        time.sleep(0.01)
    sys.exit("no observer in this process: run it by scripts/bench.sh, which sets LD_PRELOAD")


class ObserverSwitch:
    """set(BARE) leaves no callback at all, set(EMPTY_CALLBACK) one that asks for outputs and does nothing, set(FULL) the real ones,
    set(IDLE), set(CANARY), set(SAMPLED) and set(AUTO) those of these levels, set(STATS) canary with every step's parameters looked at one by one."""

    def __init__(self):
        # The copy that is loaded; ctypes adds a reference and nothing else.
        path = observer_path()
        observer = ctypes.CDLL(path)
        if not hasattr(observer, "nanwatch_bench_mode"):
            sys.exit(f"{path} has no switch: preload build/release/tests/bench/lib/libnanwatch.so, as scripts/bench.sh does")
        self._set = observer.nanwatch_bench_mode
        self._set.argtypes = [ctypes.c_int]
        self._set.restype = None

    def set(self, mode):
        self._set(mode)
