# SPDX-License-Identifier: Apache-2.0
"""Questions about whole training steps on a GPU: what does each level add to them, and how near is that to what it must cost?

All ways are run in one process, in an order drawn anew for every round, as in tests/bench/overhead. Run under the preload library
(LD_PRELOAD, NANWATCH_LEVEL=full, and NANWATCH_DIR with nothing else in it); without it the bare step and what people do by hand
are still measured.

The floor of level full is one launch behind every op, or reading all that ops write, whichever takes longer:
  max(bytes read / measured bandwidth, launches * (an empty launch on the GPU + an empty callback on the host))
"""
import contextlib
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import torch

import answers
import models
from answers import Answer, CannotAsk, Question

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench/overhead"))
import methods as by_hand  # noqa: E402
import observer_switch  # noqa: E402

VISIT_S, ROUNDS_MIN = 0.25, 3
REPORT_S_MAX = 20
UNCHECKED_TOLD = 0.01  # of what a level looks at
FLOOR_S = 15  # that the floor is given; it takes a few
OWN_WAYS = {"nanwatch idle": observer_switch.IDLE, "nanwatch canary": observer_switch.CANARY, "nanwatch sampled": observer_switch.SAMPLED,
            "empty outputs callback": observer_switch.EMPTY_CALLBACK, "nanwatch full": observer_switch.FULL}
AFTER_NAN, AFTER_NAN_RATIO_MAX = "gpt2", 1.05
WATCHING_WAYS = ("nanwatch canary", "nanwatch sampled", "nanwatch full")


class Machine:
    def __init__(self, device):
        self.device, self.is_gpu = device, device == "cuda"

    def synchronize(self):
        if self.is_gpu:
            torch.cuda.synchronize()

    def forget_peak(self):
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self):
        """Of torch's allocator alone: what a checker takes from the driver is not in it."""
        return torch.cuda.max_memory_allocated() if self.is_gpu else 0

    def bytes_outside_torch(self):
        """What is in use on the GPU and torch's allocator does not hold: the context, loaded kernels, and what the checker has taken."""
        if not self.is_gpu:
            return 0
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()


def machine_of(arguments):
    if arguments.dry_run:
        return Machine("cpu")
    if not torch.cuda.is_available():
        raise CannotAsk("no GPU")
    return Machine("cuda")


def switch_of(arguments):
    """The observer's switch, or None and why there is none."""
    if "libnanwatch" not in os.environ.get("LD_PRELOAD", ""):
        return None, "the preload library is not in this process"
    if arguments.switch is None:
        try:
            arguments.switch = observer_switch.ObserverSwitch()
        except SystemExit:
            arguments.switch = False  # it was waited for, and not to be again
    if not arguments.switch:
        return None, "the preload library is in this process, and has loaded no observer with a switch"
    return arguments.switch, ""


@contextlib.contextmanager
def set_to(switch, mode):
    switch.set(mode)
    try:
        yield
    finally:
        switch.set(observer_switch.BARE)


def be_bare(arguments):
    """Nothing is watched before a question begins, nor while the GPU is warmed up for it."""
    switch, _ = switch_of(arguments)
    if switch is not None:
        switch.set(observer_switch.BARE)


def bytes_added(machine, switch, step):
    """What the first steps of this process at level full take on the GPU beside torch's allocator, after bare ones; about 3 MB are the
    checker's own, and kernels that the driver loads only now are in it too. 0 where steps were watched before."""
    for _ in range(3):
        step.run()
    before = machine.bytes_outside_torch()
    with set_to(switch, observer_switch.FULL):
        for _ in range(3):
            step.run()
        machine.synchronize()
        return machine.bytes_outside_torch() - before


def ways_of(switch, model):
    ways = {"bare": contextlib.nullcontext, "bare twin": contextlib.nullcontext}
    if switch is not None:
        switch.set(observer_switch.BARE)
        ways |= {name: lambda mode=mode: set_to(switch, mode) for name, mode in OWN_WAYS.items()}
    hand = by_hand.methods(switch, model)
    return ways | {name: hand[name] for name in ("forward hooks", "set_detect_anomaly")}


def time_visit(machine, step, repeats):
    """Seconds per step, and the most memory that was allocated; one more step is run first, untimed."""
    step.run()
    machine.synchronize()
    machine.forget_peak()
    started = time.perf_counter()
    for _ in range(repeats):
        step.run()
    machine.synchronize()
    return (time.perf_counter() - started) / repeats, machine.peak_bytes()


def measure(machine, step, ways, seconds_given, ends_at=math.inf, after_round=lambda seconds, peaks: None):
    """By way, a list of seconds per step and one of peak bytes, one entry a round; and the steps of a visit. Past `ends_at`, by the monotonic
    clock, two rounds are enough."""
    for _ in range(3):
        step.run()
    repeats = max(2, round(VISIT_S / time_visit(machine, step, 3)[0]))
    seconds, peaks = {name: [] for name in ways}, {name: [] for name in ways}
    deadline = time.monotonic() + seconds_given
    while len(seconds["bare"]) < (ROUNDS_MIN if time.monotonic() < ends_at else 2) or time.monotonic() < deadline:
        for name in random.sample(list(ways), len(ways)):
            with ways[name]():
                elapsed, peak = time_visit(machine, step, repeats)
            seconds[name].append(elapsed)
            peaks[name].append(peak)
        after_round(seconds, peaks)
    return seconds, peaks, repeats


def summarize(seconds, peaks):
    """Ratios are to the same round's bare step."""
    rows = {}
    for name, values in seconds.items():
        ratios = [v / b for v, b in zip(values, seconds["bare"])]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        rows[name] = {"median_ms": 1e3 * statistics.median(values), "ratio": middle, "ratio_quartiles": [low, high],
                      "peak_bytes": max(peaks[name]), "peak_bytes_over_bare": max(peaks[name]) - max(peaks["bare"])}
    return rows


def coverage(arguments):
    """What the observer says of this process so far; None where that cannot be had."""
    try:
        told = subprocess.run([str(arguments.nanwatch), "report", "--json"], capture_output=True, text=True, check=False, timeout=REPORT_S_MAX)
        return json.loads(told.stdout)["coverage"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return None


def looked_at(arguments, switch, step, steps=10, mode=observer_switch.FULL):
    """What a level checks in one step: tensors, bytes, and tensors left unchecked, by reason; or why that is not known."""
    with set_to(switch, mode):
        step.run()
        before = coverage(arguments)
        for _ in range(steps):
            step.run()
        after = coverage(arguments)
    if before is None or after is None:
        raise CannotAsk("'nanwatch report' does not say what this process has checked")

    def added(name):
        return (int(after[name]) - int(before[name])) / steps
    unchecked = {reason: (int(count) - int(before["unchecked"].get(reason, 0))) / steps for reason, count in after["unchecked"].items()}
    return {"tensors": added("tensors_checked"), "bytes": added("bytes_checked"),
            "unchecked": {reason: count for reason, count in unchecked.items() if count}}


def unchecked_by(arguments, switch, step, repeats):
    """By way, what it leaves unchecked of what is on a GPU, in as many steps without a pause as a visit has: who does not look is quick.
    Empty where nothing is left out."""
    by_way = {}
    for way in WATCHING_WAYS:
        seen = looked_at(arguments, switch, step, repeats, OWN_WAYS[way])
        unchecked = {reason: count for reason, count in seen["unchecked"].items() if reason in ("gpu_not_ready", "gpu_busy", "other_device")}
        if unchecked:
            share = sum(unchecked.values()) / max(1, seen["tensors"] + sum(unchecked.values()))
            by_way[way] = {"tensors_per_step": seen["tensors"], "unchecked_per_step": unchecked, "share": share}
            if share > UNCHECKED_TOLD:
                by_way[way]["note"] = f"{100 * share:.0f} % were not looked at: its time above is not what looking at all of them takes"
    return by_way


def launches_in(machine, switch, step):
    """Launches of our kernels in one step, counted by torch's profiler; 0 also where it does not show them."""
    if not machine.is_gpu:
        return 0
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with set_to(switch, observer_switch.FULL):
        step.run()
        machine.synchronize()
        with torch.profiler.profile(activities=activities) as profile:
            step.run()
            machine.synchronize()
    return sum(event.count for event in profile.key_averages() if event.key.startswith("nanwatch_"))


def read_bandwidth(machine):
    """Bytes a second that torch's sum of 1 GiB reads."""
    values = torch.randn((1 << 28) if machine.is_gpu else 1 << 16, device=machine.device)
    seconds = []
    for _ in range(9):
        machine.synchronize()
        started = time.perf_counter()
        for _ in range(4):
            values.sum()
        machine.synchronize()
        seconds.append((time.perf_counter() - started) / 4)
    return values.numel() * 4 / statistics.median(seconds)


def callback_seconds(machine, switch, ops=1000):
    """What an empty callback that asks for outputs adds to an op on the host."""
    value = torch.zeros(1, device=machine.device)

    def host_seconds():
        machine.synchronize()
        started = time.perf_counter()
        for _ in range(ops):
            value.add_(1)
        return (time.perf_counter() - started) / ops
    added = []
    for _ in range(9):
        bare = host_seconds()
        with set_to(switch, observer_switch.EMPTY_CALLBACK):
            added.append(host_seconds() - bare)
    return max(0.0, statistics.median(added))


def empty_launch_seconds(arguments, machine):
    if not machine.is_gpu:
        return 0.0
    import kernels
    arguments.machine = None
    return kernels.small(arguments).value["microseconds"]["empty_launch"] / 1e6


def floor(arguments, machine, switch, step, bare_s):
    """The three figures that level full cannot be below, and the ratio that they make."""
    checked = looked_at(arguments, switch, step)
    if checked["unchecked"].get("other_device"):
        return {"checked_per_step": checked, "why": "this observer leaves tensors on the GPU unchecked: 'full' above is not what a check costs"}
    launches, counted_by = launches_in(machine, switch, step), "torch's profiler"
    if machine.is_gpu and launches == 0:
        if not checked["tensors"]:
            return {"checked_per_step": checked, "why": "neither the profiler nor the observer knows of a check in a step at level full"}
        launches, counted_by = checked["tensors"], "the tensors checked, of which a launch has one or more: the floor is lower"
    reading_s = checked["bytes"] / read_bandwidth(machine)
    empty_s, callback_s = empty_launch_seconds(arguments, machine), callback_seconds(machine, switch)
    launching_s = launches * (empty_s + callback_s)
    return {"checked_per_step": checked, "reading_ms": 1e3 * reading_s, "launches": launches, "launches_counted_by": counted_by, "launching_ms": 1e3 * launching_s,
            "empty_launch_us": 1e6 * empty_s, "callback_us": 1e6 * callback_s, "ratio": 1 + max(reading_s, launching_s) / bare_s}


def tried(what, find_out, arguments, missing):
    """What `find_out` answers; what was measured before it stays where it cannot, and why it could not is in `missing`."""
    try:
        return find_out()
    except CannotAsk as reason:
        missing[what] = str(reason)
    except Exception as error:
        if arguments.dry_run:
            raise
        missing[what] = f"{type(error).__name__}: {error}"[:600]
    return None


def ask(name):
    def asked(arguments):
        machine = machine_of(arguments)
        be_bare(arguments)
        torch.manual_seed(0)
        step = models.STEPS[name](machine.device, arguments.dry_run)
        switch, why_not = switch_of(arguments)
        added = bytes_added(machine, switch, step) if switch is not None else None
        missing = {}
        value = {"step": step.description, "not_measured": missing, "peak_bytes_are": "of torch's allocator alone",
                 "bytes_outside_torch_added_by_first_full_steps": added, "conv_tf32": torch.backends.cudnn.allow_tf32,
                 "matmul_tf32": torch.backends.cuda.matmul.allow_tf32}

        def tell_so_far(seconds, peaks):
            so_far = {"rounds": len(seconds["bare"]), "ways": summarize(seconds, peaks)}
            arguments.so_far(Answer(value | so_far | {"provisional": "more rounds, and the floor of full, were to come"}))
        seconds, peaks, repeats = measure(machine, step, ways_of(switch, step.model), 0 if arguments.dry_run else arguments.seconds,
                                          arguments.ends_at - FLOOR_S, tell_so_far)
        rows = summarize(seconds, peaks)
        value |= {"rounds": len(seconds["bare"]), "ways": rows}
        if switch is None:
            missing |= {way: why_not for way in [*OWN_WAYS, "unchecked", "floor of full"]}
            return Answer(value)
        value["unchecked"] = tried("unchecked", lambda: unchecked_by(arguments, switch, step, repeats), arguments, missing)
        if time.monotonic() > arguments.ends_at - FLOOR_S:
            missing["floor of full"] = "left out for time"
            return Answer(value)
        value["floor_of_full"] = tried("floor of full", lambda: floor(arguments, machine, switch, step, rows["bare"]["median_ms"] / 1e3), arguments, missing)
        return Answer(value)
    return asked


def ask_after_nan(arguments):
    """All parameters are NaN, as one bad update leaves them: nothing is watched then, and a step has to cost what it costs without us."""
    machine = machine_of(arguments)
    be_bare(arguments)
    torch.manual_seed(0)
    step = models.STEPS[AFTER_NAN](machine.device, arguments.dry_run)
    switch, why_not = switch_of(arguments)
    if switch is None:
        raise CannotAsk(why_not)
    with set_to(switch, observer_switch.FULL):
        for i in range(6):
            if i == 2:
                with torch.no_grad():
                    next(step.model.parameters()).fill_(float("nan"))
            step.run()
            machine.synchronize()  # the answer is there before the next step
    if all(parameter.isfinite().all() for parameter in step.model.parameters()):
        raise CannotAsk("no parameter is bad")
    ways = {"bare": contextlib.nullcontext, "bare twin": contextlib.nullcontext}
    ways |= {name: lambda mode=mode: set_to(switch, mode) for name, mode in (OWN_WAYS | {"nanwatch auto": observer_switch.AUTO}).items()
             if name.startswith("nanwatch")}
    seconds, peaks, _ = measure(machine, step, ways, 0 if arguments.dry_run else arguments.seconds, arguments.ends_at)
    rows = summarize(seconds, peaks)
    over = [name for name, row in rows.items() if name.startswith("nanwatch") and row["ratio"] > AFTER_NAN_RATIO_MAX]
    return Answer({"step": step.description, "rounds": len(seconds["bare"]), "ways": rows, "over": over}, not over)


QUESTIONS = [Question(f"steps.{name}", f"what do the levels add to a training step of {name}, in time and memory, and what is full's floor?",
                      ask(name), timed=True) for name in models.STEPS]
# Last: what it leaves bad is this process's from there on.
QUESTIONS.append(Question("steps.after_nan", f"what do the levels add to a training step of {AFTER_NAN} whose parameters are NaN?", ask_after_nan,
                          goal=f"at most {AFTER_NAN_RATIO_MAX} times the bare step at every level", timed=True))


def add_options(parser):
    parser.add_argument("--nanwatch", type=pathlib.Path, default=pathlib.Path("build/gpu/prefix/bin/nanwatch"))
    parser.add_argument("--grid-for", type=pathlib.Path, default=pathlib.Path("build/gpu/libgrid_for.so"))
    parser.set_defaults(switch=None, prepare=be_bare)


if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
