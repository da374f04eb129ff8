# SPDX-License-Identifier: Apache-2.0
"""Ends processes that train on the fake GPU, in every way that a process can end, and counts how they ended.

  tests/fakes/torch_cuda/run.py tests/e2e/gpu/exit_soak.py ROUNDS [KIND ...]
  tests/e2e/gpu/exit_soak.py ROUNDS KIND ...     on a real GPU, without the kinds that need the fake
  tests/e2e/gpu/exit_soak.py --kinds

A process imports torch and the fake device and then forks one child for each exit, which trains, and so sets its GPU up, itself: a child
has a driver, a checker and exit handlers of its own, and imports nothing anew. Prints a JSON object: by kind how often each (exit status,
standard output, standard error) came, and the fewest launches of the driver's that a child had made.
"""
import collections
import json
import os
import pathlib
import select
import shutil
import signal
import sys
import tempfile
import types

import torch
import torch._dynamo  # as an optimizer does, which takes longer than all the rest of a child

SECONDS_MAX = 120  # of one child

TRAIN = """
import atexit, ctypes, os, signal, sys, threading, time, torch
driver = ctypes.CDLL("libcuda.so.1")
def count_launches():
    if hasattr(driver, "fake_cuda_counted"):
        with open(LAUNCHES, "w") as file: file.write(str(driver.fake_cuda_counted(1)))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def step():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    return loss
for i in range(4): step()
count_launches()
print("trained", flush=True)
"""
KINDS = {
    "return": "step()",
    "status": "step(); sys.exit(3)",
    "exception": "step(); raise ValueError('the end')",
    "at_once": "step(); os._exit(4)",
    "signal": "step(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)",
    "handled_signal": """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
step()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
""",
    # exit(3) on a thread that has trained, while the main thread waits.
    "from_a_thread": """
def end():
    with torch.cuda.stream(torch.cuda.Stream()): step()
    sys.stdout.flush()
    ctypes.CDLL(None).exit(6)
thread = threading.Thread(target=end)
thread.start()
thread.join()
""",
    "globals": """
class Last:
    def __init__(self): self.tensor = torch.ones(4, device="cuda")
    def __del__(self): self.tensor.mul_(2).sum()
stream, last, loss = torch.cuda.Stream(), Last(), step()
with torch.cuda.stream(stream): kept = model(torch.ones(4, 8, device="cuda"))
""",
    "exit_handler": "atexit.register(step); atexit.register(lambda: print(torch.ones(4, device='cuda').sum().item(), flush=True)); step()",
    "reset": "step(); torch.cuda.cudart().cudaDeviceReset()",
    # Some rounds of the observer's own thread come between.
    "goes_on_behind_a_reset": "step(); torch.cuda.cudart().cudaDeviceReset(); time.sleep(0.3); os._exit(8)",
    "stuck_stream": """
stream = torch.cuda.Stream()
driver.fake_cuda_set_stuck(ctypes.c_void_p(stream.native_handle), 1)
with torch.cuda.stream(stream): step()
step()
""",
    "capture": """
graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
torch.cuda.set_stream(stream)
static = torch.ones(4, 8, device="cuda")
graph.capture_begin(capture_error_mode="thread_local")
model(static)
""",
}


class Exits:
    def __init__(self, kind):
        self.kind, self.outcomes, self.launches = kind, collections.Counter(), []

    def note(self, folder, status):
        status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        told = [(folder / name).read_text() if (folder / name).exists() else "" for name in ("stdout", "stderr", "launches")]
        self.outcomes[status, told[0], told[1]] += 1
        self.launches.append(int(told[2] or 0))

    def document(self):
        return {"outcomes": [{"status": status, "stdout": out, "stderr": err, "times": times}
                             for (status, out, err), times in self.outcomes.items()], "launches_least": min(self.launches)}


def become_child(folder, kind):
    """Output to files, and the program to run; what is behind it is the end of this process."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
    return compile(f"LAUNCHES = {str(folder / 'launches')!r}" + TRAIN + KINDS[kind], kind, "exec")


def wait_for(pid):
    """Its status; one that does not end is killed."""
    ended = os.pidfd_open(pid)
    if not select.select([ended], [], [], SECONDS_MAX)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(ended)
    return os.waitpid(pid, 0)[1]


def end_processes(top, rounds, kinds):
    """What happened by kind; in a child, the program that it is to run."""
    exits = {kind: Exits(kind) for kind in kinds}
    for round_ in range(rounds):
        for kind in kinds:
            folder = top / f"{kind}-{round_}"
            folder.mkdir()
            child = os.fork()
            if child == 0:
                return become_child(folder, kind)
            exits[kind].note(folder, wait_for(child))
            shutil.rmtree(folder)
    return {kind: one.document() for kind, one in exits.items()}


if sys.argv[1:] == ["--kinds"]:
    sys.exit(print(*KINDS))
torch.set_num_threads(1)  # threads of a pool are not there in a child
folder = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-exits-"))
ended = end_processes(folder, int(sys.argv[1]), sys.argv[2:] or list(KINDS))
if isinstance(ended, dict):
    folder.rmdir()
    print(json.dumps(ended))
else:
    job = sys.modules["job"] = types.ModuleType("job")  # what it leaves is destroyed with the interpreter
    exec(ended, vars(job))  # noqa: S102
