# SPDX-License-Identifier: Apache-2.0
"""Runs a program on a FAKE CUDA device in host memory: for tests, without a GPU, a driver or CUDA.

  tests/fakes/torch_cuda/run.py [--default-device] PROGRAM [ARGS]

As `python PROGRAM [ARGS]`, with torch.cuda.is_available() true and cuda:0 there. What the device is stands in install.cc; this
file answers what Python asks the CUDA runtime about itself. --default-device: tensors are made on cuda unless a program says
otherwise, so that one that knows nothing of devices trains there; the processes it forks stay on the CPU.

The library is that of build/release, or NANWATCH_FAKE_TORCH_CUDA.
"""
import argparse
import ctypes
import importlib
import itertools
import operator
import os
import pathlib
import runpy
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[3]


def library_path():
    return os.environ.get("NANWATCH_FAKE_TORCH_CUDA") or ROOT / "build/release/tests/fakes/torch_cuda/libfake_torch_cuda.so"


def install(devices=None):
    """Makes the device. Before the first operator, and before another thread runs one."""
    # In the place of the real one, which torch is linked to: whoever is there first is taken.
    if os.environ.get("NANWATCH_FAKE_CUPTI_LIBRARY"):
        ctypes.CDLL(os.environ["NANWATCH_FAKE_CUPTI_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
    runpy.run_path(str(ROOT / "tests/fakes/late_compiler/sitecustomize.py"))
    import torch

    devices = devices or int(os.environ.get("NANWATCH_FAKE_DEVICES", "1"))
    library = ctypes.CDLL(str(library_path()), mode=ctypes.RTLD_GLOBAL)
    library.fake_torch_cuda_install(devices)
    patch_cuda(torch, library, devices)
    patch_graphs(torch, library)
    patch_storage(torch)
    patch_processes(torch)


class FakeStream:
    """torch.cuda.Stream over torch.Stream, which asks the device guard instead of the runtime."""

    def __new__(cls, device=None, priority=0, **ids):
        import torch
        if "stream_id" in ids:
            return torch.Stream(stream_id=ids["stream_id"], device_index=ids["device_index"], device_type=ids["device_type"])
        return torch.Stream(device=torch.device("cuda", index_of(device)))


class FakeEvent:
    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
        import torch
        return torch.Event(device="cuda", enable_timing=enable_timing)


def index_of(device):
    import torch
    if device is None:
        return torch.accelerator.current_device_index()
    if isinstance(device, int):
        return device if device >= 0 else torch.accelerator.current_device_index()
    index = torch.device(device).index
    return torch.accelerator.current_device_index() if index is None else index


def patch_cuda(torch, library, devices):
    """What is behind these names asks the real runtime. The rest of torch.cuda stays."""
    cuda = torch.cuda
    properties = types.SimpleNamespace(
        name="fake CUDA device", major=9, minor=0, total_memory=1 << 33, multi_processor_count=2, is_integrated=False,
        max_threads_per_multi_processor=2048, warp_size=32, gcnArchName="", L2_cache_size=1 << 20,
        regs_per_multiprocessor=65536, shared_memory_per_block=49152, shared_memory_per_block_optin=49152)

    def synchronize(device=None):
        library.fake_torch_cuda_synchronize()

    def set_device(device):
        if index_of(device) >= 0:
            torch.accelerator.set_device_index(index_of(device))

    def current_stream(device=None):
        return torch.accelerator.current_stream(torch.device("cuda", index_of(device)))

    def set_stream(stream):
        if stream is not None:
            torch.accelerator.set_stream(stream)

    class StreamContext:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            if self.stream is not None:
                self.before = current_stream(self.stream.device)
                set_stream(self.stream)

        def __exit__(self, *_):
            if self.stream is not None:
                set_stream(self.before)

    no = lambda *_, **__: None
    zero = lambda *_, **__: 0
    true = lambda *_, **__: True
    false = lambda *_, **__: False
    in_use = lambda *_, **__: library.fake_torch_cuda_memory(0)
    peak = lambda *_, **__: library.fake_torch_cuda_memory(1)
    reset_peak = lambda *_: library.fake_torch_cuda_reset_peak()
    library.fake_torch_cuda_memory.restype = ctypes.c_size_t
    replaced = dict(
        is_available=true, device_count=lambda: devices, current_device=lambda: torch.accelerator.current_device_index(),
        set_device=set_device, is_initialized=true, init=no, _lazy_init=no, _is_in_bad_fork=false, synchronize=synchronize,
        get_device_properties=lambda *_: properties, get_device_name=lambda *_: properties.name,
        get_device_capability=lambda *_: (9, 0), get_arch_list=lambda: ["sm_90"], can_device_access_peer=false,
        Stream=FakeStream, Event=FakeEvent, current_stream=current_stream,
        default_stream=lambda device=None: torch.Stream(stream_id=0, device_index=index_of(device), device_type=1),
        set_stream=set_stream, stream=StreamContext, StreamContext=StreamContext,
        is_bf16_supported=true, is_tf32_supported=true, empty_cache=no, ipc_collect=no, mem_get_info=lambda *_: (1 << 32, 1 << 33),
        memory_allocated=in_use, max_memory_allocated=peak, memory_reserved=zero, max_memory_reserved=zero,
        reset_peak_memory_stats=reset_peak, reset_max_memory_allocated=reset_peak, memory_stats=lambda *_: {}, memory_summary=lambda *_, **__: "",
        # Operators draw from the CPU's generator: it is the device's.
        cudart=lambda: types.SimpleNamespace(cudaDeviceReset=library.fake_torch_cuda_reset_device, cudaDeviceSynchronize=synchronize),
        default_generators=(torch.default_generator,) * devices,
        get_rng_state=lambda *_: torch.default_generator.get_state(), set_rng_state=lambda state, *_: torch.set_rng_state(state),
    )
    cuda._initialized = True
    for name, value in replaced.items():
        setattr(cuda, name, value)
    for module, names in ((cuda.memory, ("empty_cache", "memory_allocated", "max_memory_allocated", "memory_stats", "mem_get_info")),
                          (cuda.random, ("get_rng_state", "set_rng_state"))):
        for name in names:
            setattr(module, name, replaced[name])
    cuda._DeviceGuard = DeviceGuard
    cuda._exchange_device = cuda._maybe_exchange_device = exchange_device
    torch._C._cuda_isInBadFork = false
    torch._C._cuda_getDeviceCount = lambda: devices
    torch._C._cuda_getDevice = replaced["current_device"]
    torch._C._cuda_synchronize = synchronize
    torch._C._cuda_init = no
    torch.backends.cudnn.is_acceptable = false  # recurrent layers have no cuDNN here, and flatten nothing


class FakeGraph:
    """What torch.cuda.CUDAGraph is derived from; see graphs.h."""
    library = None
    pools = itertools.count(1)

    def __new__(cls, keep_graph=False):
        graph = super().__new__(cls)
        graph.number, graph.own_pool = None, None
        return graph

    def capture_begin(self, pool=None, capture_error_mode="global"):
        self.own_pool = pool or (0, next(self.pools))
        self.library.fake_torch_cuda_begin_capture(("global", "thread_local", "relaxed").index(capture_error_mode))

    def capture_end(self):
        self.number = self.library.fake_torch_cuda_end_capture()
        if self.number < 0:
            self.number = None
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def replay(self):
        if self.number is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        self.library.fake_torch_cuda_replay(self.number)

    def reset(self):
        self.number = None

    def pool(self):
        return self.own_pool

    def instantiate(self):
        pass


def patch_graphs(torch, library):
    """torch.cuda.graphs once more, over a fake of the class that it derives from."""
    FakeGraph.library = library
    torch._C._CUDAGraph = FakeGraph
    torch._C._graph_pool_handle = lambda: (0, next(FakeGraph.pools))
    torch._C._cuda_isCurrentStreamCapturing = lambda: bool(library.fake_torch_cuda_is_capturing())
    torch._C._host_emptyCache = lambda: None
    graphs = importlib.reload(torch.cuda.graphs)
    for name in graphs.__all__:
        setattr(torch.cuda, name, getattr(graphs, name))


def patch_storage(torch):
    """A storage that Python makes comes from the real allocator: have an operator make it."""
    make = torch.UntypedStorage.__new__

    def new(cls, *arguments, device=None, **others):
        if device is None or torch.device(device).type != "cuda":
            return make(cls, *arguments, **others) if device is None else make(cls, *arguments, device=device, **others)
        size = arguments[0] if arguments else 0
        if isinstance(size, int):
            return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
        return torch.tensor(list(size), dtype=torch.uint8, device=device).untyped_storage()

    torch.UntypedStorage.__new__ = new


def exchange_device(index):
    import torch
    before = torch.accelerator.current_device_index()
    if index >= 0:
        torch.accelerator.set_device_index(index)
    return before


class DeviceGuard:
    def __init__(self, index):
        self.index = index

    def __enter__(self):
        self.before = exchange_device(self.index)

    def __exit__(self, *_):
        exchange_device(self.before)


def patch_processes(torch):
    """Tensors go to other processes by way of the CPU; forked ones make none on the device."""
    from multiprocessing.reduction import ForkingPickler
    from torch.multiprocessing import reductions

    def reduce_tensor(tensor):
        if tensor.is_cuda:
            return operator.methodcaller("cuda"), (tensor.detach().cpu(),)
        return reductions.reduce_tensor(tensor)

    ForkingPickler.register(torch.Tensor, reduce_tensor)

    def stay_on_cpu():
        if torch.get_default_device().type == "cuda":
            torch.set_default_device("cpu")

    os.register_at_fork(after_in_child=stay_on_cpu)


def make_default(torch):
    """Tensors are made on cuda, those over an array's memory too (which torch leaves on the CPU)."""
    torch.set_default_device("cuda")
    from_numpy = torch.from_numpy

    def to_default_device(array):
        return from_numpy(array).to(torch.get_default_device())

    torch.from_numpy = to_default_device
    for of_cpu in (torch.autocast, torch.amp.GradScaler):
        name_device(of_cpu)


def name_device(of_cpu):
    """What a program has made for the CPU by name is made for the device."""
    made = of_cpu.__init__

    def make(self, device="cuda", *arguments, **named):
        named.pop("device_type", None)
        made(self, "cuda" if device == "cpu" else device, *arguments, **named)

    of_cpu.__init__ = make


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--default-device", action="store_true")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    install()
    if options.default_device:
        import torch
        make_default(torch)
    sys.argv = [options.program, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.program))
    sys.modules.pop("run", None)
    try:
        runpy.run_path(options.program, run_name="__main__")
    finally:
        # A device goes on with what it was given while the process ends.
        ctypes.CDLL(str(library_path())).fake_torch_cuda_end()


if __name__ == "__main__":
    main()
