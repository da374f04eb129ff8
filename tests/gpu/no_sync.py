# SPDX-License-Identifier: Apache-2.0
"""Questions about waiting: does level full ever make the host wait for the GPU, or copy from it?

Two ways to ask, since each is blind to something. A stream that is kept busy shows any wait for it, whoever calls it and by
whatever function, but only as time. torch's profiler names the calls of the CUDA runtime, but of the driver's it lists launches
only. Run under the preload library, as steps.py.
"""
import re
import time
import types

import torch
from torch import nn

import answers
from answers import Answer, CannotAsk, Question
from steps import add_options, launches_in, looked_at, machine_of, observer_switch, set_to, switch_of

BUSY_S = 1.5
WAITS = re.compile(r"Synchronize|StreamWaitEvent|EventQuery|StreamQuery|[mM]emcpy|[mM]alloc|MemAlloc|[fF]ree|HostRegister")


def small_step(device):
    """About 60 launches, so that bare or watched they fit the driver's queue of a thousand; nothing in it waits."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs, labels = torch.randn(32, 64, device=device), torch.randint(0, 8, (32,), device=device)

    def run():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return run


def watched(arguments):
    machine = machine_of(arguments)
    switch, why_not = switch_of(arguments)
    if switch is None:
        raise CannotAsk(why_not)
    return machine, switch


def require_launches(arguments, machine, switch, run):
    """A watched step that launches nothing has nothing to wait for: that it does not would mean nothing. Where the profiler does not
    show our kernels, the observer's own count of what it has checked on the GPU stands for them."""
    step = types.SimpleNamespace(run=run)
    if not machine.is_gpu or launches_in(machine, switch, step):
        return
    checked = looked_at(arguments, switch, step)
    if not checked["tensors"] or checked["unchecked"].get("other_device"):
        raise CannotAsk(f"a step at level full launches nothing: the profiler saw no kernel of ours, and the observer says {checked}")


def cycles_of(machine, seconds):
    """Clock cycles that the GPU counts to in about so long."""
    if not machine.is_gpu:
        return 0
    probe = 50_000_000
    for _ in range(2):  # the first brings the clock up
        machine.synchronize()
        started = time.perf_counter()
        torch.cuda._sleep(probe)
        machine.synchronize()
        elapsed = time.perf_counter() - started
    return int(probe * seconds / elapsed)


def behind_a_busy_stream(machine, run, cycles):
    """Host seconds until a step returns behind a stream that is busy, and seconds until the stream has done all."""
    machine.synchronize()
    started = time.perf_counter()
    if machine.is_gpu:
        torch.cuda._sleep(cycles)
    run()
    returned = time.perf_counter() - started
    machine.synchronize()
    return returned, time.perf_counter() - started


def waits(arguments):
    machine, switch = watched(arguments)
    run = small_step(machine.device)
    require_launches(arguments, machine, switch, run)
    rows, cycles = {}, cycles_of(machine, BUSY_S)
    for name, mode in (("bare", observer_switch.BARE), ("canary", observer_switch.CANARY), ("full", observer_switch.FULL)):
        with set_to(switch, mode):
            for _ in range(5):  # whatever is set up, is set up
                run()
            tries = [behind_a_busy_stream(machine, run, cycles) for _ in range(3)]
        rows[name] = {"host_ms": [1e3 * host for host, _ in tries], "stream_ms": [1e3 * stream for _, stream in tries]}
    # A step that waits returns when the stream is done; the stream must have been busy for the question to mean anything.
    was_busy = all(host < stream / 2 for host, stream in zip(rows["bare"]["host_ms"], rows["bare"]["stream_ms"]))
    if machine.is_gpu and not was_busy:
        raise CannotAsk(f"the bare step itself did not return ahead of the stream: {rows['bare']}")
    met = {name: max(host / stream for host, stream in zip(row["host_ms"], row["stream_ms"])) < 0.5 for name, row in rows.items()}
    return Answer({"ways": rows, "returned_ahead_of_the_stream": met}, met["full"])


def calls_in(machine, run, steps):
    """Calls that may wait, copy, allocate or free, by name and step. The profiler's own end waits once, bare or watched."""
    activities = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * machine.is_gpu
    run()
    machine.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(steps):
            run()
    machine.synchronize()
    events = {event.key: event.count / steps for event in profile.key_averages() if event.key.startswith("cu")}
    if machine.is_gpu and not any("Launch" in name for name in events):
        raise CannotAsk("the profiler lists no calls of the CUDA runtime here, not even launches")
    return {name: count for name, count in events.items() if WAITS.search(name)}


def calls(arguments):
    machine, switch = watched(arguments)
    run = small_step(machine.device)
    for _ in range(5):
        run()
    require_launches(arguments, machine, switch, run)
    found = {}
    for name, mode in (("bare", observer_switch.BARE), ("full", observer_switch.FULL)):
        with set_to(switch, mode):
            found[name] = calls_in(machine, run, 20)
    more = {name: count - found["bare"].get(name, 0) for name, count in found["full"].items() if count > found["bare"].get(name, 0)}
    return Answer({"per_step": found, "more_when_watched": more}, not more)


QUESTIONS = [
    Question("no_sync.waits", "does a watched step return while the stream before it is still busy?", waits, "as the bare one does",
             timed=True),
    Question("no_sync.calls", "which runtime calls that wait, copy, allocate or free are made by a watched step and not by a bare one?", calls, "none"),
]

if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
