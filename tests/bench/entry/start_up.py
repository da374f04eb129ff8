# SPDX-License-Identifier: Apache-2.0
"""What does the preload cost a process at its start?

  start_up.py LIBRARY [--pairs N] [--torch-pairs N] [--python PY] [--cpu]

Runs pairs of the same program, bare and with LIBRARY preloaded, in alternating order, and prints
the median of each, the median of the differences within the pairs, and that of a bare twin (two
bare runs) as the noise of the method. Times are wall clock from before the spawn to after the
wait, in milliseconds. `import torch` runs with whatever observer lies beside LIBRARY.
"""

import argparse
import os
import statistics
import sys
import time


def run_ms(command, preload, processor_time):
    environment = {name: value for name, value in os.environ.items()
                   if name != "LD_PRELOAD" and not name.startswith("NANWATCH")}
    if preload:
        environment["LD_PRELOAD"] = preload
    begin = time.perf_counter_ns()
    child = os.posix_spawn(command[0], command, environment)
    _, status, usage = os.wait4(child, 0)
    end = time.perf_counter_ns()
    if status != 0:
        sys.exit(f"{command} ended with wait status {status}")
    if processor_time:
        return (usage.ru_utime + usage.ru_stime) * 1e3
    return (end - begin) / 1e6


def differences(command, first, second, pairs, processor_time):
    """Medians of both, and of second minus first within a pair; every other pair runs reversed."""
    one, two = [], []
    for pair in range(pairs):
        order = [(one, first), (two, second)]
        for times, preload in order if pair % 2 == 0 else reversed(order):
            times.append(run_ms(command, preload, processor_time))
    within = statistics.median(b - a for a, b in zip(one, two))
    return statistics.median(one), statistics.median(two), within


def measure(name, command, library, pairs, processor_time):
    run_ms(command, None, processor_time)
    run_ms(command, library, processor_time)
    _, _, noise = differences(command, None, None, pairs, processor_time)
    bare, preloaded, cost = differences(command, None, library, pairs, processor_time)
    print(f"{name:16} bare {bare:9.3f} ms   preloaded {preloaded:9.3f} ms   "
          f"difference {cost:+8.3f} ms ({100 * cost / bare:+.2f} %)   "
          f"bare twin {noise:+8.3f} ms   {pairs} pairs", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=os.path.abspath)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--torch-pairs", type=int, default=0)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cpu", action="store_true",
                        help="processor time of the program, for a machine that is busy otherwise")
    options = parser.parse_args()
    measure("/bin/true", ["/bin/true"], options.library, options.pairs, options.cpu)
    python = os.path.abspath(options.python)
    measure("python -c pass", [python, "-c", "pass"], options.library, max(1, options.pairs // 10),
            options.cpu)
    if options.torch_pairs:
        command = [python, "-c", "import torch"]
        measure("import torch", command, options.library, options.torch_pairs, options.cpu)


if __name__ == "__main__":
    main()
