# SPDX-License-Identifier: Apache-2.0
"""A job whose children compute: children.py METHOD KIND... starts one child after another by METHOD, one for each KIND.

KIND may be several, joined by "+": one child does them in order. Every kind that goes wrong does so by an op and a line of its
own (marked "# KIND"). The parent only starts the children.
"""
import concurrent.futures
import multiprocessing
import os
import signal
import sys
import threading
import time

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # OpenMP does not survive a fork.


class Step(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.kind = kind

    def forward(self, x):
        x = x * self.weight
        if self.kind == "forward":
            return torch.log(x - 5)  # forward
        if self.kind == "trains":
            return torch.sqrt(x - 5)  # trains
        if self.kind == "killed":
            return torch.acos(x + 5)  # killed
        if self.kind == "threads":
            return torch.asin(x + 5)  # threads
        if self.kind == "grandchild":
            return torch.atanh(x + 5)  # grandchild
        return x


class Model(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), Step(kind))

    def forward(self, x):
        return self.inner(x).mean()


def compute(model):
    """A forward pass without a backward pass, as a worker, an actor or a validation child does it; the number is read."""
    with torch.no_grad():
        return model(torch.ones(2, 4)).item()


def train(kind):
    torch.manual_seed(0)
    model = Model("healthy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        if step == 2:
            model.inner[2].kind = kind
        optimizer.zero_grad()
        model(torch.ones(2, 4)).backward()
        optimizer.step()
    return float(model.inner[2].weight.detach().sum())


def work(kind):
    if "+" in kind:
        return [work(each) for each in kind.split("+")][-1]
    if kind in ("trains", "healthy"):
        return train(kind)
    if kind == "killed":
        compute(Model(kind))
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "threads":
        made, model = [], Model(kind)
        threads = [threading.Thread(target=lambda: made.append(compute(model))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return made[0]
    if kind == "grandchild":
        by_fork(kind, lambda kind: compute(Model(kind)))
        return 0.0
    return compute(Model(kind))


def by_fork(kind, run=work):
    pid = os.fork()
    if pid == 0:
        run(kind)
        os._exit(0)
    os.waitpid(pid, 0)


def by_process(context, kind):
    process = context.Process(target=work, args=(kind,))
    process.start()
    process.join()


def await_killed(waits):
    """For those whose call never returns when their child is killed."""
    deadline = time.monotonic() + 300
    while not os.path.exists("killed"):
        if time.monotonic() > deadline or not waits():
            sys.exit("the child was never killed")
        time.sleep(0.01)


def by_pool(context, kind):
    with context.Pool(1) as pool:
        result = pool.apply_async(work, (kind,))
        if "killed" in kind:
            await_killed(lambda: True)
        else:
            result.get(300)


def by_executor(context, kind):
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        try:
            executor.submit(work, kind).result(300)
        except concurrent.futures.process.BrokenProcessPool:
            assert "killed" in kind


def by_joblib(backend, kind):
    import joblib

    def call():
        # Two jobs, or joblib starts no child. Its workers are used again, so one may train several models.
        return joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(work)(each) for each in (kind, "healthy"))

    if "killed" in kind and backend == "multiprocessing":
        threading.Thread(target=call, daemon=True).start()
        return await_killed(lambda: True)
    try:
        call()
    except Exception as problem:
        assert "killed" in kind and type(problem).__name__ == "TerminatedWorkerError", problem


class Samples(Dataset):
    """Two samples an epoch; the last one that its worker reads is of the kind."""

    def __init__(self, kind, epochs):
        self.kind, self.left = kind, 2 * epochs

    def __len__(self):
        return 2

    def __getitem__(self, index):
        self.left -= 1
        work(self.kind if self.left == 0 else "first")
        return index


def by_loader(context, kind, persistent):
    loader = DataLoader(Samples(kind, 1 + persistent), 1, num_workers=1, multiprocessing_context=context, persistent_workers=persistent)
    try:
        for _ in range(1 + persistent):
            for _ in loader:
                pass
    except RuntimeError as problem:
        assert "killed" in kind, problem


def by_torch_spawn(kind):
    try:
        torch.multiprocessing.spawn(spawned, (kind,), nprocs=1)
    except torch.multiprocessing.ProcessExitedException:
        assert "killed" in kind


def spawned(index, kind):
    work(kind)


def context(name):
    return multiprocessing.get_context(name)


METHODS = {
    "os.fork": by_fork,
    "Process, fork": lambda kind: by_process(context("fork"), kind),
    "Process, forkserver": lambda kind: by_process(context("forkserver"), kind),
    "Process, spawn": lambda kind: by_process(context("spawn"), kind),
    "Pool, fork": lambda kind: by_pool(context("fork"), kind),
    "Pool, spawn": lambda kind: by_pool(context("spawn"), kind),
    "torch.multiprocessing, fork": lambda kind: by_process(torch.multiprocessing.get_context("fork"), kind),
    "torch.multiprocessing.spawn": by_torch_spawn,
    "ProcessPoolExecutor, fork": lambda kind: by_executor(context("fork"), kind),
    "ProcessPoolExecutor, forkserver": lambda kind: by_executor(context("forkserver"), kind),
    "joblib, loky": lambda kind: by_joblib("loky", kind),
    "joblib, multiprocessing": lambda kind: by_joblib("multiprocessing", kind),
    "DataLoader, fork": lambda kind: by_loader("fork", kind, False),
    "DataLoader, fork, persistent": lambda kind: by_loader("fork", kind, True),
    "DataLoader, forkserver": lambda kind: by_loader("forkserver", kind, False),
    "DataLoader, spawn": lambda kind: by_loader("spawn", kind, False),
    "DataLoader, spawn, persistent": lambda kind: by_loader("spawn", kind, True),
}
if __name__ == "__main__":
    train("healthy")
    for each in sys.argv[2:]:
        METHODS[sys.argv[1]](each)
        print(each, flush=True)
