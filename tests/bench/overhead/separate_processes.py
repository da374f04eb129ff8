# SPDX-License-Identifier: Apache-2.0
"""What does a process pay that has the library loaded, beside one that has not? step_overhead.py cannot say: its bare step runs in a
process that has it, and so hides what even level idle costs.

One process for each way, on the same core. They run blocks of steps one after another, in an order drawn anew for every round, and a
ratio is of two blocks of one round.

  separate_processes.py --preload .../libnanwatch.so [--steps mlp,bert] [--levels idle,full]
"""
import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile

from timing import clock_of, make_parser, rounds_of, seconds_a_step


def parse_arguments():
    parser = make_parser(__doc__, rounds=40, quick_rounds=5)
    parser.add_argument("--preload")
    parser.add_argument("--levels", default="idle,canary,full")
    parser.add_argument("--block-ms", type=float, default=200)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def child(name, arguments):
    """For each number of steps on stdin, the seconds that one of them took on stdout."""
    import torch
    from training_steps import STEPS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = STEPS[name]()
    for line in sys.stdin:
        print(seconds_a_step(step, int(line), clock_of(arguments)) if step else "none", flush=True)


class Way:
    def __init__(self, name, environment):
        command = [sys.executable, __file__, *sys.argv[1:], "--steps", name, "--child"]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, repeats):
        print(repeats, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        return None if answer == "none" else float(answer)

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def show(name, arguments, place):
    ours = {"NANWATCH_DIR": place, "NANWATCH_STATE_DIR": place, "NANWATCH_MEASURE": "0", "LD_PRELOAD": arguments.preload}
    levels = arguments.levels.split(",")
    ways = {"none": Way(name, os.environ)} | {level: Way(name, os.environ | ours | {"NANWATCH_LEVEL": level}) for level in levels}
    try:
        warm = [way.seconds(120) for way in ways.values()]  # canary watches the ops of the first 100 updates
        if None in warm:
            return print(f"SKIPPED {name}: {sys.executable} lacks a package that it needs", flush=True)
        repeats = max(2, round(arguments.block_ms / 1e3 / warm[0]))
        ratios = {level: [] for level in levels}
        for _ in range(rounds_of(arguments)):
            seconds = {way: ways[way].seconds(repeats) for way in random.sample(list(ways), len(ways))}
            for level in levels:
                ratios[level].append(seconds[level] / seconds["none"])
    finally:
        for way in ways.values():
            way.close()
    cells = []
    for level in levels:
        low, middle, high = statistics.quantiles(ratios[level], n=4)
        cells.append(f"{middle:.3f} ({low:.3f} .. {high:.3f})")
    print(f"| {name}, {1e3 * warm[0]:.2f} ms | " + " | ".join(cells) + " |", flush=True)


def main():
    arguments = parse_arguments()
    os.sched_setaffinity(0, {arguments.core})
    if arguments.child:
        return child(arguments.steps, arguments)
    levels = arguments.levels.split(",")
    print("| ratio to a process without the library | " + " | ".join(levels) + " |\n|---|" + "---|" * len(levels), flush=True)
    with tempfile.TemporaryDirectory() as place:
        for name in arguments.steps.split(","):
            show(name, arguments, place)


main()
