# SPDX-License-Identifier: Apache-2.0
"""Whole programs under `nanwatch run` on a GPU, and what was said of each: one row a program, with what is needed to see why it is wrong.

A program that was written for the CPU is run with the GPU as its default device (default_cuda/). What is then wrong, or ended badly, is
run bare as well: where it cannot run so at all, it says nothing about nanwatch.
"""
import argparse
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from unittest import mock

import torch

from answers import CannotAsk

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "corpus"))
import run as corpus  # noqa: E402
from process_groups import at_once  # noqa: E402

BARE_TIMEOUT_S = 60
BARE_SHARE = 0.3  # of a question's time
corpus.TIMEOUT_S = 90
LINES_KEPT = 20
KEPT_BYTES = 256 << 10  # of a log
# What programs die of whose tensors are on two devices; a program may also end badly because it should.
OF_THE_DEVICE = ("device", "cuda", "CUDA", "numpy", "can't convert")
# Of the tensors that are checked. What is not looked at is healthy, too.
PASSED_OVER_MAX = 0.02
STEPPED_DOWN = "go unchecked from here on"  # shim/observe/gpu/event_queue.cc
# Sixteen programs at a time on as many cores: threads of their own would only be in each other's way.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def add_options(parser):
    parser.add_argument("--nanwatch", type=pathlib.Path, default=pathlib.Path("build/gpu/prefix/bin/nanwatch"))
    parser.add_argument("--launcher", help="a Python program, with its arguments, that runs each program given to it")
    parser.add_argument("--evidence", type=pathlib.Path, metavar="DIR", help="keep logs and verdict documents of what was wrong here")
    parser.add_argument("-j", "--jobs", type=int, default=max(1, min(16, os.cpu_count() or 2)), help="programs at a time")
    parser.set_defaults(bare_ends={})  # by program: how it ended bare, for all questions of this process


def require(arguments):
    if not arguments.dry_run and not torch.cuda.is_available():
        raise CannotAsk("no GPU")
    if not arguments.nanwatch.exists():
        raise CannotAsk(f"{arguments.nanwatch} is not there")


def environment_of(arguments, on_default_device):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH")} | ONE_THREAD
    if on_default_device:
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE / "default_cuda"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment["GPU_CHECK_DEVICE"] = "cpu" if arguments.dry_run else "cuda"
    return environment


def bare_end(program, environment, groups, deadline):
    """"" where a program runs with the GPU as its default device, bare, else its last words; None: there was no time to
    see."""
    with tempfile.TemporaryDirectory() as workplace, tempfile.TemporaryFile() as errors:
        left = deadline - time.monotonic()
        status = None if left <= 0 else groups.run([sys.executable, program], min(BARE_TIMEOUT_S, left), cwd=workplace, env=environment,
                                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip().splitlines()[-1:] or [f"exit status {status}"]
    if status is None:
        return None if left < BARE_TIMEOUT_S else f"did not end within {BARE_TIMEOUT_S} s, bare"
    return words[0][:200] if status != 0 and any(word in words[0] for word in OF_THE_DEVICE) else ""


def bare_ends(programs, arguments, environment, deadline):
    """By name, of programs that cannot run bare, their last words. None is run twice, whatever level it is asked about."""
    unknown = [program for program in programs if program.stem not in arguments.bare_ends]
    with at_once(arguments.jobs) as (pool, groups):
        ends = pool.map(lambda program: bare_end(program, environment, groups, deadline), unknown)
        arguments.bare_ends |= {program.stem: end for program, end in zip(unknown, ends) if end is not None}
    return {program.stem: arguments.bare_ends[program.stem] for program in programs if arguments.bare_ends.get(program.stem)}


def lines_of(log):
    return log.read_text(errors="replace").splitlines() if log.exists() else []


def is_looked_at(checked, unchecked):
    """Whether next to all tensors of a job were: of the others, a few go by while the checker begins."""
    passed_over = unchecked.get("gpu_not_ready", 0) + unchecked.get("gpu_busy", 0)
    return checked > 0 and passed_over <= PASSED_OVER_MAX * checked and not unchecked.get("other_device")


def row_of(expected, out, trouble):
    """What was said of one program, from its verdict document and its log in `out`."""
    verdict, lines = corpus.read_verdict(out / f"{expected['id']}.json"), lines_of(out / f"{expected['id']}.log")
    judged = corpus.judge(expected, verdict)
    coverage = (verdict or {}).get("coverage") or {}
    counts, checked = coverage.get("unchecked") or {}, int(coverage.get("tensors_checked") or 0)
    unchecked = {reason: int(counts[reason]) for reason in ("other_device", "gpu_not_ready", "gpu_busy") if int(counts.get(reason, 0))}
    stepped_down = [line for line in lines if STEPPED_DOWN in line]
    judged["looked_at"] = is_looked_at(checked, unchecked)
    right = all(judged.values()) and not stepped_down and not trouble
    row = {"right": right, "exit_code": ((verdict or {}).get("run") or {}).get("exit_code"), "tensors_checked": checked, "gpu_tensors_unchecked": unchecked,
           "stepped_down": stepped_down[:1], "verdict": verdict}
    if not right:
        row |= {"not_right": [field for field, one in judged.items() if not one], "said": corpus.describe(verdict), "trouble": trouble,
                "nanwatch_lines": [line for line in lines if line.startswith("nanwatch:")][:LINES_KEPT], "log_ends": lines[-LINES_KEPT:]}
    return row


def keep(ids, out, folder):
    """Copies logs, their ends where they are long, and verdict documents."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ids:
        if (out / f"{name}.json").exists():
            shutil.copy(out / f"{name}.json", folder)
        if (out / f"{name}.log").exists():
            (folder / f"{name}.log").write_bytes((out / f"{name}.log").read_bytes()[-KEPT_BYTES:])


def rows_of(folder, ids, arguments, on_default_device=False, level="full"):
    """By program of a folder, its row; `ids` None: of all. Also those that cannot run on a GPU, bare, and those left out for time."""
    require(arguments)
    settings = argparse.Namespace(launcher=arguments.launcher, nanwatch=arguments.nanwatch, python=sys.executable, programs=folder, level=level,
                                  jobs=arguments.jobs, only=",".join(ids) if ids else None, without="", share="1/1", sample_limit=None,
                                  capsules=None)
    expectations = corpus.chosen_programs(settings)
    environment, ends_at = environment_of(arguments, on_default_device), getattr(arguments, "ends_at", math.inf)
    # The rest is for running bare what was wrong: until then it may be the program's own fault.
    watched_until = ends_at - BARE_SHARE * (ends_at - time.monotonic()) if on_default_device and math.isfinite(ends_at) else ends_at
    with tempfile.TemporaryDirectory() as name:
        out = pathlib.Path(name)
        with mock.patch.dict(os.environ, environment):
            troubles = corpus.run_programs(expectations, settings, out, watched_until)
        left_out = [e["id"] for e in expectations if troubles[e["id"]] == corpus.LEFT_OUT]
        rows = {e["id"]: row_of(e, out, troubles[e["id"]]) for e in expectations if e["id"] not in left_out}
        doubtful = [folder / f"{one}.py" for one, row in rows.items() if not row["right"] or row["exit_code"] != 0]
        cannot = bare_ends(doubtful, arguments, environment, ends_at) if on_default_device else {}
        rows = {one: row | ({"tried_bare": one in arguments.bare_ends} if on_default_device and not row["right"] else {})
                for one, row in rows.items() if one not in cannot}
        if arguments.evidence:
            keep([one for one, row in rows.items() if not row["right"]], out, arguments.evidence / f"{folder.name}-{level}")
    return rows, cannot, left_out
