# SPDX-License-Identifier: Apache-2.0
"""What does looking for NaN cost a training step? Ratios to the bare step, of nanwatch and of the ways people do it by hand.

All ways are run in one process, in an order drawn anew for every round, on one pinned core with one thread: what disturbs the
machine disturbs all alike. "bare twin" is the bare step once more; how far it is from 1 is what a ratio can be trusted to.
Run by scripts/bench.sh, which preloads the library.
"""
import gc
import json
import os
import random
import statistics
import sys

from timing import clock_of, make_parser, rounds_of, seconds_a_step


def parse_arguments():
    parser = make_parser(__doc__, rounds=31, quick_rounds=5)
    parser.add_argument("--ways", help="some of the ways only, separated by commas; bare is always run")
    parser.add_argument("--visit-ms", type=float, default=100,
                        help="a visit repeats the step this long: the shorter, the less a machine's moods come between a way and bare")
    parser.add_argument("--threads", type=int, default=1, help="of the step, on as many cores")
    parser.add_argument("--json", metavar="FILE", help="also write every median and minimum here")
    return parser.parse_args()


def time_visit(step, repeats, clock):
    """Seconds per step; one more step is run first, untimed."""
    step.run()
    return seconds_a_step(step, repeats, clock)


def measure(step, ways, rounds, visit_s, clock):
    """Name of the way to its seconds per step, one value a round."""
    with ways["bare"]():
        time_visit(step, 2, clock)
        repeats = max(1, round(visit_s / time_visit(step, 3, clock)))
    seconds = {name: [] for name in ways}
    for _ in range(rounds):
        gc.collect()
        for name in random.sample(list(ways), len(ways)):
            with ways[name]():
                seconds[name].append(time_visit(step, repeats, clock))
    return seconds


def summarize(seconds):
    """For each way: median and least milliseconds, and the ratio to the same round's bare step: median and quartiles.

    What a machine does to all steps of a round for a while, a round's own ratio does not show.
    """
    summary = {}
    for name, values in seconds.items():
        low, middle, high = statistics.quantiles(_ratios(values, seconds["bare"]), n=4)
        summary[name] = {"median_ms": 1e3 * statistics.median(values), "least_ms": 1e3 * min(values),
                         "ratio": middle, "ratio_quartiles": [low, high]}
    if "nanwatch full" in seconds and "empty outputs callback" in seconds:
        summary["nanwatch full"]["over_empty"] = statistics.median(
            _ratios(seconds["nanwatch full"], seconds["empty outputs callback"]))
    return summary


def _ratios(values, bases):
    return [value / base for value, base in zip(values, bases)]


def print_table(results):
    names = list(results)
    print("\n| ratio to the bare step: median of the rounds' own (quartiles) | " + " | ".join(results[n]["description"] for n in names) + " |")
    print("|---|" + "---|" * len(names))
    print("| bare step, median | " + " | ".join(f"{results[n]['ways']['bare']['median_ms']:.3g} ms" for n in names) + " |")
    for way in list(results[names[0]]["ways"])[1:]:
        cells = (results[n]["ways"][way] for n in names)
        print(f"| {way} | " + " | ".join(f"{c['ratio']:.3f} ({c['ratio_quartiles'][0]:.3f} .. {c['ratio_quartiles'][1]:.3f})" for c in cells) + " |")
    if all("over_empty" in results[n]["ways"].get("nanwatch full", {}) for n in names):
        over = (results[n]["ways"]["nanwatch full"]["over_empty"] for n in names)
        print("| nanwatch full over the empty callback | " + " | ".join(f"{ratio:.3f}" for ratio in over) + " |")


def main():
    arguments = parse_arguments()
    # Before torch, so that its threads inherit it.
    os.sched_setaffinity(0, {arguments.core} if arguments.threads == 1 else sorted(os.sched_getaffinity(0))[-arguments.threads:])
    import torch

    from methods import methods
    from observer_switch import ObserverSwitch
    from training_steps import STEPS

    torch.set_num_threads(arguments.threads)
    switch = ObserverSwitch()
    clock, rounds = clock_of(arguments), rounds_of(arguments)
    visit_s = arguments.visit_ms / 1e3
    results = {}
    for name in arguments.steps.split(","):
        torch.manual_seed(0)
        step = STEPS[name]()
        if step is None:
            print(f"SKIPPED {name}: {sys.executable} lacks a package that it needs", flush=True)
            continue
        print(f"{step.description}, {rounds} rounds", file=sys.stderr, flush=True)
        ways = methods(switch, step.model)
        if arguments.ways:
            asked = ["bare", *arguments.ways.split(",")]
            if unknown := [way for way in asked if way not in ways]:
                sys.exit(f"step_overhead: no way is called '{unknown[0]}': there are {', '.join(ways)}")
            ways = {way: ways[way] for way in asked}
        results[name] = {"description": step.description, "ways": summarize(measure(step, ways, rounds, visit_s, clock))}
    print_table(results)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"torch": torch.__version__, "rounds": rounds, "clock": arguments.clock, "steps": results}, file, indent=1)


main()
