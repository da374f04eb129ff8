# SPDX-License-Identifier: Apache-2.0
"""What the benches that time steps share: their arguments, the one core they run on, and a stretch of steps that is timed."""
import argparse
import gc
import os
import time


def make_parser(description, rounds, quick_rounds):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="mlp,bert,resnet,gpt")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--quick", action="store_true", help=f"{quick_rounds} rounds: shows that it works, not what it costs")
    parser.set_defaults(quick_rounds=quick_rounds)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="cpu: this process's own time, for a machine on which something else runs")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    return parser


def rounds_of(arguments):
    return arguments.quick_rounds if arguments.quick else arguments.rounds


def clock_of(arguments):
    return time.perf_counter if arguments.clock == "wall" else time.process_time


def seconds_a_step(step, repeats, clock):
    gc.disable()
    started = clock()
    for _ in range(repeats):
        step.run()
    elapsed = clock() - started
    gc.enable()
    return elapsed / repeats
