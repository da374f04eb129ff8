# SPDX-License-Identifier: Apache-2.0
"""The door to the check kernels: the structs of shim/device/*_launch.h, and their launch through the driver's own functions."""
import ctypes
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PTX = ROOT / "shim/device/check_kernel.ptx"
CUBIN = "check_kernel.sm_90.cubin"  # where it was packed it lies beside the library of grid_for.cc
NO_COMPILER = 221  # CUDA_ERROR_JIT_COMPILER_NOT_FOUND
FEW_TENSORS, MANY_TENSORS, DIMS_MAX = 4, 16, 8
LIST_MAX, LIST_WORDS, GATE_COUNTED_MAX, LIST_COUNTED_MAX, SCRATCH_BYTES = 250, 8, 8, 14, 80
MEASURED_MAX, MEASURE_SCRATCH_BYTES = 28, 904
BATCH_ENTRIES_MAX, BATCH_OTHERS_MAX, BATCH_ENTRIES_COUNTED, BATCH_COUNTED_MAX = 24, 24, 8, 14
READ_ALL, WAS_READ_IN_FULL, READ_IN_FULL_BYTES, PHASES = 2, 8, 1 << 20, 16
MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
THREADS_PER_BLOCK = 512
u8, u32, u64, i64, f64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_double


class DeviceTensor(ctypes.Structure):
    _fields_ = [("data", u64), ("numel", i64), ("type", u8), ("ndim", u8), ("one_run", u8), ("unused", u8 * 5),
                ("sizes", i64 * DIMS_MAX), ("strides", i64 * DIMS_MAX)]


class TensorCounts(ctypes.Structure):
    _fields_ = [("nan", u64), ("pos_inf", u64), ("neg_inf", u64), ("first_bad", u64),
                ("finite_min", f64), ("finite_max", f64), ("finite_mean", f64)]


class CheckResult(ctypes.Structure):
    _fields_ = [("ticket", u64), ("hits", u64), ("step", u64), ("output_kinds", u8 * 8), ("input_kinds", u8 * 8),
                ("brief", u64), ("again", u64), ("list_sums_ticket", u64), ("outputs", TensorCounts * 8), ("inputs", TensorCounts * 8)]


class LaunchHead(ctypes.Structure):
    _fields_ = [("ticket", u64), ("result", u64), ("scratch", u64), ("progress", u64), ("step_word", u64),
                ("output_count", u32), ("input_count", u32), ("flags", u32), ("unused", u32)]


class FewLaunch(ctypes.Structure):
    _fields_ = [("head", LaunchHead), ("tensors", DeviceTensor * FEW_TENSORS)]


class ManyLaunch(ctypes.Structure):
    _fields_ = [("head", LaunchHead), ("tensors", DeviceTensor * MANY_TENSORS)]


class ListEntry(ctypes.Structure):
    _fields_ = [("data", u64), ("numel_and_type", u64)]


class ListLaunch(ctypes.Structure):
    _fields_ = [("head", LaunchHead), ("entries", ListEntry * LIST_MAX)]


class SumLaunch(ListLaunch):
    """The same for nanwatch_sum_list."""


class MeasureLaunch(ListLaunch):
    """The same for nanwatch_measure_list, of no more than MEASURED_MAX entries."""


class CompareLaunch(ListLaunch):
    """The same for nanwatch_compare_list, which has a block for each entry."""


class BatchLaunch(ctypes.Structure):
    """`ends` are filled in when it is launched."""
    _fields_ = [("head", LaunchHead), ("phase", u32), ("unused", u32), ("ends", u32 * BATCH_ENTRIES_MAX),
                ("entries", ListEntry * (BATCH_ENTRIES_MAX + BATCH_OTHERS_MAX))]


class BatchResult(ctypes.Structure):
    _fields_ = [("ticket", u64), ("hits", u64), ("step", u64), ("kinds", u8 * 16), ("brief", u64), ("again", u64), ("sums_ticket", u64),
                ("states", u8 * (BATCH_ENTRIES_MAX + BATCH_OTHERS_MAX)), ("tensor", u8 * 16), ("counted", u32), ("unused", u32 * 11),
                ("counts", TensorCounts * BATCH_COUNTED_MAX)]


class Measure(ctypes.Structure):
    _fields_ = [("sum", f64), ("squares", f64), ("largest", f64), ("zeros", u64)]


class MeasureResult(ctypes.Structure):
    _fields_ = [("unused", u64 * 7), ("measures_ticket", u64), ("measures", Measure * MEASURED_MAX)]


class ListSums(ctypes.Structure):
    _fields_ = [("squares", f64), ("first", f64), ("nonzero", u32 * LIST_WORDS)]


class ListResult(ctypes.Structure):
    _fields_ = [("ticket", u64), ("hits", u64), ("step", u64), ("kinds", u8 * 16), ("brief", u64), ("again", u64),
                ("sums_ticket", u64), ("bad", u32 * LIST_WORDS), ("entry", u8 * 16),
                ("counts", TensorCounts * LIST_COUNTED_MAX), ("sums", ListSums), ("counted", u32), ("unused", u32 * 3)]


assert (ctypes.sizeof(DeviceTensor), ctypes.sizeof(CheckResult), ctypes.sizeof(LaunchHead)) == (152, 960, 56)


def layout():
    """As nanwatch_layout of grid_for.cc counts it, in the same order."""
    size = ctypes.sizeof
    return [size(DeviceTensor), DeviceTensor.type.offset, DeviceTensor.one_run.offset, DeviceTensor.sizes.offset, DeviceTensor.strides.offset,
            size(TensorCounts), TensorCounts.first_bad.offset, TensorCounts.finite_min.offset,
            size(CheckResult), CheckResult.output_kinds.offset, CheckResult.outputs.offset, CheckResult.inputs.offset,
            size(LaunchHead), LaunchHead.progress.offset, LaunchHead.output_count.offset,
            size(FewLaunch), size(ManyLaunch),
            size(ListLaunch), size(ListResult), ListResult.counted.offset, ListResult.bad.offset, ListResult.entry.offset,
            ListResult.counts.offset, SCRATCH_BYTES, THREADS_PER_BLOCK,
            ListResult.sums_ticket.offset, ListResult.sums.offset, size(ListSums), ListSums.first.offset, ListSums.nonzero.offset,
            size(Measure), Measure.largest.offset, Measure.zeros.offset, size(MeasureResult), MeasureResult.measures_ticket.offset,
            MeasureResult.measures.offset, MEASURED_MAX, MEASURE_SCRATCH_BYTES,
            size(BatchLaunch), BatchLaunch.phase.offset, BatchLaunch.ends.offset, BatchLaunch.entries.offset,
            size(BatchResult), BatchResult.states.offset, BatchResult.tensor.offset, BatchResult.counted.offset, BatchResult.counts.offset,
            BATCH_ENTRIES_MAX, BATCH_OTHERS_MAX, BATCH_ENTRIES_COUNTED, READ_ALL, WAS_READ_IN_FULL, READ_IN_FULL_BYTES, PHASES]


class GridFor:
    """GridFor of shim/device/check_kernel.h, ListGridFor of check_list.h and what plans a batch, compiled, and the layouts that it was
    compiled with."""

    def __init__(self, library):
        self.path = pathlib.Path(library)
        self._library = ctypes.CDLL(str(library))
        self._grid_for, self._layout = self._library.nanwatch_grid_for, self._library.nanwatch_layout
        self._grid_for.argtypes, self._grid_for.restype = [ctypes.c_void_p, u32], u32
        self._list_grid_for = self._library.nanwatch_list_grid_for
        self._list_grid_for.argtypes, self._list_grid_for.restype = [ctypes.c_void_p, u32], u32
        self._plan_batch = self._library.nanwatch_plan_batch
        self._plan_batch.argtypes, self._plan_batch.restype = [ctypes.c_void_p, u32], u32
        self._layout.argtypes, self._layout.restype = [u32], u64

    def __call__(self, launch, multiprocessors):
        ask = self._plan_batch if isinstance(launch, BatchLaunch) else self._list_grid_for if isinstance(launch, ListLaunch) else self._grid_for
        return ask(ctypes.addressof(launch), multiprocessors)

    def layout(self):
        values = []
        while (value := self._layout(len(values))) != 2**64 - 1:
            values.append(value)
        return values


class DriverError(Exception):
    def __init__(self, function, result):
        super().__init__(f"{function} answered {result}")
        self.result = result


class Driver:
    """The kernels of check_kernel.ptx, in the context that is current on this thread. Where its driver has no compiler they are those of
    the cubin that lies beside the library of `grid_for`, and `kernels_from` says so."""

    def __init__(self, grid_for, library="libcuda.so.1"):
        self._cuda = ctypes.CDLL(library)
        self._grid_for = grid_for
        device, count = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSOR_COUNT, device)
        self.multiprocessors = count.value
        self.kernels_from = ""
        module = self._load(grid_for.path.with_name(CUBIN))
        self._functions = {FewLaunch: self._function(module, b"nanwatch_check_few"),
                           ManyLaunch: self._function(module, b"nanwatch_check_many"),
                           ListLaunch: self._function(module, b"nanwatch_check_list"),
                           SumLaunch: self._function(module, b"nanwatch_sum_list"),
                           MeasureLaunch: self._function(module, b"nanwatch_measure_list"),
                           CompareLaunch: self._function(module, b"nanwatch_compare_list"),
                           BatchLaunch: self._function(module, b"nanwatch_check_batch")}

    def _load(self, cubin):
        module = ctypes.c_void_p()
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), ctypes.c_char_p(PTX.read_bytes()), 0, None, None)
        except DriverError as error:
            if error.result != NO_COMPILER or not cubin.exists():
                raise
            self._call("cuModuleLoadDataEx", ctypes.byref(module), ctypes.c_char_p(cubin.read_bytes()), 0, None, None)
            self.kernels_from = f"{CUBIN}, assembled elsewhere: this driver has no compiler for their text ({error})"
        return module

    def _call(self, name, *arguments):
        result = getattr(self._cuda, name)(*arguments)
        if result != 0:
            raise DriverError(name, result)

    def _function(self, module, name):
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name)
        return function

    def launch(self, launch, stream):
        """The driver copies the parameters before it returns."""
        is_comparison = isinstance(launch, CompareLaunch)
        blocks = launch.head.output_count if is_comparison else self._grid_for(launch, self.multiprocessors)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(launch))
        self._call("cuLaunchKernel", self._functions[type(launch)], blocks, 1, 1, THREADS_PER_BLOCK, 1, 1, 0,
                   ctypes.c_void_p(stream), parameters, None)
