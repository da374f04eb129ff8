# SPDX-License-Identifier: Apache-2.0
"""Does nanwatch say of itself what a stopwatch says? The overhead that it reports, beside blocks of steps that are timed from outside.

Each step has a process of its own, in which nanwatch first measures itself: it runs as in any job, but may leave a quarter of its
steps unchecked instead of one in a hundred. Then it measures no more, and blocks of steps under it and bare ones are timed in turn,
in an order drawn anew for each pair. Bare means that no callback is registered. With --gate the exit status is 1 unless the two
agree: their intervals meet, or the figures differ by at most one point.

Run by scripts/bench.sh, which preloads the library; by hand:
  NANWATCH_DIR=DIR NANWATCH_STATE_DIR=DIR NANWATCH_MEASURE=25 NANWATCH_LEVEL=full LD_PRELOAD=.../libnanwatch.so \
    stopwatch.py --nanwatch .../nanwatch
"""
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time

from timing import clock_of, make_parser, rounds_of, seconds_a_step

PATIENCE_S = 400


def parse_arguments():
    parser = make_parser(__doc__, rounds=40, quick_rounds=14)
    parser.add_argument("--nanwatch", required=True, help="the tool, to ask what the overhead is")
    parser.add_argument("--block-ms", type=float, default=200)
    parser.add_argument("--gate", action="store_true")
    return parser.parse_args()


def coverage(nanwatch):
    ran = subprocess.run([nanwatch, "report", "--json"], capture_output=True, text=True)
    return json.loads(ran.stdout)["coverage"] if ran.stdout.startswith("{") else {}


def measured_by_itself(step, nanwatch):
    """Trains until there is a figure, and as long again, for as many pairs as it keeps."""
    began, told_after = time.monotonic(), None
    while time.monotonic() - began < PATIENCE_S:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            step.run()
        seen = coverage(nanwatch)
        if seen.get("overhead_percent") is None:
            continue
        told_after = told_after or time.monotonic() - began
        if time.monotonic() - began >= 2 * told_after:
            return seen["overhead_percent"], *seen["overhead_interval"], told_after
    sys.exit(f"stopwatch: nanwatch has not measured itself in {PATIENCE_S} s: {seen}")


def place_of_low(count):
    """Of a sorted list, as nanwatch has it: the sign test's bounds at 5 %."""
    fewer, place = 0.0, 0
    for k in range(count):
        fewer += math.comb(count, k) / 2**count
        if 2 * fewer > 0.05:
            break
        place = k + 1
    return place


def measured_from_outside(step, switch, modes, rounds, block_s, clock):
    bare, watched = modes
    switch.set(watched)
    seconds_a_step(step, 3, clock)
    repeats = max(2, round(block_s / seconds_a_step(step, 3, clock)))
    ratios = []
    for _ in range(rounds):
        seconds = {}
        for mode in random.sample(modes, 2):
            switch.set(mode)
            gc.collect()
            step.run()
            seconds[mode] = seconds_a_step(step, repeats, clock)
        ratios.append(seconds[watched] / seconds[bare])
    switch.set(watched)
    percent = sorted(100 * (ratio - 1) for ratio in ratios)
    place = place_of_low(len(percent))
    return statistics.median(percent), percent[place - 1], percent[-place]


def agree(told, stopwatch):
    meet = told[1] <= stopwatch[2] and stopwatch[1] <= told[2]
    return meet or abs(told[0] - stopwatch[0]) <= 1


def show(name, arguments):
    os.sched_setaffinity(0, {arguments.core})  # Before torch, so that its threads inherit it.
    import torch

    from observer_switch import BARE, CANARY, FULL, ObserverSwitch
    from training_steps import STEPS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = STEPS[name]()
    if step is None:
        print(f"SKIPPED {name}: {sys.executable} lacks a package that it needs", flush=True)
        return True
    level = os.environ.get("NANWATCH_LEVEL", "full")
    switch = ObserverSwitch()
    *told, seconds = measured_by_itself(step, arguments.nanwatch)
    seen = measured_from_outside(step, switch, [BARE, CANARY if level == "canary" else FULL], rounds_of(arguments),
                                 arguments.block_ms / 1e3, clock_of(arguments))
    figures = " | ".join(f"{median:.1f} % ({low:.1f} .. {high:.1f})" for median, low, high in (told, seen))
    print(f"| {step.description} | {level} | {figures} | {'yes' if agree(told, seen) else 'NO'} | {seconds:.0f} s |", flush=True)
    return agree(told, seen)


def main():
    arguments = parse_arguments()
    names = arguments.steps.split(",")
    if len(names) == 1:
        sys.exit(0 if show(names[0], arguments) or not arguments.gate else 1)
    print("| step | level | nanwatch says | a stopwatch says | agree | first said after |\n|---|---|---|---|---|---|", flush=True)
    statuses = [subprocess.run([sys.executable, __file__, *sys.argv[1:], "--steps", name]).returncode for name in names]
    sys.exit(1 if any(statuses) else 0)


main()
