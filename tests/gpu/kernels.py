# SPDX-License-Identifier: Apache-2.0
"""Questions about the check kernels alone: are they right on a GPU, and how fast are they?

The kernels are those of shim/device/check_kernel.ptx, launched through the driver in torch's context and on its current stream,
with no observer in the process. `--grid-for` is the library made of grid_for.cc.
"""
import functools
import gc
import itertools
import pathlib
import statistics
import time
import traceback

import torch

import answers
import clocks
from answers import Answer, CannotAsk, Question
from driver import (GATE_COUNTED_MAX, LIST_COUNTED_MAX, LIST_MAX, SCRATCH_BYTES, CheckResult, Driver, FewLaunch, GridFor, ListLaunch, ListResult, layout)
from tensors import TYPES, Layout, Tensor, layouts

SIZES = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 127, 511, 512, 513, 2047, 2048, 4097, 8192, 32771, 100_003, 1_000_003, 10_000_000]
NONE = 2**64 - 1
TICKET = 7
GRAPH_LAUNCHES = 200
LAST_CASE_S, LAST_ROW_S = 3, 5  # that one case, and one row, may take
HEAD_START_CYCLES, HEAD_START_CYCLES_MAX = 1 << 20, 1 << 28  # half a millisecond of an H200, and 140


class Gpu:
    """Where the kernels run: the current CUDA device. The tests put the CPU in its place."""
    device, sizes = "cuda", SIZES
    bandwidth_bytes, bandwidth_total = [64 << 20, 256 << 20, 1 << 30], 2 << 30
    list_sizes = [0, 1, 3, 16, 17, 511, 768, 769, 3072, 4096, 16_385, 262_147, 1_000_003]

    def __init__(self, grid_for):
        torch.zeros(1, device="cuda")  # makes the primary context current
        self.driver = Driver(grid_for)

    def launch(self, launch):
        self.driver.launch(launch, torch.cuda.current_stream().cuda_stream)

    def synchronize(self):
        torch.cuda.synchronize()

    def host_words(self, count):
        """Memory that both sides see, at the same address: that is so for all pinned memory of a 64-bit process."""
        return torch.zeros(count, dtype=torch.int64, pin_memory=True)

    def timed(self, work):
        """Seconds that one replay of `work`, captured as a graph, takes on the GPU: what the host does is not in it. An event is stamped as
        soon as the stream reaches it, and a graph of 200 launches takes the host longer to hand over than some take to run; so the stream is
        kept busy until all of it is queued."""
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

        cycles = HEAD_START_CYCLES

        def measure():
            nonlocal cycles
            while True:
                torch.cuda._sleep(cycles)
                begin.record()
                graph.replay()
                end.record()
                was_queued = not begin.query()
                end.synchronize()
                if was_queued:
                    return begin.elapsed_time(end) / 1e3
                if cycles >= HEAD_START_CYCLES_MAX:
                    raise RuntimeError("the host took longer to queue a replay than the GPU was kept busy before it")
                cycles *= 4
        measure()
        return measure

    def warmed_again(self):
        return clocks.warmed_again()

    def forget(self):
        """Gives back what the last row has allocated."""
        torch.cuda.empty_cache()


class Checker:
    """Makes launches and reads what they say."""
    list_launch = ListLaunch
    scratch_bytes = SCRATCH_BYTES

    def __init__(self, machine):
        self.machine = machine
        self._result = machine.host_words(960 // 8)
        self._progress = machine.host_words(1)
        self._scratch = torch.zeros(self.scratch_bytes // 8, dtype=torch.int64, device=machine.device)

    def make(self, outputs, with_progress=True):
        """A launch over the tensors `outputs`."""
        launch = FewLaunch()
        self._fill_head(launch.head, len(outputs), 0, with_progress)
        for described, tensor in zip(launch.tensors, outputs):
            shape = tensor.layout
            described.data, described.numel, described.type = tensor.data_ptr, shape.numel, tensor.kind.code
            described.ndim = 0 if shape.dense else len(shape.sizes)
            described.one_run = shape.is_one_run
            for dim in range(described.ndim):
                described.sizes[dim], described.strides[dim] = shape.sizes[dim], shape.strides[dim]
        return launch

    def make_list(self, tensors, gate, with_progress=True):
        """A launch over a list, of which the first `gate` are always looked at."""
        launch = self.list_launch()
        self._fill_head(launch.head, gate, len(tensors) - gate, with_progress)
        for entry, tensor in zip(launch.entries, tensors):
            entry.data, entry.numel_and_type = tensor.data_ptr, tensor.layout.numel | tensor.kind.code << 56
        return launch

    def _fill_head(self, head, outputs, inputs, with_progress):
        head.ticket = TICKET
        if outputs:  # a launch that looks at nothing has neither
            head.result, head.scratch = self._result.data_ptr(), self._scratch.data_ptr()
        head.progress = self._progress.data_ptr() if with_progress else 0
        head.output_count, head.input_count = outputs, inputs

    def found_something(self):
        return int(self._result[0]) != 0

    def check(self, tensor):
        """The answer of one launch over one tensor, as Tensor.expected puts it; None: it called the tensor clean."""
        result = self._run(self.make([tensor]), CheckResult)
        return result and figures(result.outputs[0], result.output_kinds[0])

    def check_list(self, tensors, gate):
        """The entries that one launch over a list calls bad, and the answers of those that it has counted; none: the gate is clean."""
        result = self._run(self.make_list(tensors, gate), ListResult)
        if result is None:
            return [], {}
        bad = [i for i in range(LIST_MAX) if result.bad[i // 32] >> i % 32 & 1]
        return bad, {result.entry[i]: figures(result.counts[i], result.kinds[i]) for i in range(result.counted)}

    def _run(self, launch, kind):
        """What it has answered; None: nothing."""
        self._result.fill_(0)
        self._progress.fill_(0)
        self.machine.synchronize()
        self.machine.launch(launch)
        self.machine.synchronize()
        assert int(self._progress[0]) == TICKET, "the launch did not say that it was done"
        assert int(self._scratch.count_nonzero()) == 0, "the scratch was not left zero"
        if not self.found_something():
            return None
        result = kind.from_buffer_copy(self._result.numpy().tobytes())
        assert (result.ticket, result.hits) == (TICKET, 1)
        return result


def figures(counts, kinds):
    """As Tensor.expected has them."""
    return {"nan": counts.nan, "pos_inf": counts.pos_inf, "neg_inf": counts.neg_inf, "first_bad": counts.first_bad,
            "kinds": kinds, "finite_min": counts.finite_min, "finite_max": counts.finite_max}


def machine_of(arguments):
    if not arguments.machine:
        if not torch.cuda.is_available():
            raise CannotAsk("no GPU")
        if not arguments.grid_for.exists():
            raise CannotAsk(f"{arguments.grid_for} was not built")
        arguments.machine = Gpu(GridFor(arguments.grid_for))
    if arguments.machine.driver.kernels_from:
        arguments.notes["kernels_from"] = arguments.machine.driver.kernels_from
    return arguments.machine


def layouts_agree(arguments):
    if not arguments.grid_for.exists():
        raise CannotAsk(f"{arguments.grid_for} was not built")
    compiled, here = GridFor(arguments.grid_for).layout(), layout()
    return Answer({"compiled": compiled, "python": here}, compiled == here)


def reached(right, left_out):
    """Whether a goal is met: not known where something was left out, and what was not is right."""
    return right if not right or not left_out else None


def rows_of(machine, arguments, cases, goal=None):
    """A row for each of `cases`, which are pairs of what it is about and how it is made. One that fails, for want of memory say, or for
    which there is no time, costs itself alone; `goal` says of a row whether it reaches it."""
    rows, left_out, lost = [], [], False
    for about, make in cases:
        if lost or time.monotonic() > arguments.ends_at - LAST_ROW_S:
            left_out.append(about)
            continue
        try:
            rows.append(about | make())
        except Exception as error:  # OutOfMemoryError is one
            traceback.print_exc()
            rows.append(about | {"failed": f"{type(error).__name__}: {error}"[:300]})
            error.__traceback__ = None  # its frames hold the row's tensors
        lost = lost or not is_usable(machine)
        getattr(arguments, "so_far", lambda answer: None)(Answer({"rows": rows, "provisional": "more rows were to come"}))
    failed = [row for row in rows if "failed" in row]
    right = goal is None or all(map(goal, (row for row in rows if "failed" not in row)))
    value = {"rows": rows} | ({"left_out_for_time" if not lost else "left_out_as_the_gpu_is_lost": left_out} if left_out else {})
    return Answer(value, reached(right, failed + left_out) if goal and len(rows) > len(failed) else None, lost)


def is_usable(machine):
    """Whether the GPU still does what this process asks it; after some errors it does nothing more for it."""
    try:
        gc.collect()
        machine.synchronize()
        machine.forget()
        return True
    except Exception:
        traceback.print_exc()
        return False


def planted(tensor, pattern):
    """Puts bad elements where a scan could miss them; returns how many."""
    numel, kind = tensor.layout.numel, tensor.kind
    rows = {"first": [0], "last": [numel - 1], "middle": [numel // 2],
            "several": sorted({0, numel // 3, numel // 2, numel - 1})}[pattern]
    words = itertools.cycle(kind.nan + kind.inf)
    for index, row in enumerate(rows):
        tensor.plant(row, next(words), index % kind.parts)
    return len(rows)


def is_right(arguments):
    """Every type, layout and size, clean and with bad elements; the largest last, should the time not be enough."""
    machine = machine_of(arguments)
    checker = Checker(machine)
    generator = torch.Generator(device=machine.device).manual_seed(2024)
    cases, wrong, left_out = 0, [], []
    deadline = arguments.ends_at - LAST_CASE_S
    for size in machine.sizes:
        for kind in TYPES:
            for shape in layouts(size):
                if time.monotonic() > deadline:
                    left_out.append(f"{kind.name}, {shape.name}, {size}")
                    continue
                for pattern in ("clean", "first", "last", "middle", "several"):
                    tensor = Tensor(kind, shape, machine.device, generator)
                    if pattern != "clean":
                        planted(tensor, pattern)
                    want = tensor.expected() if pattern != "clean" else None
                    got = checker.check(tensor)
                    cases += 1
                    if got != want:
                        wrong.append(f"{kind.name}, {shape.name}, {size}, {pattern}: got {got}, torch says {want}")
    return Answer({"cases": cases, "wrong": len(wrong), "first_wrong": wrong[:10],
                   "left_out_for_time": len(left_out), "first_left_out": left_out[:3]}, reached(not wrong, left_out))


def is_right_beyond_32_bits(arguments):
    """More than 2^31 elements; the only bad ones are beyond that. What is expected was planted, not asked of torch."""
    machine = machine_of(arguments)
    checker = Checker(machine)
    generator = torch.Generator(device=machine.device).manual_seed(5)
    count = (2**31 if machine.device == "cuda" else 2**12) + 17
    found = {}
    for kind in (k for k in TYPES if k.name in ("float8_e4m3fn", "float16")):
        tensor = Tensor.repeated(kind, count, machine.device, generator)
        clean = checker.check(tensor)
        tensor.plant(count - 1, kind.nan[0])
        tensor.plant(count - 3, kind.nan[0])
        bad = checker.check(tensor) or {}
        found[kind.name] = {"clean": clean is None, "nan": bad.get("nan"), "first_bad": bad.get("first_bad")}
    right = {"clean": True, "nan": 2, "first_bad": count - 3}
    return Answer({"elements": count, "found": found}, all(one == right for one in found.values()))


def drawn_list(machine, generator):
    """250 tensors of all types, of the machine's sizes for lists, aligned and not."""
    shapes = [shape for size in machine.list_sizes for shape in layouts(size) if shape.dense]
    return [Tensor(TYPES[i % len(TYPES)], shapes[i * 7 % len(shapes)], machine.device, generator) for i in range(LIST_MAX)]


def lists_are_right(arguments):
    """Lists of 250, clean and with bad elements in some, all of them the gate or a few."""
    machine = machine_of(arguments)
    checker = Checker(machine)
    generator = torch.Generator(device=machine.device).manual_seed(2025)
    tensors = drawn_list(machine, generator)
    filled = [i for i, tensor in enumerate(tensors) if tensor.layout.numel]
    wrong, cases = [], 0
    clean = {i: tensors[i].bits.clone() for i in filled}
    for step in (len(filled) + 1, 60, 23, 7, 3, 1):
        bad = filled[step - 1::step]
        for place, i in enumerate(bad):
            planted(tensors[i], ("first", "last", "middle", "several")[place % 4])
        for gate in (LIST_MAX, filled[len(filled) // 2] + 1, 1):
            cases += 1
            found, counted = checker.check_list(tensors, gate)
            gate_bad = any(i < gate for i in bad)
            want = bad if gate_bad else []
            wanted = []
            for i in want:
                if len(wanted) < (GATE_COUNTED_MAX if i < gate < LIST_MAX else LIST_COUNTED_MAX):
                    wanted.append(i)
            right = found == want and sorted(counted) == wanted and all(counted[i] == tensors[i].expected() for i in counted)
            if not right:
                wrong.append(f"gate {gate}, one in {step} bad: found {found[:8]} of {len(found)}, counted {sorted(counted)}")
        for i in bad:
            tensors[i].bits.copy_(clean[i])
    return Answer({"lists": cases, "tensors": LIST_MAX, "wrong": len(wrong), "first_wrong": wrong[:5]}, not wrong)


# The parameters of GPT-2 124M and of ResNet-50, as sizes: what is in a step's gradients.
GPT2 = [50257 * 768, 1024 * 768] + [768, 768, 768 * 2304, 2304, 768 * 768, 768, 768, 768, 768 * 3072, 3072, 3072 * 768, 768] * 12 + [768, 768]
SMALL = [768] * 148
LARGE = [1 << 26, 1 << 26]


def list_bandwidth(arguments):
    """A clean list in one launch, beside torch's sum of each tensor, all as one graph."""
    machine = machine_of(arguments)
    cases = []
    for name, sizes in (("gpt2_124m", GPT2), ("148_small", SMALL), ("2_large", LARGE)):
        sizes = sizes if machine.device == "cuda" else [min(size, 1000) for size in sizes]
        for kind in (TYPES[1], TYPES[3]):
            about = {"list": name, "type": kind.name, "tensors": len(sizes), "bytes": sum(sizes) * kind.bytes}
            cases.append((about, functools.partial(list_rate_of, machine, kind, sizes)))
    return rows_of(machine, arguments, cases)


def list_rate_of(machine, kind, sizes):
    checker = Checker(machine)
    generator = torch.Generator(device=machine.device).manual_seed(8)
    tensors = [Tensor.repeated(kind, size, machine.device, generator) for size in sizes]
    launch = checker.make_list(tensors, len(tensors), with_progress=False)
    summed = [summable(tensor)[0] for tensor in tensors]
    ways = {"list": machine.timed(lambda: machine.launch(launch)), "sums": machine.timed(lambda: [values.sum() for values in summed])}
    clock = machine.warmed_again()
    seconds = interleaved(ways, 9)
    assert not checker.found_something(), "a list of finite values was found bad"
    took = {way: statistics.median(values) for way, values in seconds.items()}
    return {"sm_clock_mhz": clock, "list_microseconds": 1e6 * took["list"], "sums_microseconds": 1e6 * took["sums"],
            "list_gb_s": sum(sizes) * kind.bytes / took["list"] / 1e9}


def summable(tensor):
    """The same bytes as something that torch can sum, and its name."""
    own = tensor.bits[Tensor.AROUND * tensor.kind.parts:-Tensor.AROUND * tensor.kind.parts]
    try:
        values = own.view(tensor.kind.dtype)
        values[:8].sum()
        return values, tensor.kind.name
    except RuntimeError:  # NotImplementedError is one
        return own.view(torch.float32), "float32"


def bandwidth_of(machine, kind, size):
    """One row: tensors of `size` bytes, so many that together they are larger than any cache."""
    checker = Checker(machine)
    count = max(2, machine.bandwidth_total // size)
    generator = torch.Generator(device=machine.device).manual_seed(3)
    buffers = [Tensor.repeated(kind, size // kind.bytes, machine.device, generator) for _ in range(count)]
    launches = [checker.make([buffer], with_progress=False) for buffer in buffers]
    summed = [summable(buffer) for buffer in buffers]
    ways = {"scan": machine.timed(lambda: [machine.launch(one) for one in launches]),
            "sum": machine.timed(lambda: [values.sum() for values, _ in summed])}
    clock = machine.warmed_again()
    seconds = interleaved(ways, 9)
    # A hit would have been timed as well.
    assert not checker.found_something(), f"{kind.name}: a scan of finite values found something"
    rates = {name: count * size / statistics.median(values) / 1e9 for name, values in seconds.items()}
    return {"sm_clock_mhz": clock, "scan_gb_s": rates["scan"], "sum_gb_s": rates["sum"], "sum_as": summed[0][1],
            "ratio": statistics.median(add / scan for scan, add in zip(seconds["scan"], seconds["sum"]))}


def rows_beside_check(arguments, kinds_and_scales, way, checker_class):
    """A row for each type, and about how large its values are."""
    machine = machine_of(arguments)
    size = machine.bandwidth_bytes[0]
    cases = [({"type": kind.name, "values_about": scale, "bytes": size}, functools.partial(beside_check, machine, kind, size, way, checker_class, scale))
             for kind, scale in kinds_and_scales]
    return rows_of(machine, arguments, cases)


def beside_check(machine, kind, size, way, checker_class, scale):
    """One row: lists of one tensor of `size` bytes, so many that together they are larger than any cache, by `checker_class`, in turn
    with the same lists checked alone."""
    count = max(2, machine.bandwidth_total // size)
    generator = torch.Generator(device=machine.device).manual_seed(9)
    buffers = [Tensor.repeated(kind, size // kind.bytes, machine.device, generator) for _ in range(count)]
    if scale != 1:
        for buffer in buffers:
            buffer.bits.view(kind.real).mul_(scale)
    ways = {}
    for name, checker in (("check", Checker(machine)), (way, checker_class(machine))):
        launches = [checker.make_list([buffer], 1, with_progress=False) for buffer in buffers]
        ways[name] = checker, machine.timed(lambda launches=launches: [machine.launch(one) for one in launches])
    clock = machine.warmed_again()
    seconds = interleaved({name: measure for name, (_, measure) in ways.items()}, 9)
    for checker, _ in ways.values():
        assert not checker.found_something(), f"{kind.name}: a list of finite values was found bad"
    rates = {name: count * size / statistics.median(values) / 1e9 for name, values in seconds.items()}
    return {"sm_clock_mhz": clock, "check_gb_s": rates["check"], f"{way}_gb_s": rates[way],
            "ratio": statistics.median(check / both for check, both in zip(seconds["check"], seconds[way]))}


def bandwidth(arguments):
    """Clean scans, in turn with torch's sum of the same bytes."""
    machine = machine_of(arguments)
    cases = [({"type": kind.name, "bytes": size}, functools.partial(bandwidth_of, machine, kind, size))
             for kind, size in itertools.product(TYPES, machine.bandwidth_bytes)]
    return rows_of(machine, arguments, cases, goal=lambda row: row["ratio"] >= 0.90)


def interleaved(ways, rounds):
    seconds = {name: [] for name in ways}
    for _ in range(rounds):
        for name, measure in ways.items():
            seconds[name].append(measure())
    return seconds


def small(arguments):
    """A launch over 64 KiB, beside one that looks at nothing, both as 200 nodes of a graph."""
    machine = machine_of(arguments)
    checker = Checker(machine)
    kind = TYPES[1]
    generator = torch.Generator(device=machine.device).manual_seed(4)
    elements = (64 << 10) // kind.bytes
    buffer = Tensor.repeated(kind, elements, machine.device, generator)
    scan = checker.make([buffer], with_progress=False)
    empty = checker.make([], with_progress=False)
    ways = {name: machine.timed(lambda launch=launch: [machine.launch(launch) for _ in range(GRAPH_LAUNCHES)])
            for name, launch in (("scan_64_kib", scan), ("empty_launch", empty))}
    microseconds = {name: 1e6 * statistics.median(values) / GRAPH_LAUNCHES for name, values in interleaved(ways, 15).items()}
    return Answer({"microseconds": microseconds}, microseconds["scan_64_kib"] <= 3.0)


def hit(arguments):
    """What a launch costs that finds something, and has one block count all of it."""
    machine = machine_of(arguments)
    checker = Checker(machine)
    kind = TYPES[1]
    generator = torch.Generator(device=machine.device).manual_seed(6)
    rows = []
    for elements in (1_000_000, 100_000_000) if machine.device == "cuda" else (1000,):
        shape = Layout("contiguous", (elements,), (1,), dense=True)
        tensor = Tensor(kind, shape, machine.device, generator)
        tensor.plant(elements // 2, kind.nan[0])
        seconds = []
        for _ in range(3):
            machine.synchronize()
            started = time.perf_counter()
            checker.check(tensor)
            seconds.append(time.perf_counter() - started)
        rows.append({"elements": elements, "milliseconds": 1e3 * statistics.median(seconds)})
    return Answer(rows)


QUESTIONS = [
    Question("kernels.layouts", "do Python's structs lie as the compiled ones do?", layouts_agree, "the same"),
    Question("kernels.right", "do counts, kinds, first index and bounds agree with torch, for every type, layout and size up to 10^7?",
             is_right, "all", weight=4),
    Question("kernels.beyond_32_bits", "are bad elements found behind 2^31 others?", is_right_beyond_32_bits, "both types"),
    Question("kernels.bandwidth", "how fast is a clean scan, as a ratio to torch's sum of the same bytes?", bandwidth, "0.90 or more in each row",
             weight=2, timed=True),
    Question("kernels.lists", "are the bad ones of 250 tensors found by one launch, with a gate and without?", lists_are_right, "all"),
    Question("kernels.list_bandwidth", "how long does one launch over all gradients of a step take, beside torch's sums?", list_bandwidth, timed=True),
    Question("kernels.small", "how long does a scan of 64 KiB take on the GPU?", small, "3 us or less", timed=True),
    Question("kernels.hit", "how long does a launch take, with the host's wait for it, that finds something?", hit, timed=True),
]


def add_options(parser):
    parser.add_argument("--grid-for", type=pathlib.Path, default=pathlib.Path("build/gpu/libgrid_for.so"))
    parser.set_defaults(machine=None)


if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
