#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one recorded op again, and says where its NaN or Inf comes from.

    python -I repro_op.py [--times N] [--import FILE] [--json]

It needs torch and the files beside it, nothing else. The op is run as it was, then in float64, and, where float64 gives another
answer, in plain (not vectorized) kernels. The answer is one word:

    mathematics     the same in float64: these numbers have no finite answer
    range           finite in float64: the answer, or a number on the way to it, does not fit the type
    kernel_fault    finite in float64 and in plain kernels, or not the same on every run on this machine
    not_reproduced  every run gave finite numbers
    cannot_run      the op could not be run here

Exit status: 0 reproduced, 2 not reproduced, 3 cannot tell, 1 wrong use.
"""
import argparse
import hashlib
import json
import os
import pathlib
import runpy
import struct
import subprocess
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
EXIT_OF = {"mathematics": 0, "range": 0, "kernel_fault": 0, "not_reproduced": 2, "cannot_run": 3}
CHILD_SECONDS = 300


class CannotRun(Exception):
    """The op cannot be run here; the text says why."""


def read_capsule(folder):
    """The manifest, and the bytes of each part by its name."""
    manifest = json.loads((folder / "manifest.json").read_text())
    if manifest.get("schema") != "nanwatch.capsule/1":
        raise CannotRun(f"its schema is {manifest.get('schema')}, this program reads nanwatch.capsule/1")
    if not manifest["complete"]:
        raise CannotRun(f"its inputs were not kept: {manifest['why_not']}")
    data = (folder / "tensors.safetensors").read_bytes()
    if hashlib.sha256(data).hexdigest() != manifest["tensors_sha256"]:
        raise CannotRun("tensors.safetensors is not the file that the manifest names: cut short, or changed")
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    body = memoryview(data)[8 + length:]
    return manifest, {name: body[part["data_offsets"][0]:part["data_offsets"][1]] for name, part in header.items()}


def as_bytes(data):
    """A one-dimensional uint8 tensor of its own memory."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8)


def bad_places(tensor):
    """0 finite, 1 NaN, 2 Inf, 3 -Inf, for each element."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj().resolve_neg())
    if not tensor.is_floating_point():
        return torch.zeros(tensor.shape, dtype=torch.uint8)
    if tensor.element_size() == 1:
        tensor = tensor.float()
    return (torch.isnan(tensor) * 1 + torch.isposinf(tensor) * 2 + torch.isneginf(tensor) * 3).to(torch.uint8)


def raw(tensor):
    return bytes(tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy())


class Call:
    """One call of the op. `dtype`: floating-point tensors are converted to it first."""

    def __init__(self, manifest, parts, dtype=None):
        self.manifest, self.parts, self.dtype = manifest, parts, dtype
        self.storages, self.tensors = {}, {}
        self.numbers_as_tensors = False

    def storage(self, number):
        if number not in self.storages:
            note = self.manifest["storages"][number]
            memory = torch.zeros(note["bytes"], dtype=torch.uint8)
            memory[note["begin"]:note["end"]] = as_bytes(self.parts[f"storage.{number}"])
            self.storages[number] = memory.untyped_storage()
        return self.storages[number]

    def tensor(self, number):
        if number not in self.tensors:
            self.tensors[number] = self.make_tensor(number)
        return self.tensors[number]

    def make_tensor(self, number):
        note = self.manifest["tensors"][number]
        tensor = torch.empty(0, dtype=getattr(torch, note["dtype"]))
        tensor.set_(self.storage(note["storage"]), note["offset"], note["size"], note["stride"])
        written = any(output.get("argument_tensor") == number for output in self.manifest["outputs"])
        if written and self.manifest["storages"][note["storage"]]["content"] == "after":
            torch.nan_to_num_(tensor, nan=0.0, posinf=0.0, neginf=0.0)  # what it was before is not known
        if note["conj"]:
            tensor = tensor.conj()
        if note["neg"]:
            tensor = torch._neg_view(tensor)
        if self.dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(self.dtype)
        elif self.dtype is not None and tensor.is_complex():
            tensor = tensor.to(torch.complex128)
        return tensor.item() if note["wrapped_number"] and not self.numbers_as_tensors else tensor

    def value(self, note):
        if isinstance(note, list):
            return [self.value(item) for item in note]
        if not isinstance(note, dict):
            return note
        (kind, value), = note.items()
        if kind == "tensor":
            return self.tensor(value)
        if kind == "dtype":
            dtype = getattr(torch, value)
            return self.dtype if self.dtype is not None and dtype.is_floating_point else dtype
        readers = {"int": int, "text": str, "float": float, "device": torch.device,
                   "complex": lambda pair: complex(float(pair[0]), float(pair[1])),
                   "layout": lambda name: getattr(torch, name), "memory_format": lambda name: getattr(torch, name)}
        return readers[kind](value)

    def run(self):
        """For each output that was bad: the tensors that may be it."""
        try:
            return self.run_once()
        except (RuntimeError, TypeError):
            if not any(note and note["wrapped_number"] for note in self.manifest["tensors"]):
                raise
        # Some ops take no number in the place of a tensor.
        self.storages, self.tensors, self.numbers_as_tensors = {}, {}, True
        return self.run_once()

    def run_once(self):
        operator = find_operator(self.manifest["op"])
        positional, named = [], {}
        for argument, note in zip(operator._schema.arguments, self.manifest["arguments"]):
            if argument.kwarg_only:
                named[argument.name] = self.value(note)
            else:
                positional.append(self.value(note))
        with torch.no_grad():
            returned = operator(*positional, **named)
        returned = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if len(operator._schema.returns) == 1 and len(returned) > 1:
            returned = [returned]  # one list
        return [self.output(output, returned) for output in self.manifest["outputs"]]

    def output(self, note, returned):
        if "argument_tensor" in note:
            return [self.tensor(note["argument_tensor"])]
        found = returned[note["return"]]
        return list(found) if isinstance(found, (tuple, list)) else [found]


def find_operator(note):
    namespace, name = note["name"].split("::")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), note["overload"] or "default")
    except AttributeError:
        raise CannotRun(f"this torch has no op {note['name']}; name the file that registers it with --import") from None


def set_flags(flags):
    torch.set_num_threads(flags["threads"])
    torch.use_deterministic_algorithms(flags["deterministic"], warn_only=flags["deterministic_warn_only"])
    torch.set_default_dtype(getattr(torch, flags["default_dtype"]))
    torch.backends.mkldnn.enabled = flags["mkldnn"]
    torch.set_flush_denormal(flags["flush_denormal"])


def find_differences(manifest):
    """How this machine differs from the one that recorded it, in what may change bits."""
    here = {"version": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    return [f"{name} was {recorded}, here it is {here[name]}" for name, recorded in manifest["torch"].items()
            if not here[name].startswith(recorded)]


class Recorded:
    """The bad outputs as they were."""

    def __init__(self, manifest, parts):
        self.raw = [bytes(parts[f"output.{i}"]) for i in range(len(manifest["outputs"]))]
        self.tensors = [as_bytes(data).view(getattr(torch, note["dtype"])).reshape(note["size"])
                        for data, note in zip(self.raw, manifest["outputs"])]
        self.places = [bad_places(tensor) for tensor in self.tensors]

    def choose(self, run):
        """Of the tensors that may be an output the one with the same places, else the first of its shape."""
        return [min(tensors, key=lambda each: (each.shape != tensor.shape, not self.is_same(each, places)))
                for tensors, tensor, places in zip(run, self.tensors, self.places)]

    @staticmethod
    def is_same(tensor, places):
        found = bad_places(tensor)
        return found.shape == places.shape and torch.equal(found, places)


def holds_nan(manifest, parts):
    """Whether an input does that the op does not write."""
    call = Call(manifest, parts)
    written = {output.get("argument_tensor") for output in manifest["outputs"]}
    inputs = (call.tensor(i) for i, note in enumerate(manifest["tensors"]) if note is not None and i not in written)
    return any(isinstance(each, torch.Tensor) and bool((bad_places(each) == 1).any()) for each in inputs)


def run_as_it_was(manifest, parts, recorded, times):
    seen = {"times": times, "bad": 0, "same_places": 0, "same_bits": 0}
    bits, kinds = [], []
    for _ in range(times):
        outputs = recorded.choose(Call(manifest, parts).run())
        places = [bad_places(output) for output in outputs]
        kinds.append(places)
        seen["bad"] += any(bool(place.any()) for place in places)
        seen["same_places"] += all(recorded.is_same(output, place) for output, place in zip(outputs, recorded.places))
        bits.append([raw(output) for output in outputs])
        seen["same_bits"] += bits[-1] == recorded.raw
    seen["varies"] = any(run != bits[0] for run in bits)
    seen["varies_in_places"] = any(not torch.equal(a, b) for run in kinds for a, b in zip(run, kinds[0]))
    return seen


def run_in(dtype, manifest, parts, recorded):
    """Of the elements that were bad: how many still are, how many are too large for their type, and how many are neither."""
    torch.set_default_dtype(dtype)  # what integers become
    try:
        outputs = recorded.choose(Call(manifest, parts, dtype).run())
    except Exception as error:  # not every op has a kernel for it
        return {"error": " ".join(str(error).split())[:300]}
    finally:
        torch.set_default_dtype(getattr(torch, manifest["flags"]["default_dtype"]))
    seen = {"still_bad": 0, "too_large": 0, "finite": 0}
    for output, tensor, places in zip(outputs, recorded.tensors, recorded.places):
        if output.shape != tensor.shape:
            return {"error": "another shape"}
        now, was = bad_places(output), places > 0
        real = torch.view_as_real(output.resolve_conj().resolve_neg()) if output.is_complex() else output
        largest = torch.finfo(tensor.dtype).max
        finite = was & (now == 0)
        too_large = finite & (real.abs().double() > largest)
        seen["still_bad"] += int((was & (now > 0)).sum())
        seen["too_large"] += int(too_large.sum())
        seen["finite"] += int((finite & ~too_large).sum())
    return seen


def run_in_plain_kernels(folder, imports):
    """The same in a process whose kernels are not vectorized; None: that could not be done."""
    command = [sys.executable, "-I", __file__, "--times", "1", "--child", "--capsule", folder]
    for file in imports:
        command += ["--import", file]
    try:
        told = subprocess.run(command, env={**os.environ, "ATEN_CPU_CAPABILITY": "default"}, capture_output=True, text=True,
                              timeout=CHILD_SECONDS, check=True)
        result = json.loads(told.stdout.splitlines()[-1])
        return result if "bad" in result else None
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def judge(result):
    """The word, and a sentence."""
    run, wide, plain = result["as_it_was"], result["float64"], result.get("plain_kernels")
    given = "its inputs hold NaN already" if result["input_nan"] else "these inputs have no finite result"
    times = run["times"]
    if run["same_places"] != times and result["guessed"]:
        return "cannot_run", "What the op overwrites was not kept, and with its result in that place it does not come out as it was."
    if run["bad"] == 0:
        return "not_reproduced", f"All of {times} runs gave finite numbers: what made it bad is not in these inputs."
    if run["bad"] < times or run["varies_in_places"]:
        return "kernel_fault", f"The result differs between runs on this machine: bad in {run['bad']} of {times}."
    if run["same_places"] != times:
        return "cannot_run", f"Bad in all of {times} runs, but not where it was: this machine or this torch computes another way."
    if "error" in wide:
        return "cannot_run", f"Bad in all of {times} runs. Whether float64 would do cannot be told, for it cannot be run so: {wide['error']}."
    if result["dtype"] in ("float64", "complex128") and plain is not None and not plain["bad"]:
        return "kernel_fault", "Finite in the plain kernel, bad in the vectorized one: the kernel that this machine uses may be wrong."
    if wide["finite"] == 0 and wide["too_large"] == 0:
        return "mathematics", f"Bad in all of {times} runs, and in float64: {given}."
    if wide["finite"] == 0:
        return "range", f"Bad in all of {times} runs. In float64 the result is finite, and too large for {result['dtype']}."
    if plain is not None and not plain["bad"]:
        return "kernel_fault", ("Finite in float64 and in the plain kernel, bad in the vectorized one: the kernel that this machine "
                                "uses may be wrong.")
    return "range", f"Bad in all of {times} runs. In float64 it is finite: a number on the way to the result does not fit {result['dtype']}."


def replay(arguments):
    manifest, parts = read_capsule(pathlib.Path(arguments.capsule))
    set_flags(manifest["flags"])
    recorded = Recorded(manifest, parts)
    result = {"schema": "nanwatch.replay/1", "op": manifest["op"]["name"], "dtype": manifest["outputs"][0]["dtype"],
              "inputs": "as they were", "differences": find_differences(manifest)}
    result["guessed"] = any(storage["content"] == "after" for storage in manifest["storages"])
    if result["guessed"]:
        result["inputs"] = "what the op overwrites was not kept: its result is used in its place, with zeros where it is bad"
    result["input_nan"] = holds_nan(manifest, parts)
    result["as_it_was"] = run_as_it_was(manifest, parts, recorded, arguments.times)
    if arguments.child:
        return result["as_it_was"]
    result["float64"] = run_in(torch.float64, manifest, parts, recorded)
    if result["float64"].get("finite", 0) or result["dtype"] in ("float64", "complex128"):
        result["plain_kernels"] = run_in_plain_kernels(arguments.capsule, arguments.imports)
    result["word"], result["sentence"] = judge(result)
    return result


def show(result):
    print(f"{result['op']}: {result['word']}")
    print(result["sentence"])
    if "as_it_was" in result:
        run = result["as_it_was"]
        print(f"Runs: {run['times']}; bad at the same places: {run['same_places']}; the same bits: {run['same_bits']}. "
              f"Inputs: {result['inputs']}.")
        for difference in result["differences"]:
            print(f"Not as it was: {difference}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, metavar="N", help="how often it is run as it was (default 5)")
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="FILE",
                        help="a Python file that registers custom ops; may be given more than once")
    parser.add_argument("--capsule", default=str(HERE), metavar="FOLDER", help="the folder to read (default: where this program lies)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.times < 1:
        parser.error("--times must be at least 1")
    try:
        for file in arguments.imports:
            runpy.run_path(file)
        result = replay(arguments)
    except CannotRun as error:
        result = {"schema": "nanwatch.replay/1", "op": "", "word": "cannot_run", "sentence": f"It cannot be run: {error}."}
    except Exception as error:  # an op may raise anything
        text = " ".join(str(error).split())[:300]
        result = {"schema": "nanwatch.replay/1", "op": "", "word": "cannot_run",
                  "sentence": f"It cannot be run here: {type(error).__name__}: {text}"}
    if arguments.json or arguments.child:
        print(json.dumps(result))
    else:
        show(result)
    return 0 if arguments.child else EXIT_OF[result["word"]]


if __name__ == "__main__":
    sys.exit(main())
