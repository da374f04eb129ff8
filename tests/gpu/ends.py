# SPDX-License-Identifier: Apache-2.0
"""Questions about the end of a job: does a watched process end as it ends bare, in every way and however often, and live as long?

The processes are under the preload library alone, each with the level that is asked about; there is no tool and no daemon. What differs
from the bare program in exit status or standard output is told, by its status.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

import torch

import answers
from answers import Answer, CannotAsk, Question
from watched import HERE, add_options, at_once

LEVELS = ("canary", "sampled", "full", "auto")
C078_TIMES, KIND_ROUNDS = 200, int(os.environ.get("GPU_CHECK_KIND_ROUNDS", "25"))
END_S_MAX = 300  # of one process, or of all of exit_soak.py
SOAK = HERE.parent / "e2e/gpu/exit_soak.py"
# What needs the fake device.
ONLY_FAKE = ("stuck_stream",)
# The queue of a job is 32 MiB. A step has about 1,500 events of 2 KB at level full: this one is used up in each.
QUEUE_BYTES = 1 << 20
GPT = """
import os, sys, torch
sys.path.insert(0, sys.argv[1])
import models
step = models.gpt2("cuda" if torch.cuda.is_available() else "cpu", sys.argv[2] == "tiny")
for i in range(int(sys.argv[3])): step.run()
print("done")
"""
RESET = """
import sys, time, torch
if not torch.cuda.is_available(): print("done"); sys.exit()
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(20):
    optimizer.zero_grad(); model(torch.ones(4, 8, device="cuda")).sum().backward(); optimizer.step()
torch.cuda.synchronize()
torch.cuda.cudart().cudaDeviceReset()
time.sleep(0.5)  # of the observer's thread, which goes on
print("done", flush=True)
import os; os._exit(0)
"""


def library_of(arguments):
    library = arguments.nanwatch.resolve().parents[1] / "lib/libnanwatch.so"
    if not library.exists():
        raise CannotAsk(f"{library} is not there")
    if not arguments.dry_run and not torch.cuda.is_available():
        raise CannotAsk("no GPU")
    return library


def environment_of(library, folder, level):
    """Of a watched process; `level` None: of a bare one."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH") and k != "LD_PRELOAD"} | {"OMP_NUM_THREADS": "1"}
    if level is None:
        return environment
    return environment | {"LD_PRELOAD": str(library), "NANWATCH_LEVEL": level, "NANWATCH_DIR": str(folder), "NANWATCH_STATE_DIR": f"{folder}/state"}


def end_of(command, environment, deadline):
    """(status, standard output), or None where there was no time."""
    left = min(END_S_MAX, deadline - time.monotonic())
    if left <= 0:
        return None
    try:
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=left, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        return ("did not end", "") if left == END_S_MAX else None
    return ran.returncode, ran.stdout


def ends(arguments, command, times, **extra):
    """By level, how often the program ended as it does bare, and with which statuses it did not."""
    library, deadline = library_of(arguments), getattr(arguments, "ends_at", time.monotonic() + 600)
    with tempfile.TemporaryDirectory() as folder:
        bare = end_of(command, environment_of(library, folder, None) | extra, deadline)
        if bare is None:
            raise CannotAsk("its time was over before the bare program had ended")
        turns = [level for _ in range(times) for level in LEVELS]
        with at_once(arguments.jobs) as (pool, _):
            found = list(pool.map(lambda level: end_of(command, environment_of(library, folder, level) | extra, deadline), turns))
    told = {level: {"as_bare": 0, "otherwise": collections.Counter(), "left_out_for_time": 0} for level in LEVELS}
    for level, end in zip(turns, found):
        if end is None:
            told[level]["left_out_for_time"] += 1
        elif end == bare:
            told[level]["as_bare"] += 1
        else:
            told[level]["otherwise"][str(end[0])] += 1
    return {"bare_status": bare[0], "levels": told}


def judged(arguments, told, times):
    bad = [level for level, row in told["levels"].items() if row["otherwise"]]
    if arguments.dry_run and bad:
        raise RuntimeError(f"not as bare even on the CPU: {told}")
    whole = all(row["as_bare"] == times for row in told["levels"].values())
    return Answer(told, False if bad else True if whole else None)


def c078(arguments):
    times = 1 if arguments.dry_run else C078_TIMES
    command = [sys.executable, str(HERE.parent / "corpus/programs/c078.py")]
    device = "cpu" if arguments.dry_run else "cuda"
    return judged(arguments, ends(arguments, command, times, PYTHONPATH=str(HERE / "default_cuda"), GPU_CHECK_DEVICE=device), times)


def queue(arguments):
    times = 1
    command = [sys.executable, "-c", GPT, str(HERE), *(("tiny", "3") if arguments.dry_run else ("whole", "150"))]
    return judged(arguments, ends(arguments, command, times, NANWATCH_TEST_GPU_QUEUE_BYTES=str(QUEUE_BYTES)), times)


def reset(arguments):
    times = 1 if arguments.dry_run else 5
    return judged(arguments, ends(arguments, [sys.executable, "-c", RESET], times), times)


def kinds(arguments):
    """exit_soak.py: one process a level, with a child for each exit, which brings CUDA up itself."""
    library = library_of(arguments)
    if arguments.dry_run and not torch.cuda.is_available():
        return Answer({})
    deadline = getattr(arguments, "ends_at", time.monotonic() + 600)
    names = subprocess.run([sys.executable, SOAK, "--kinds"], capture_output=True, text=True, check=True, env=environment_of(library, ".", None)).stdout.split()
    chosen = [name for name in names if name not in ONLY_FAKE]
    with tempfile.TemporaryDirectory() as folder:
        def soaked(level):
            rounds = 1 if level is None else KIND_ROUNDS
            end = end_of([sys.executable, str(SOAK), str(rounds), *chosen], environment_of(library, folder, level), deadline)
            return json.loads(end[1]) if end is not None and end[0] == 0 else None
        with at_once(min(arguments.jobs, len(LEVELS) + 1)) as (pool, _):
            bare, *watched = pool.map(soaked, (None, *LEVELS))
    if bare is None or None in watched:
        raise CannotAsk("its time was over")
    told = {}
    for level, document in zip(LEVELS, watched):
        for kind, found in document.items():
            same = {(one["status"], one["stdout"]) for one in bare[kind]["outcomes"]}
            otherwise = [one for one in found["outcomes"] if (one["status"], one["stdout"]) not in same]
            if otherwise:
                told[f"{level} {kind}"] = [{"status": one["status"], "times": one["times"], "stderr": one["stderr"][-300:]} for one in otherwise]
    return Answer({"exits": KIND_ROUNDS * len(chosen) * len(LEVELS), "kinds": chosen, "otherwise": told}, not told)


GOAL = "every one as bare"
QUESTIONS = [
    Question("ends.c078", "does c078 end 200 times at each level as it ends bare?", c078, GOAL, weight=4),
    Question("ends.kinds", "do processes end as bare by a return, a status, an exception, signals, a thread, in a capture, by exit handlers?", kinds, GOAL, weight=3),
    Question("ends.queue", "does a GPT training live that uses up the queue of events several times?", queue, GOAL, weight=2),
    Question("ends.reset", "does a job live on when the device is reset in the middle of its run?", reset, GOAL),
]

if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
