# SPDX-License-Identifier: Apache-2.0
"""The counted program of instructions.py: runs under callgrind, repeats an op or a step in every mode, and marks each stretch.

Usage: instructions_job.py SWITCH_LIBRARY CASE,CASE...
"""
import ctypes
import functools
import sys

import torch

from observer_switch import AUTO, BARE, CANARY, EMPTY_CALLBACK, FULL, IDLE, SAMPLED, STATS, ObserverSwitch
from training_steps import bert, mlp

OP_REPEATS, OP_TURNS = 200, 3
WARM_UP = 5
MODES = {"bare": BARE, "empty": EMPTY_CALLBACK, "full": FULL}
LEVELS = {"bare": BARE, "idle": IDLE, "canary": CANARY, "sampled": SAMPLED, "full": FULL, "stats": STATS}
POISONED = {"bare": BARE, "idle": IDLE, "canary": CANARY, "sampled": SAMPLED, "full": FULL, "auto": AUTO}
WAYS = {"levels": LEVELS, "poisoned_mlp": POISONED, "poisoned_bert": POISONED}


def count(library, label, function, repeats):
    library.callgrind_begin()
    for _ in range(repeats):
        function()
    library.callgrind_end(f"{label} {repeats}".encode())


def poisoned(switch, step):
    """The step, once NaN is in the parameters and the observer knows."""
    switch.set(FULL)
    step.run()
    with torch.no_grad():
        next(step.model.parameters()).copy_(torch.log(-torch.ones(1)))
    for _ in range(3):
        step.run()
    switch.set(BARE)
    return step.run


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.callgrind_end.argtypes = [ctypes.c_char_p]
    if not library.under_valgrind():
        sys.exit("this program is run by instructions.py, under valgrind")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    switch = ObserverSwitch()
    a, b, out = torch.rand(16), torch.rand(16), torch.empty(16)
    bert_once = functools.cache(bert)
    # A step is thousands of ops: their differences cancel in one turn, and callgrind takes many seconds for each.
    cases = {"add": (lambda: torch.add(a, b, out=out), OP_REPEATS, OP_TURNS),
             "view": (lambda: a.view(4, 4), OP_REPEATS, OP_TURNS)}
    for name in sys.argv[2].split(","):
        if name in ("bert", "levels"):
            cases[name] = bert_once().run, 1, 1
        if name.startswith("poisoned"):  # Last: the observer watches nothing any more.
            made, repeats = {"mlp": (mlp, 16), "bert": (bert, 1)}[name.removeprefix("poisoned_")]
            cases[name] = poisoned(switch, made()), repeats, 1
        function, repeats, turns = cases[name]
        for turn in range(turns):
            for mode_name, mode in WAYS.get(name, MODES).items():
                switch.set(mode)
                for _ in range(min(repeats, WARM_UP)):  # What is made once, is made here.
                    function()
                count(library, f"{name} {mode_name}", function, repeats)
        print(f"counted {name}", flush=True)


main()
