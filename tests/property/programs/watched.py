"""Runs generated programs under nanwatch and prints what it said, one JSON line per program.

  LD_PRELOAD=PREFIX/lib/libnanwatch.so NANWATCH_DIR=... watched.py NANWATCH FIRST COUNT

Starting Python and torch costs two seconds, so one process does that once and forks a child for each program. A forked
child is silent until it trains, so each begins with a healthy step; from there it has an observer and a segment of its own. No daemon: the verdict is read from the child's segment when it has ended, by the same code that `nanwatch report` always uses.
"""
import gc
import glob
import json
import os
import signal
import subprocess
import sys
import traceback

import numpy  # noqa: F401  (so that children need not import it)
import torch
import torch.nn
import torch.utils.checkpoint  # noqa: F401

import generate

SECONDS_PER_PROGRAM = 60


def warm_up():
    """A whole healthy step: the backward pass wakes the observer, the update ends what the pass began."""
    parameter = torch.zeros(1, requires_grad=True)
    parameter.sum().backward()
    with torch.no_grad():
        parameter.sub_(parameter.grad)


def child(text):
    """Never returns."""
    signal.alarm(SECONDS_PER_PROGRAM)
    status = 0
    try:
        warm_up()
        exec(compile(text, "program.py", "exec"), {"__name__": "__main__"})
    except BaseException:
        status = 1
        if "NANWATCH_PROGRAMS_VERBOSE" in os.environ:
            traceback.print_exc()
    os._exit(status)


def report(nanwatch, segment, environment):
    run = os.path.basename(segment).rpartition("-")[2].removesuffix(".seg")
    told = subprocess.run([nanwatch, "report", "--json", run], env=environment, capture_output=True, text=True)
    return json.loads(told.stdout) if told.returncode == 0 else None


def watch(nanwatch, text, environment):
    """How the program ended, and the verdict; None when there is none."""
    pid = os.fork()
    if pid == 0:
        child(text)
    _, status = os.waitpid(pid, 0)
    segments = glob.glob(os.path.join(environment["NANWATCH_DIR"], f"nw-{pid}-*.seg"))
    verdict = report(nanwatch, segments[0], environment) if len(segments) == 1 else None
    for segment in segments:
        os.unlink(segment)
    return status, verdict


def prepare():
    """Once, before the first fork. Returns the environment of `nanwatch report`."""
    torch.set_num_threads(1)
    # What optimizers import on first use is imported once; pages that hold what is there already stay shared with the children.
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    gc.collect()
    gc.freeze()
    return {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}


def main():
    nanwatch, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    environment = prepare()
    for seed in range(first, first + count):
        status, verdict = watch(nanwatch, generate.generate(seed)[0], environment)
        print(json.dumps({"seed": seed, "status": status, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
