# SPDX-License-Identifier: Apache-2.0
"""Runs programs under the ways in which people look for a NaN by hand, and writes down the first thing that each says.

  naive_methods.py OUT JOBS PROGRAM.py...      makes OUT/PROGRAM.METHOD.RANK.json, and OUT/PROGRAM.METHOD.log; JOBS at a time

first_op       the first op with a non-finite output, by a TorchDispatchMode; allocations are passed over
forward_hooks  the first module whose output has a non-finite value, by hooks on all modules
anomaly_mode   the backward node that torch.autograd.set_detect_anomaly names in its exception

A file is written at once, because a program may end in any way; without one the method said nothing. The step is counted as
generously as can be: by hooks on the optimizers, which a person would have to add too. Each program runs in a fork of this
process, so that torch is imported once.
"""
import contextlib
import json
import os
import pathlib
import re
import runpy
import signal
import socket
import sys
import tempfile

import torch
import torch._dynamo  # with what follows: slow imports that the programs would make
import torch.distributed
import torch.utils.checkpoint
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TIMEOUT_S = 600  # torch.compile under a method, on a machine that is busy with other things
ALLOCATIONS = ("aten::empty", "aten::new_empty", "aten::resize_", "aten::set_")


class Notes:
    """What is known of where the program is, and the first thing that was said."""

    def __init__(self, path):
        self._path, self._said = path, False
        self.step = 0
        self.optimizers_running = 0
        self.layers = []  # the modules that are running, by name, outermost first

    def say(self, **what):
        if not self._said:
            self._said = True
            with open(self._path, "w") as out:
                json.dump(what | {"step": self.step}, out)

    def layer(self):
        return self.layers[-1] if self.layers else None

    def phase(self):
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "optimizer" if self.optimizers_running and not self.layers else "forward"


def is_bad(value):
    if not isinstance(value, torch.Tensor) or value.is_meta or value.is_quantized or value.is_nested:
        return False
    if value.layout != torch.strided or type(value).__name__ == "FakeTensor":
        return False
    value = value.detach()
    value = torch.view_as_real(value) if value.is_complex() else value
    if not value.is_floating_point():
        return False
    value = value.float() if value.dtype.itemsize == 1 else value  # isfinite knows no 8-bit types
    return not bool(torch.isfinite(value).all())


def has_bad(values):
    with contextlib.suppress(RuntimeError, NotImplementedError):  # subclasses refuse what they cannot do
        return any(is_bad(value) for value in tree_leaves(dict(values) if hasattr(values, "keys") else values))
    return False


def count_steps(notes):
    def enter(*_):
        notes.optimizers_running += 1

    def leave(*_):
        notes.optimizers_running -= 1
        notes.step += 1
    optimizer_hooks.register_optimizer_step_pre_hook(enter)
    optimizer_hooks.register_optimizer_step_post_hook(leave)


def follow_layers(notes, after=lambda layer, output: None):
    """Keeps notes.layers, and calls `after` with each module's name and output."""
    names = {}

    def enter(module, inputs):
        if not notes.layers:
            names.update({id(child): name for name, child in module.named_modules()})
        notes.layers.append(names.get(id(module), type(module).__name__))

    def leave(module, inputs, output):
        after(notes.layers.pop() if notes.layers else None, output)
    module_hooks.register_module_forward_pre_hook(enter)
    module_hooks.register_module_forward_hook(leave, always_call=True)


class FirstOp(TorchDispatchMode):
    def __init__(self, notes):
        super().__init__()
        self._notes = notes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        name = function._schema.name if hasattr(function, "_schema") else str(function)
        if not name.startswith(ALLOCATIONS) and has_bad(output):
            self._notes.say(op=name, phase=self._notes.phase(), layer=self._notes.layer())
        return output


def first_op(notes):
    follow_layers(notes)
    return FirstOp(notes)


def forward_hooks(notes):
    follow_layers(notes, lambda layer, output: notes.say(layer=layer) if has_bad(output) else None)
    return contextlib.nullcontext()


@contextlib.contextmanager
def anomaly_mode(notes):
    with torch.autograd.set_detect_anomaly(True):
        try:
            yield
        except RuntimeError as error:
            if named := re.search(r"Function '(\w+)' returned nan values", str(error)):
                notes.say(node=named[1])
            raise


METHODS = {method.__name__: method for method in (first_op, forward_hooks, anomaly_mode)}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def places_of(program):
    """What to add to the environment for each process of a program. One that starts its ranks itself would start them
    without the method, so they are started here."""
    if '"RANK"' not in program.read_text():
        return [{}]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]


def become(program, method, place, out, folder):
    """Turns this process into the program under the method. How it ends says nothing: the exception may be the finding."""
    signal.alarm(TIMEOUT_S)
    os.environ.update(place)
    os.chdir(folder)
    log = os.open(out / f"{program.stem}.{method}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    notes = Notes(out / f"{program.stem}.{method}.{place.get('RANK', '0')}.json")
    count_steps(notes)
    sys.argv = [str(program)]
    sys.path[0] = str(program.parent)
    with METHODS[method](notes):
        runpy.run_path(str(program), run_name="__main__")


def run_forked(program, method, place, out, folder):
    """Starts a program and returns the pid."""
    sys.stdout.flush()
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        become(program, method, place, out, folder)
    except BaseException as end:  # Everything that a program can raise ends here, or it would go on as its parent.
        sys.excepthook(type(end), end, end.__traceback__)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(0)


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    running_max = int(sys.argv[2])
    programs = [pathlib.Path(name).resolve() for name in sys.argv[3:]]
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports what the first optimizer imports
    running = {}
    with tempfile.TemporaryDirectory() as folder:  # trainers leave files in the directory they run in
        for program in programs:
            for method in METHODS:
                places = places_of(program)
                while running and len(running) + len(places) > running_max:
                    running.pop(os.wait()[0], None)
                for place in places:
                    own = tempfile.mkdtemp(dir=folder)
                    running[run_forked(program, method, place, out, own)] = own
            print(f"by hand: {program.stem}", flush=True)
        while running:
            running.pop(os.wait()[0], None)


if __name__ == "__main__":
    main()
