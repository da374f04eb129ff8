# SPDX-License-Identifier: Apache-2.0
"""Runs a function as several ranks over gloo, each a fork of this process, and reads what nanwatch says of their job.

Starting Python and torch costs seconds, so one process does that once and forks the ranks of one job after another. They are
observed from their first op. No daemon: the verdict is read from the ranks' segments. A program ends with `main(run)`, which
starts it anew with the library preloaded.
"""
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

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "families"))
import watched_program  # noqa: E402

SECONDS_PER_JOB = 300


def be_rank(work, rank, count, job, meeting):
    """Never returns."""
    signal.alarm(SECONDS_PER_JOB)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), NANWATCH_JOB=job)
    status = 0
    try:
        dist.init_process_group("gloo", store=dist.FileStore(meeting, count), rank=rank, world_size=count)
        torch.manual_seed(rank)
        work(rank, count)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        status = 1
        traceback.print_exc()
    os._exit(status)


def run_job(work, count, job, environment):
    """The statuses of the ranks, and the verdict; None when there is none."""
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(count):
            pid = os.fork()
            if pid == 0:
                be_rank(work, rank, count, job, folder + "/meeting")
            ranks.append(pid)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    told = subprocess.run([str(watched_program.NANWATCH), "report", "--json", job], env=environment, capture_output=True, text=True)
    for segment in glob.glob(os.path.join(environment["NANWATCH_DIR"], "nw-*.seg")):
        os.unlink(segment)
    return statuses, json.loads(told.stdout) if told.returncode == 0 else None


def anomalies(verdict):
    return [incident for incident in verdict["incidents"] if incident["severity"] != "info"]


def main(run, preload=""):
    """`run` gets the environment of `nanwatch report`; `preload` is a library of the test's own."""
    if watched_program.LIBRARY not in os.environ.get("LD_PRELOAD", ""):
        for name in list(os.environ):  # what the caller has set for jobs of its own
            if name.startswith("NANWATCH") and name not in watched_program.OF_TESTS or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
                del os.environ[name]
        shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        folder = tempfile.mkdtemp(prefix="nanwatch-test-", dir=shared_memory)
        os.environ.update(LD_PRELOAD=f"{preload} {watched_program.LIBRARY}", NANWATCH_DIR=folder, NANWATCH_STATE_DIR=folder + "/state")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    try:
        run(watched_program.prepare())
    finally:
        shutil.rmtree(os.environ["NANWATCH_DIR"], ignore_errors=True)
