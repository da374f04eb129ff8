# SPDX-License-Identifier: Apache-2.0
"""Questions about nanwatch_check_batch, the kernel that checks the outputs of some ops at level sampled.

Launched as the kernels of kernels.py are, with no observer in the process.
"""
import functools
import statistics
import time

import torch

import answers
from answers import Answer, Question
from driver import (BATCH_COUNTED_MAX, BATCH_ENTRIES_COUNTED, BATCH_ENTRIES_MAX, BATCH_OTHERS_MAX, PHASES, READ_ALL, READ_IN_FULL_BYTES,
                    WAS_READ_IN_FULL, BatchLaunch, BatchResult)
from kernels import Checker, add_options, drawn_list, figures, interleaved, machine_of, planted, rows_of
from tensors import TYPES, Layout, Tensor

NEG_INF = 4  # of the kinds
LAUNCHES = 50  # of a batch, in one graph


class BatchChecker(Checker):
    def make_batch(self, entries, others=(), phase=0, flags=0, with_progress=True):
        launch = BatchLaunch()
        self._fill_head(launch.head, len(entries), len(others), with_progress)
        launch.head.flags, launch.phase = flags, phase
        for entry, tensor in zip(launch.entries, [*entries, *others]):
            entry.data, entry.numel_and_type = tensor.data_ptr, tensor.layout.numel | tensor.kind.code << 56
        return launch

    def check_batch(self, entries, others=(), phase=0, flags=0):
        """The state of each tensor, and the figures of those that are counted, in their order; None: no hit."""
        result = self._run(self.make_batch(entries, others, phase, flags), BatchResult)
        if result is None:
            return None
        return (list(result.states[:len(entries) + len(others)]),
                [(result.tensor[i], figures(result.counts[i], result.kinds[i])) for i in range(result.counted)])


def expected(entries, others):
    """The same by torch, of entries that are read in full."""
    found = [tensor.expected() if tensor.layout.numel else {"kinds": 0} for tensor in [*entries, *others]]
    kinds = [one["kinds"] for one in found]
    if not any(kind & ~NEG_INF for kind in kinds[:len(entries)]):
        return None
    counted = []
    for masks in (False, True):
        for i, kind in enumerate(kinds):
            full = len(counted) == BATCH_COUNTED_MAX or i < len(entries) and sum(at < len(entries) for at in counted) == BATCH_ENTRIES_COUNTED
            if kind and (kind == NEG_INF) == masks and not full:
                counted.append(i)
    return [kind | WAS_READ_IN_FULL for kind in kinds], [(i, found[i]) for i in counted]


def batches_are_right(arguments):
    """Batches of 24 and as many others, all types and sizes, clean and with bad elements in some; what is large is read in full."""
    machine = machine_of(arguments)
    checker = BatchChecker(machine)
    generator = torch.Generator(device=machine.device).manual_seed(2029)
    tensors = drawn_list(machine, generator)
    wrong, cases = [], 0
    for step in (len(tensors), 40, 13, 5, 2):
        bad = [i for i in range(step - 1, len(tensors), step) if tensors[i].layout.numel]
        clean = {i: tensors[i].bits.clone() for i in bad}
        for place, i in enumerate(bad):
            planted(tensors[i], ("first", "last", "middle", "several")[place % 4])
        for begin in range(0, len(tensors) - BATCH_ENTRIES_MAX - BATCH_OTHERS_MAX, 31):
            middle = begin + BATCH_ENTRIES_MAX
            entries, others = tensors[begin:middle], tensors[middle:middle + BATCH_OTHERS_MAX]
            cases += 1
            got, want = checker.check_batch(entries, others, flags=READ_ALL), expected(entries, others)
            if got != want:
                wrong.append(f"from {begin}, one in {step} bad: got {got}, torch says {want}"[:400])
        for i in bad:
            tensors[i].bits.copy_(clean[i])
    return Answer({"batches": cases, "wrong": len(wrong), "first_wrong": wrong[:3]}, not wrong)


def samples_meet_all(arguments):
    """A bad element anywhere in a large tensor is met in one phase of sixteen, and on the hit the rest of all is read."""
    machine = machine_of(arguments)
    checker = BatchChecker(machine)
    generator = torch.Generator(device=machine.device).manual_seed(2030)
    found = []
    for kind in (TYPES[1], TYPES[3], TYPES[8]):
        count = (37 if machine.device == "cuda" else 2) * READ_IN_FULL_BYTES // kind.bytes + 4099
        tensor, other = (Tensor.repeated(kind, count, machine.device, generator) for _ in range(2))
        other.plant(count // 5, kind.nan[0])
        for row in (64, count // 3, count // 2 + 1, count - 64):
            before = tensor.bits.clone()
            tensor.plant(row, kind.nan[0])
            told = [checker.check_batch([tensor], [other], phase) for phase in range(PHASES)]
            hits = [one for one in told if one]
            right = len(hits) == 1 and hits[0] == expected([tensor], [other])
            found.append({"type": kind.name, "row": row, "phases": len(hits), "right": right})
            tensor.bits.copy_(before)
    return Answer(found, all(one["right"] for one in found))


def speed_of(machine, kind, elements, count):
    """A clean batch of `count` tensors beside the same ones read in full, and checked as a list."""
    checker = BatchChecker(machine)
    generator = torch.Generator(device=machine.device).manual_seed(10)
    tensors = [Tensor.repeated(kind, elements, machine.device, generator) for _ in range(count)]
    launches = {"sampled": checker.make_batch(tensors, with_progress=False), "in_full": checker.make_batch(tensors, flags=READ_ALL, with_progress=False),
                "list": checker.make_list(tensors, count, with_progress=False)}
    ways = {name: machine.timed(lambda launch=launch: [machine.launch(launch) for _ in range(LAUNCHES)]) for name, launch in launches.items()}
    clock = machine.warmed_again()
    seconds = interleaved(ways, 9)
    assert not checker.found_something(), "a batch of finite values was found bad"
    took = {name: statistics.median(values) / LAUNCHES for name, values in seconds.items()}
    size = count * elements * kind.bytes
    read = size / PHASES if elements * kind.bytes > READ_IN_FULL_BYTES else size
    return {"sm_clock_mhz": clock, "microseconds": {name: 1e6 * value for name, value in took.items()},
            "sampled_gb_s": read / took["sampled"] / 1e9, "in_full_gb_s": size / took["in_full"] / 1e9}


def speed(arguments):
    """What a clean batch takes on the GPU: 16 small tensors, 16 that are just read in full, and large ones."""
    machine = machine_of(arguments)
    shapes = [(768, 16), (1 << 18, 16), (1 << 22, 16), (1 << 25, 8)] if machine.device == "cuda" else [(768, 2), ((1 << 18) + 1, 1)]
    cases = [({"type": kind.name, "elements": elements, "tensors": count}, functools.partial(speed_of, machine, kind, elements, count))
             for kind in (TYPES[1], TYPES[3]) for elements, count in shapes]
    return rows_of(machine, arguments, cases)


def hit(arguments):
    """What a launch takes, with the host's wait for it, that finds something in a small entry and has others to read."""
    machine = machine_of(arguments)
    checker = BatchChecker(machine)
    kind = TYPES[1]
    generator = torch.Generator(device=machine.device).manual_seed(11)
    small = Tensor(kind, Layout("contiguous", (1000,), (1,), dense=True), machine.device, generator)
    small.plant(500, kind.nan[0])
    rows = []
    for megabytes in (16, 1024) if machine.device == "cuda" else (1,):
        large = Tensor.repeated(kind, megabytes << 18, machine.device, generator)
        for name, entries, others in (("beside_large_entries", [small, large], []), ("with_large_others", [small] * 16, [large])):
            seconds = []
            for _ in range(3):
                machine.synchronize()
                started = time.perf_counter()
                assert checker.check_batch(entries, others), "the NaN was not found"
                seconds.append(time.perf_counter() - started)
            rows.append({"megabytes": megabytes, "case": name, "milliseconds": 1e3 * statistics.median(seconds)})
    return Answer(rows)


QUESTIONS = [
    Question("batches.right", "are the kinds and figures of batches those of torch?", batches_are_right, "all"),
    Question("batches.sampled", "is a bad element of a large tensor met in one phase of 16, and is the rest read then?", samples_meet_all, "all"),
    Question("batches.speed", "how long does a clean batch take, beside a list of the same tensors?", speed, timed=True),
    Question("batches.hit", "how long does a batch take that finds something, and reads what it had not read?", hit, timed=True),
]


if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
