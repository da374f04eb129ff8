# SPDX-License-Identifier: Apache-2.0
"""Questions about nanwatch_measure_list and nanwatch_compare_list, the kernels behind the figures of parameters and layers.

Launched as the kernels of kernels.py are, with no observer in the process.
"""
import math

import torch

import answers
from answers import Answer, Question
from driver import MEASURE_SCRATCH_BYTES, MEASURED_MAX, CompareLaunch, MeasureLaunch, MeasureResult
from kernels import TICKET, Checker, add_options, machine_of, planted, rows_beside_check
from tensors import TYPES, Layout, Tensor, layouts

MEASURED = TYPES[:4]
RELATIVE = 1e-12  # of sums of doubles, of which there are 10^8 at most


class Measurer(Checker):
    list_launch = MeasureLaunch
    scratch_bytes = MEASURE_SCRATCH_BYTES

    def ask(self, tensors, gate=None):
        """What one launch tells of the first `gate` of a list, as dicts."""
        gate = gate or len(tensors)
        self._run(self.make_list(tensors, gate), MeasureResult)
        result = MeasureResult.from_buffer_copy(self._result.numpy().tobytes())
        assert result.measures_ticket == TICKET, "the launch did not tell its measures"
        return [{"sum": told.sum, "squares": told.squares, "largest": told.largest, "zeros": told.zeros} for told in result.measures[:gate]]


class Comparer(Measurer):
    list_launch = CompareLaunch


def doubles_of(tensor):
    return tensor.own_parts().contiguous().view(tensor.kind.real).to(torch.float64).flatten()


def expected(tensor):
    """The same by torch."""
    values = doubles_of(tensor)
    if not values.numel():
        return {"sum": 0.0, "squares": 0.0, "largest": 0.0, "zeros": 0, "size": 0.0}
    return {"sum": float(values.sum()), "squares": float(values.square().sum()), "largest": float(values.abs().max()),
            "zeros": int((values == 0).sum()), "size": float(values.abs().sum())}


def agree(got, want):
    if not math.isfinite(want["largest"]):
        # The sums may be anything then.
        return got["zeros"] == want["zeros"] and str(got["largest"]) == str(want["largest"])
    return (got["zeros"] == want["zeros"] and got["largest"] == want["largest"] and
            abs(got["squares"] - want["squares"]) <= RELATIVE * want["squares"] and abs(got["sum"] - want["sum"]) <= RELATIVE * want["size"])


def measures_are_right(arguments):
    """Lists of 28 and of fewer, of all types and sizes, aligned and not; some all zero, some with bad elements."""
    machine = machine_of(arguments)
    measurer = Measurer(machine)
    generator = torch.Generator(device=machine.device).manual_seed(2027)
    shapes = [shape for size in machine.list_sizes for shape in layouts(size) if shape.dense]
    tensors = [Tensor(kind, shape, machine.device, generator) for shape in shapes for kind in MEASURED]
    for i, tensor in enumerate(tensors):
        if i % 7 == 3:
            tensor.own_parts().zero_()
        elif i % 11 == 5 and tensor.layout.numel:
            planted(tensor, ("first", "last", "middle", "several")[i % 4])
    wrong, asked = [], 0
    for length in (MEASURED_MAX, 5, 1):
        for begin in range(0, len(tensors), length):
            some = tensors[begin:begin + length]
            for tensor, got in zip(some, measurer.ask(some)):
                asked += 1
                want = expected(tensor)
                if not agree(got, want):
                    wrong.append(f"{tensor.kind.name}, {tensor.layout.name}, {tensor.layout.numel}: got {got}, torch says {want}"[:300])
    return Answer({"tensors": asked, "wrong": len(wrong), "first_wrong": wrong[:3]}, not wrong)


def comparisons_are_right(arguments):
    """Samples of all elements, kept by one launch and compared by the next."""
    machine = machine_of(arguments)
    comparer = Comparer(machine)
    generator = torch.Generator(device=machine.device).manual_seed(2028)
    tensors = [Tensor(kind, Layout("contiguous", (size,), (1,), dense=True), machine.device, generator) for size in (1, 17, 511, 512, 513, 4096)
               for kind in MEASURED]
    kept = [Tensor(TYPES[0], tensor.layout, machine.device, generator) for tensor in tensors]
    comparer.ask(tensors + kept, len(tensors))
    before = [doubles_of(tensor).clone() for tensor in tensors]
    for tensor in tensors:
        values = tensor.own_parts().view(tensor.kind.real)
        values.copy_(values * 1.5)
    wrong = []
    for tensor, was, got in zip(tensors, before, comparer.ask(tensors + kept, len(tensors))):
        want = float((doubles_of(tensor) - was).square().sum()), float(was.square().sum())
        if any(abs(one - other) > RELATIVE * other for one, other in zip((got["squares"], got["sum"]), want)):
            wrong.append(f"{tensor.kind.name}, {tensor.layout.numel}: got {got}, torch says {want}")
    return Answer({"tensors": len(tensors), "wrong": len(wrong), "first_wrong": wrong[:3]}, not wrong)


def bandwidth(arguments):
    """Tensors of 64 MB measured, in turn with the same ones checked."""
    return rows_beside_check(arguments, [(kind, 1) for kind in MEASURED], "measure", Measurer)


QUESTIONS = [
    Question("measures.right", "are sum, squares, largest and zeros of each tensor those of torch?", measures_are_right, "all"),
    Question("measures.compared", "are samples compared with what they were, as torch would?", comparisons_are_right, "all"),
    Question("measures.bandwidth", "how fast is a tensor of 64 MB measured, beside one that is only checked?", bandwidth, timed=True),
]


if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
