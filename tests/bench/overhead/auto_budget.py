# SPDX-License-Identifier: Apache-2.0
"""Does level auto keep its budget, seen from outside? Blocks of steps under it between blocks of bare steps, in one process.

A block's time per step is compared with that of the bare blocks before and after it, so it holds what auto pays for watching
and for finding out what that costs. The bare twin is a bare block in the same place. Run by scripts/bench.sh, which preloads
the library with NANWATCH_LEVEL=auto and a budget, and leaves the daemon out.
"""
import gc
import json
import os
import statistics
import subprocess
import sys

from timing import clock_of, make_parser, rounds_of, seconds_a_step


def parse_arguments():
    parser = make_parser(__doc__, rounds=15, quick_rounds=3)
    parser.add_argument("--nanwatch", required=True, help="the tool, to ask what was watched")
    parser.add_argument("--block-s", type=float, default=2)
    parser.add_argument("--settle-s", type=float, default=15, help="auto's first blocks, in which it learns what watching costs")
    return parser.parse_args()


def run_block(step, repeats, clock):
    gc.collect()
    return seconds_a_step(step, repeats, clock)


def compare(switch, mode, step, repeats, rounds, clock):
    """Ratios of blocks in this mode to the bare ones around them."""
    ratios = []
    switch.set(0)
    before = run_block(step, repeats, clock)
    for _ in range(rounds):
        switch.set(mode)
        block = run_block(step, repeats, clock)
        switch.set(0)
        after = run_block(step, repeats, clock)
        ratios.append(2 * block / (before + after))
        before = after
    return ratios


def coverage(nanwatch):
    report = json.loads(subprocess.run([nanwatch, "report", "--json"], check=True, capture_output=True, text=True).stdout)
    return report["coverage"]


def main():
    arguments = parse_arguments()
    names = arguments.steps.split(",")
    if len(names) == 1:
        return show(names[0], arguments)
    for name in names:  # Auto learns one job: each step has a process of its own, in which the last --steps counts.
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--steps", name], check=True)


def show(name, arguments):
    os.sched_setaffinity(0, {arguments.core})  # Before torch, so that its threads inherit it.
    import torch

    from observer_switch import AUTO, BARE, ObserverSwitch
    from training_steps import STEPS

    torch.set_num_threads(1)
    switch = ObserverSwitch()
    clock, rounds = clock_of(arguments), rounds_of(arguments)
    torch.manual_seed(0)
    step = STEPS[name]()
    if step is None:
        print(f"SKIPPED {name}: {sys.executable} lacks a package that it needs", flush=True)
        return
    switch.set(BARE)
    run_block(step, 3, clock)
    repeats = max(10, round(arguments.block_s / run_block(step, 5, clock)))
    switch.set(AUTO)
    for _ in range(2 if arguments.quick else max(2, round(arguments.settle_s / arguments.block_s))):
        run_block(step, repeats, clock)
    twin = compare(switch, BARE, step, repeats, rounds, clock)
    before = coverage(arguments.nanwatch)["steps_watched"]
    auto = compare(switch, AUTO, step, repeats, rounds, clock)
    after = coverage(arguments.nanwatch)
    watched = {level: int(count) - int(before.get(level, 0)) for level, count in after["steps_watched"].items()}
    steps = sum(watched.values())
    shares = ", ".join(f"{level} {100 * count / steps:.1f} %" for level, count in watched.items() if count)
    print(f"{step.description}: {rounds} blocks of {repeats} steps")
    for label, ratios in (("bare twin", twin), ("auto", auto)):
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"  {label:10} {middle:.4f} ({low:.4f} .. {high:.4f})")
    told = after["overhead_percent"]
    print(f"  watched    {shares}; " + ("nothing measured" if told is None else f"it says that it costs {told:.2f} %"), flush=True)


main()
