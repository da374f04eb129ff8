# SPDX-License-Identifier: Apache-2.0
"""Runs programs given as text under nanwatch, each in a fork of this process, and reads what was said of them.

Starting Python and torch costs two seconds, so one process does that once and forks a child for each program. A forked
child is silent until it trains, so each begins with a healthy step; from there it has an observer and a segment of its own.
No daemon: the verdict is read from the child's segment when it has ended, by the same code that `nanwatch report` always uses.

A test file ends with `main()`, which starts it anew with the library preloaded.
"""
import gc
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import unittest

import numpy  # noqa: F401  (so that children need not import it)
import torch
import torch.nn
import torch.utils.checkpoint  # noqa: F401

BUILD = pathlib.Path(os.environ.get("NANWATCH_BUILD") or pathlib.Path(__file__).resolve().parents[3] / "build/release")
NANWATCH = BUILD / "bin/nanwatch"
LIBRARY = str(BUILD / "lib/libnanwatch.so")
LATE_COMPILER = str(pathlib.Path(__file__).resolve().parents[2] / "fakes/late_compiler")
SECONDS_PER_PROGRAM = 300
DEVICE = "NANWATCH_PROGRAMS_DEVICE"
OF_TESTS = ("NANWATCH_BUILD", "NANWATCH_PROGRAMS_VERBOSE", DEVICE)


def warm_up():
    """A whole healthy step: the backward pass wakes the observer, the update ends what the pass began."""
    parameter = torch.zeros(1, requires_grad=True)
    parameter.sum().backward()
    with torch.no_grad():
        parameter.sub_(parameter.grad)


def use_device(device):
    """Makes a device the default one, also of what comes from numpy. In the child alone: CUDA cannot be brought up again in a fork."""
    from_numpy = torch.from_numpy
    torch.from_numpy = lambda array: from_numpy(array).to(device)
    torch.set_default_device(device)


def child(text):
    """Never returns."""
    signal.alarm(SECONDS_PER_PROGRAM)
    status = 0
    try:
        if DEVICE in os.environ:
            use_device(os.environ[DEVICE])
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


def brief(incident):
    """What a failed test shows of an incident."""
    told = ("kind", "class", "op", "phase", "autograd_node", "layer", "param", "step", "micro_step", "source")
    return {**{name: incident["origin"][name] for name in told}, "reach": incident["reach"], "count": incident["count"]}


def prepare():
    """Once, before the first fork. Returns the environment of `nanwatch report`."""
    torch.set_num_threads(1)
    # What optimizers import on first use is imported once; pages that hold what is there already stay shared with the children.
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    gc.collect()
    return {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}


class WatchedProgramTest(unittest.TestCase):
    """Each case gives the text of a program and says what is right."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.environment = prepare()

    def verdict_of(self, text, status=0):
        ended, verdict = watch(str(NANWATCH), text, self.environment)
        self.assertEqual(ended, status, "the program failed: NANWATCH_PROGRAMS_VERBOSE=1 shows what it raised")
        self.assertIsNotNone(verdict, "no verdict")
        return verdict

    def assert_anomaly(self, text, pattern=None, reach=None, **origin):
        """The first incident has these fields of an origin, this pattern (an id, "" for none) and this reach; returns it."""
        verdict = self.verdict_of(text)
        self.assertEqual(verdict["verdict"], "anomaly", [brief(each) for each in verdict["incidents"]])
        incident = verdict["incidents"][0]
        self.assertEqual({name: incident["origin"][name] for name in origin}, origin,
                         [brief(each) for each in verdict["incidents"]])
        if pattern is not None:
            self.assertEqual((incident.get("pattern") or {}).get("id", ""), pattern)
        if reach is not None:
            self.assertEqual(sorted(incident["reach"]), sorted(reach))
        return incident

    def assert_no_alarm(self, text, verdict="expected"):
        """`expected` where something bad is there and harmless, `clean` where nothing is."""
        said = self.verdict_of(text)
        self.assertEqual(said["verdict"], verdict, [brief(each) for each in said["incidents"]])


def main():
    if LIBRARY not in os.environ.get("LD_PRELOAD", ""):
        for name in list(os.environ):  # what the caller has set for jobs of its own
            if name.startswith("NANWATCH") and name not in OF_TESTS or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
                del os.environ[name]
        os.environ["LD_PRELOAD"] = LIBRARY
        os.environ["PYTHONPATH"] = os.pathsep.join([LATE_COMPILER, *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ["NANWATCH_DIR"] = tempfile.mkdtemp(prefix="nanwatch-test-",
                                                      dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        os.environ["NANWATCH_STATE_DIR"] = os.environ["NANWATCH_DIR"] + "/state"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    try:
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(os.environ["NANWATCH_DIR"], ignore_errors=True)
