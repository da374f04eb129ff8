# SPDX-License-Identifier: Apache-2.0
"""What does an epoch of a DataLoader with workers cost under nanwatch? The median of paired ratios, wall clock and processor time.

    loader_epoch.py --preload LIBRARY [--rounds 21] [--workers 4] [--samples 1024] [--kind numpy|tensors] [--syscalls]

Two processes run one epoch at a time in turns, one with the library preloaded and one without, in an order drawn for each round. So
what disturbs the machine disturbs both. "numpy" is a data set whose samples are made by numpy, as most decoders and augmentations
are; "tensors" makes them by torch's ops, each of which is checked. --syscalls counts the system calls of an epoch instead (strace),
and ends with status 1 where the workers make more than SYSCALLS_PER_WORKER_MAX more than without.
"""
import argparse
import os
import pathlib
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SYSCALLS_PER_WORKER_MAX = 8
BATCH = 32


def be_trainer(kind, workers, samples):
    """Runs an epoch for each line that it reads, and writes what it took."""
    import numpy
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Samples(Dataset):
        def __len__(self):
            return samples

        def __getitem__(self, index):
            made = numpy.random.RandomState(index).rand(3, 64, 64).astype(numpy.float32)
            if kind == "numpy":
                made = (made - made.mean()) / (made.std() + 1e-6)
                return torch.from_numpy(made), index % 10
            sample = torch.from_numpy(made)
            sample = torch.nn.functional.pad(sample, (4, 4, 4, 4))[:, 2:66, 2:66].flip(2)
            return (sample - sample.mean()) / (sample.std() + 1e-6), index % 10

    torch.set_num_threads(1)
    loader = DataLoader(Samples(), BATCH, num_workers=workers)
    total = 0.0
    for line in sys.stdin:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        began = time.perf_counter()
        for images, _ in loader:
            total += images[:, 0, ::8, ::8].sum().item()  # whoever trains reads what it gets
        elapsed = time.perf_counter() - began
        now = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        processor = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(used, now))
        print(elapsed, processor, flush=True)


class Trainer:
    def __init__(self, arguments, environment, wrapper=()):
        command = [*wrapper, sys.executable, "-W", "ignore", __file__, "--be-trainer", "--kind", arguments.kind, "--workers", str(arguments.workers),
                   "--samples", str(arguments.samples)]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def epoch(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [float(part) for part in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def environments(arguments, folder):
    bare = {name: value for name, value in os.environ.items() if not name.startswith("NANWATCH") and name != "LD_PRELOAD"}
    bare["OMP_NUM_THREADS"] = "1"
    return {"bare": bare, "nanwatch": bare | {"LD_PRELOAD": arguments.preload, "NANWATCH_DIR": folder, "NANWATCH_STATE_DIR": folder + "/state"}}


def compare(arguments, folder):
    trainers = {name: Trainer(arguments, environment) for name, environment in environments(arguments, folder).items()}
    for trainer in trainers.values():
        trainer.epoch()  # what is made once
    ratios = [[], []]
    for _ in range(arguments.rounds):
        took = {name: trainers[name].epoch() for name in random.sample(list(trainers), 2)}
        for which in range(2):
            ratios[which].append(took["nanwatch"][which] / took["bare"][which])
    for trainer in trainers.values():
        trainer.close()
    for name, values in zip(("wall clock", "processor time"), ratios):
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{arguments.kind}, {arguments.workers} workers, {name}: {middle:.4f} ({low:.4f} .. {high:.4f}) of {arguments.rounds} pairs")


def count_syscalls(arguments, folder):
    """Of two epochs, by the workers alone: the median."""
    if shutil.which("strace") is None:
        print("SKIPPED: there is no strace")
        sys.exit(77)
    counts = {}
    for name, environment in environments(arguments, folder).items():
        traces = pathlib.Path(folder) / f"traces-{name}"
        traces.mkdir()
        # strace itself is not to be watched.
        given = [argument for variable in ("LD_PRELOAD", "NANWATCH_DIR", "NANWATCH_STATE_DIR") if variable in environment
                 for argument in ("-E", f"{variable}={environment[variable]}")]
        bare = {variable: value for variable, value in environment.items() if variable != "LD_PRELOAD"}
        trainer = Trainer(arguments, bare, ["strace", "-qq", "-ff", *given, "-o", str(traces / "trace")])
        trainer.epoch()
        trainer.epoch()
        trainer.close()
        all_of_them = [path.read_text(errors="replace") for path in traces.iterdir()]
        watched = any("libnanwatch_observer" in text for text in all_of_them)
        if watched != (name == "nanwatch"):
            sys.exit(f"loader_epoch: {name}: the observer was {'' if watched else 'not '}there")
        workers = [text for text in all_of_them if is_worker(text)]
        counts[name] = statistics.median(syscalls(text) for text in workers)
    more = counts["nanwatch"] - counts["bare"]
    print(f"system calls of a worker: {counts['bare']:.0f} bare, {counts['nanwatch']:.0f} under nanwatch (at most {SYSCALLS_PER_WORKER_MAX} more)")
    return more <= SYSCALLS_PER_WORKER_MAX


def is_worker(trace):
    """A process that never calls execve, and no thread."""
    return "execve(" not in trace and "set_robust_list(" in trace and "exit_group(" in trace


def syscalls(trace):
    """Without those whose number depends on who waits for whom."""
    waits = re.compile(r"^(futex|poll|ppoll|select|pselect6|epoll_|restart_syscall|sched_yield|clock_nanosleep|madvise|brk|mmap|munmap|mprotect|---|\+\+\+)")
    return sum(1 for line in trace.splitlines() if not waits.match(line))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", help="libnanwatch.so")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--samples", type=int, default=1024, help="in an epoch")
    parser.add_argument("--kind", choices=("numpy", "tensors"), default="numpy")
    parser.add_argument("--syscalls", action="store_true")
    parser.add_argument("--be-trainer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be_trainer:
        return be_trainer(arguments.kind, arguments.workers, arguments.samples)
    folder = tempfile.mkdtemp(prefix="nanwatch-bench-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        if arguments.syscalls:
            sys.exit(0 if count_syscalls(arguments, folder) else 1)
        compare(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
