# SPDX-License-Identifier: Apache-2.0
"""Questions about nanwatch_sum_list, the kernel that sums a list besides checking it: is it right on a GPU, and how fast is it?

Launched as the kernels of kernels.py are, with no observer in the process.
"""
import itertools

import torch

import answers
from answers import Answer, Question
from driver import LIST_MAX, ListResult, SumLaunch
from kernels import TICKET, Checker, add_options, drawn_list, machine_of, planted, rows_beside_check
from tensors import TYPES

SUMMED = TYPES[:7]
RELATIVE = 2**-22  # shim/device/list_launch.h
TINY = 1e-25  # its square is below any float32


class SumChecker(Checker):
    list_launch = SumLaunch

    def sums(self):
        """What the last launch has told."""
        result = ListResult.from_buffer_copy(self._result.numpy().tobytes())
        assert result.sums_ticket == TICKET, "the launch did not tell its sums"
        return {"squares": result.sums.squares, "first": result.sums.first,
                "nonzero": [i for i in range(LIST_MAX) if result.sums.nonzero[i // 32] >> i % 32 & 1]}


def expected_sums(gate):
    """The same by torch."""
    squares, nonzero = 0.0, []
    for i, tensor in enumerate(gate):
        parts = tensor.own_parts()
        if tensor.kind in SUMMED:
            values = parts.view(tensor.kind.real).to(torch.float64)
            squares += float((values * values).sum())
        # Bits, since torch does not compare all 8-bit types. What stands here has no negative zero in them.
        zeros = parts.view(tensor.kind.real) == 0 if tensor.kind in SUMMED else parts == 0
        if tensor.layout.numel and (tensor.kind.name == "float8_e8m0fnu" or not bool(zeros.all())):
            nonzero.append(i)
    first = gate[0]
    has_first = first.kind in SUMMED and first.layout.numel
    value = float(first.own_parts().view(first.kind.real).flatten()[0].to(torch.float64)) if has_first else 0.0
    return {"squares": squares, "first": value, "nonzero": nonzero}


def agree(got, want, is_clean):
    firsts = (got["first"], want["first"])
    same_first = firsts[0] == firsts[1] or all(value != value for value in firsts)
    # Of a list that holds something bad the sum may be anything.
    same_squares = not is_clean or abs(got["squares"] - want["squares"]) <= RELATIVE * want["squares"]
    return same_first and same_squares and got["nonzero"] == want["nonzero"]


def sums_are_right(arguments):
    """Lists of 250, some tensors of them all zero or so small that floats do not hold their squares; clean, and with bad elements."""
    machine = machine_of(arguments)
    checker = SumChecker(machine)
    generator = torch.Generator(device=machine.device).manual_seed(2026)
    tensors = drawn_list(machine, generator)
    for i, tensor in enumerate(tensors):
        parts = tensor.own_parts()
        if i % 5 == 1:
            parts.zero_()
        elif i % 5 == 2 and tensor.kind.name in ("float32", "bfloat16", "complex64"):
            parts.copy_((parts.view(tensor.kind.real) * TINY).view(tensor.kind.part))
    filled = [i for i, tensor in enumerate(tensors) if tensor.layout.numel]
    clean = {i: tensors[i].bits.clone() for i in filled}
    orders = (tensors, tensors[::-1], tensors[filled[1]:] + tensors[:filled[1]], tensors[2:8])
    wrong, cases = [], 0
    for step, ordered in itertools.product((None, 60, 7), orders):
        for i in filled[step - 1::step] if step else ():
            planted(tensors[i], "several")
        for gate in sorted({len(ordered), len(ordered) // 2, 1}):
            cases += 1
            bad = {i for i, tensor in enumerate(ordered) if tensor.layout.numel and sum(map(tensor.expected().get, ("nan", "pos_inf", "neg_inf")))}
            found, _ = checker.check_list(ordered, gate)
            got, want = checker.sums(), expected_sums(ordered[:gate])
            gate_bad = any(i < gate for i in bad)
            if found != (sorted(bad) if gate_bad else []) or not agree(got, want, is_clean=not gate_bad):
                wrong.append(f"gate {gate} of {len(ordered)}, one in {step} bad: found {found[:8]}, got {got}, torch says {want}"[:400])
        for i in filled:
            tensors[i].bits.copy_(clean[i])
    return Answer({"lists": cases, "wrong": len(wrong), "first_wrong": wrong[:3]}, not wrong)


def bandwidth(arguments):
    """Lists summed, in turn with the same lists checked alone."""
    return rows_beside_check(arguments, [(kind, 1) for kind in TYPES[:4]] + [(TYPES[1], TINY), (TYPES[3], TINY)], "sum", SumChecker)


QUESTIONS = [
    Question("sums.right", "are the sums of lists of 250 those of torch, and their bad ones found?", sums_are_right, "all"),
    Question("sums.bandwidth", "how fast is a list summed, beside one that is only checked, at 64 MB?", bandwidth, timed=True),
]


if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
