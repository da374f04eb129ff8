# SPDX-License-Identifier: Apache-2.0
"""Questions about what nanwatch says of its own cost: is it what a stopwatch says?

As tests/bench/overhead/stopwatch.py: a process a level, in which nanwatch first measures itself, with a quarter of the steps unchecked
instead of one in a hundred; then blocks of steps are timed under it and without a callback, in turn.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import answers
from answers import Answer, CannotAsk, Question
from ends import environment_of, library_of
from steps import Machine, add_options, coverage, models, observer_switch, time_visit

LEVELS = {"canary": observer_switch.CANARY, "sampled": observer_switch.SAMPLED, "full": observer_switch.FULL}
BLOCK_S, BLOCKS = 0.2, 15
POINTS = 1  # that the two may differ by where their intervals do not meet


def told_by_itself(arguments, step, seconds):
    """(percent, low, high), once there is a figure; None where there is none in that time."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            step.run()
        seen = coverage(arguments) or {}
        if seen.get("overhead_percent") is not None and time.monotonic() > ends_at - seconds / 2:
            return [seen["overhead_percent"], *seen["overhead_interval"]]
    return None


def timed_from_outside(machine, step, switch, mode):
    """(percent, low, high): the median of paired blocks, and its quartiles."""
    repeats = max(2, round(BLOCK_S / time_visit(machine, step, 3)[0]))
    percent = []
    for _ in range(BLOCKS):
        seconds = {}
        for which in random.sample((observer_switch.BARE, mode), 2):
            switch.set(which)
            seconds[which] = time_visit(machine, step, repeats)[0]
        percent.append(100 * (seconds[mode] / seconds[observer_switch.BARE] - 1))
    low, middle, high = statistics.quantiles(percent, n=4)
    return [middle, low, high]


def measure(arguments, name, level, seconds):
    """In a process of its own, under the preload library. Prints one JSON line."""
    machine = Machine("cpu" if arguments.dry_run else "cuda")
    torch.manual_seed(0)
    step = models.STEPS[name](machine.device, arguments.dry_run)
    switch = observer_switch.ObserverSwitch()
    told = told_by_itself(arguments, step, seconds)
    print(json.dumps({"told": told, "stopwatch": timed_from_outside(machine, step, switch, LEVELS[level]), "measured": (coverage(arguments) or {}).get("measured")}))


def agree(told, stopwatch):
    return (told[1] <= stopwatch[2] and stopwatch[1] <= told[2]) or abs(told[0] - stopwatch[0]) <= POINTS


def ask(name):
    def asked(arguments):
        library, found = library_of(arguments), {}
        for level in LEVELS:
            seconds = 1 if arguments.dry_run else arguments.seconds / len(LEVELS)
            with tempfile.TemporaryDirectory() as folder:
                environment = environment_of(library, folder, level) | {"NANWATCH_MEASURE": "25"}
                command = [sys.executable, __file__, "--nanwatch", arguments.nanwatch, "--child", f"{name},{level},{seconds}", *["--dry-run"] * arguments.dry_run]
                ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=max(1, arguments.ends_at - time.monotonic()))
            if ran.returncode:
                raise CannotAsk(f"level {level}: status {ran.returncode}: {ran.stderr[-300:]}")
            found[level] = json.loads(ran.stdout.splitlines()[-1])
            found[level]["agree"] = bool(found[level]["told"]) and agree(found[level]["told"], found[level]["stopwatch"])
            arguments.so_far(Answer(found | {"provisional": "more levels were to come"}))
        return Answer(found, all(one["agree"] for one in found.values()))
    return asked


QUESTIONS = [Question(f"overhead.{name}", f"does nanwatch say of its cost in {name} what a stopwatch says?", ask(name),
                      f"the intervals meet, or at most {POINTS} point apart", timed=True) for name in ("small_gpt", "gpt2")]


def measure_as_told():
    """A child's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nanwatch", type=pathlib.Path)
    parser.add_argument("--child")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    name, level, seconds = arguments.child.split(",")
    measure(arguments, name, level, float(seconds))


if __name__ == "__main__":
    if "--child" in sys.argv:
        measure_as_told()
    else:
        answers.main(__doc__, QUESTIONS, add_options)
