# SPDX-License-Identifier: Apache-2.0
"""Puts off what only torch.compile needs until a program asks for it. Python runs this file at its start if its folder is in PYTHONPATH.

A first optimizer imports torch._dynamo only to say that nothing is to be compiled there. That takes two seconds of a processor,
as long as torch itself, and most programs of tests are otherwise done in one. So something that answers "not compiled" stands in
its place. torch imports torch._meta_registrations, Python's shapes of ops for tensors without memory, a quarter of the import, and
only compilation and fake tensors ask for it. Whoever wants more of either gets the real one.

While torch is imported, nothing is garbage, and a sixth of the time goes into looking for it. So the collector is off until torch
calls its backends, the last thing that it does: the distribution beside this file names one that turns the collector on again.
"""
import gc
import importlib
import importlib.util
import os
import sys
import types


class Late(types.ModuleType):
    """A module that is imported when it is first asked for something."""

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":  # whoever walks through all modules; an import of a submodule asks for its path
            raise AttributeError(name)
        return getattr(self.load(), name)

    def load(self):
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)


class LateCompiler(Late):
    # What the end of a process group wants.
    trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)

    @staticmethod
    def graph_break(*_, **__):
        pass

    @staticmethod
    def disable(fn=None, *_, **__):
        return fn if fn is not None else lambda function: function

    def load(self):
        SHAPES.load()
        return super().load()


SHAPES = Late("torch._meta_registrations")
for stand_in in (SHAPES, LateCompiler("torch._dynamo")):
    sys.modules.setdefault(stand_in.__name__, stand_in)

# Only where the import is still to come, and torch finds that distribution.
is_found = os.path.dirname(os.path.abspath(__file__)) in sys.path
if is_found and "torch" not in sys.modules and importlib.util.find_spec("torch") is not None:
    gc.disable()
