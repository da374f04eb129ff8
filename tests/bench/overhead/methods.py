# SPDX-License-Identifier: Apache-2.0
"""The ways to look for NaN that are compared: nothing, nanwatch, and what people write by hand.

A method is a context manager: inside it, the step is run that way. Entering and leaving is not timed.
"""
import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from observer_switch import BARE, CANARY, EMPTY_CALLBACK, FULL, IDLE, SAMPLED


def _watched_tensors(values):
    return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor) and v.is_floating_point()]


def _raise_on_bad(values):
    for tensor in _watched_tensors(values):
        if torch.isnan(tensor).any().item() or torch.isinf(tensor).any().item():
            raise ValueError("a non-finite value in a step that has none")


@contextlib.contextmanager
def _forward_hooks(model):
    def check(module, inputs, output):
        _raise_on_bad(inputs)
        _raise_on_bad(output)
    handles = [module.register_forward_hook(check) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _DispatchCheck(TorchDispatchMode):
    """Only counts: looking at every op's result, it is alarmed by memory that nobody has written yet."""
    alarms = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in _watched_tensors(result):
            if not torch.isfinite(tensor).all():
                self.alarms += 1
        return result


def methods(switch, model):
    """Name to a function that makes the context manager."""
    @contextlib.contextmanager
    def observer(mode):
        switch.set(mode)
        try:
            yield
        finally:
            switch.set(BARE)

    return {
        "bare": lambda: observer(BARE),
        "bare twin": lambda: observer(BARE),
        "empty outputs callback": lambda: observer(EMPTY_CALLBACK),
        "nanwatch idle": lambda: observer(IDLE),
        "nanwatch canary": lambda: observer(CANARY),
        "nanwatch sampled": lambda: observer(SAMPLED),
        "nanwatch full": lambda: observer(FULL),
        "forward hooks": lambda: _forward_hooks(model),
        "set_detect_anomaly": lambda: torch.autograd.set_detect_anomaly(True),
        "TorchDispatchMode": lambda: _DispatchCheck(),
    }
