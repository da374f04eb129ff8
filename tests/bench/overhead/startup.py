# SPDX-License-Identifier: Apache-2.0
"""What does the preload library cost a process at its start? /bin/true, a Python, and a Python that imports torch, with and without.

The two are run in turn, in an order drawn anew for every pair; the answer is the median of the pairs' differences.

Usage: startup.py --preload libnanwatch.so [--python PYTHON] [--quick]
"""
import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time


def run_ms(command, environment):
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - started)


def measure(command, pairs, preloaded):
    """Two lists of milliseconds: without and with the library."""
    bare_environment = {k: v for k, v in preloaded.items() if k != "LD_PRELOAD"}
    ways = [(bare_environment, []), (preloaded, [])]
    for environment, _ in ways:  # File caches.
        run_ms(command, environment)
    for _ in range(pairs):
        for environment, values in random.sample(ways, 2):
            values.append(run_ms(command, environment))
    return ways[0][1], ways[1][1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--quick", action="store_true", help="few pairs: shows that it works, not what it costs")
    arguments = parser.parse_args()
    cases = {"/bin/true": (["/bin/true"], 400), "python -c pass": ([arguments.python, "-c", "pass"], 100),
             "import torch": ([arguments.python, "-c", "import torch"], 21)}
    with tempfile.TemporaryDirectory() as segments:
        environment = os.environ | {"LD_PRELOAD": arguments.preload, "NANWATCH_DIR": segments}
        print("\n| start of | without | with, less without: median (quartiles) | ratio |\n|---|---|---|---|")
        for name, (command, pairs) in cases.items():
            without, with_it = measure(command, max(3, pairs // 10) if arguments.quick else pairs, environment)
            differences = [b - a for a, b in zip(without, with_it)]
            low, middle, high = statistics.quantiles(differences, n=4)
            base = statistics.median(without)
            print(f"| {name} | {base:.2f} ms | {middle:+.2f} ms ({low:+.2f} to {high:+.2f}) | {1 + middle / base:.3f} |", flush=True)


main()
