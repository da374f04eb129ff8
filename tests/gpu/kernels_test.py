# SPDX-License-Identifier: Apache-2.0
"""kernels_test.py GRID_FOR CPU_KERNEL FAKE_CUDA: kernels.py, on a driver whose device is this CPU."""
import argparse
import contextlib
import ctypes
import itertools
import math
import pathlib
import shutil
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import torch

import kernels
from driver import CUBIN, Driver, DriverError, GridFor, layout

GRID_FOR, CPU_KERNEL, FAKE_CUDA = sys.argv[1:4]


class Cpu:
    device, sizes = "cpu", [1, 2, 3, 15, 16, 17, 33, 513, 2049]
    bandwidth_bytes, bandwidth_total = [4096], 16384
    list_sizes = [0, 1, 3, 17, 513]

    def __init__(self):
        self._cuda = ctypes.CDLL(FAKE_CUDA)
        self._cuda.fake_cuda_new_stream.restype = ctypes.c_void_p
        ctypes.CDLL(CPU_KERNEL).nanwatch_make_cpu_device()
        self.driver = Driver(GridFor(GRID_FOR), FAKE_CUDA)
        self._stream = self._cuda.fake_cuda_new_stream(0)

    def launch(self, launch):
        self.driver.launch(launch, self._stream)

    def synchronize(self):
        self._cuda.fake_cuda_run_all()

    def host_words(self, count):
        return torch.zeros(count, dtype=torch.int64)

    def timed(self, work):
        def measure():
            started = time.perf_counter()
            work()
            self.synchronize()
            return time.perf_counter() - started
        return measure

    def warmed_again(self):
        return None

    def forget(self):
        pass


class Stream:
    """In torch.cuda's place: a stream of a GPU, and a host that takes `replay_s` to hand over a graph that runs for `graph_s`."""

    def __init__(self, graph_s, replay_s):
        self._graph_s, self._replay_s, self._host, self._free = graph_s, replay_s, 0.0, 0.0

    def queue(self, host_s, gpu_s):
        """When the GPU is through with it."""
        self._host += host_s
        self._free = max(self._free, self._host) + gpu_s
        return self._free

    def synchronize(self):
        self._host = max(self._host, self._free)

    def cuda(self):
        stream = self

        class Event:
            def __init__(self, enable_timing):
                self.stamp = 0.0

            def record(self):
                self.stamp = stream.queue(1e-6, 0)

            def query(self):
                return self.stamp <= stream._host

            def synchronize(self):
                stream.synchronize()

            def elapsed_time(self, end):
                return 1e3 * (end.stamp - self.stamp)
        graph = types.SimpleNamespace(replay=lambda: stream.queue(stream._replay_s, stream._graph_s))
        return mock.patch.multiple(torch.cuda, Event=Event, CUDAGraph=lambda: graph, graph=lambda _: contextlib.nullcontext(),
                                   synchronize=self.synchronize, _sleep=lambda cycles: stream.queue(1e-6, cycles / 2e9))


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.arguments = argparse.Namespace(grid_for=pathlib.Path(GRID_FOR), machine=Cpu(), seconds=1000, ends_at=math.inf)

    def test_structs_lie_as_the_compiled_ones(self):
        self.assertEqual(GridFor(GRID_FOR).layout(), layout())
        self.assertTrue(kernels.layouts_agree(self.arguments).met)

    def test_answers_agree_with_torch_for_every_type_and_layout(self):
        answer = kernels.is_right(self.arguments)
        self.assertEqual(answer.value["first_wrong"], [])
        self.assertEqual(answer.value["left_out_for_time"], 0)
        self.assertGreater(answer.value["cases"], 3000)

    def test_a_wrong_answer_is_told(self):
        class Liar(kernels.Checker):
            def check(self, tensor):
                found = super().check(tensor)
                return found and found | {"first_bad": found["first_bad"] + 1}
        honest, kernels.Checker = kernels.Checker, Liar
        try:
            answer = kernels.is_right(argparse.Namespace(machine=Small(self.arguments.machine), seconds=1000, ends_at=math.inf))
        finally:
            kernels.Checker = honest
        self.assertFalse(answer.met)
        self.assertIn("first_bad", answer.value["first_wrong"][0])

    def test_lists_are_found_right_with_a_gate_and_without(self):
        answer = kernels.lists_are_right(self.arguments)
        self.assertEqual((answer.value["first_wrong"], answer.value["lists"]), ([], 18))
        rows = kernels.list_bandwidth(self.arguments).value["rows"]
        self.assertEqual([row["tensors"] for row in rows], [148, 148, 148, 148, 2, 2])

    def test_where_the_driver_has_no_compiler_the_packed_cubin_is_taken_and_told(self):
        fake = ctypes.CDLL(FAKE_CUDA)
        fake.fake_cuda_set_logging(1)  # calls that fail are counted then
        self.addCleanup(fake.fake_cuda_set_logging, 0)
        with tempfile.TemporaryDirectory() as folder:
            grid_for = GridFor(shutil.copy(GRID_FOR, folder))
            fake.fake_cuda_fail(b"cuModuleLoadDataEx", 1, 1, 221)
            with self.assertRaisesRegex(DriverError, "cuModuleLoadDataEx answered 221"):
                Driver(grid_for, FAKE_CUDA)
            (pathlib.Path(folder) / CUBIN).write_bytes(b"\x7fELF\0.version")
            fake.fake_cuda_fail(b"cuModuleLoadDataEx", 1, 1, 221)
            driver = Driver(grid_for, FAKE_CUDA)
        arguments = argparse.Namespace(machine=mock.Mock(driver=driver), notes={})
        kernels.machine_of(arguments)
        self.assertIn("check_kernel.sm_90.cubin, assembled elsewhere", arguments.notes["kernels_from"])
        self.assertEqual(self.arguments.machine.driver.kernels_from, "")

    def test_a_list_that_is_told_wrong_is_told(self):
        class Liar(kernels.Checker):
            def check_list(self, tensors, gate):
                bad, counted = super().check_list(tensors, gate)
                return bad[:-1], counted
        honest, kernels.Checker = kernels.Checker, Liar
        try:
            answer = kernels.lists_are_right(self.arguments)
        finally:
            kernels.Checker = honest
        self.assertFalse(answer.met)

    def test_what_takes_too_long_is_told_as_left_out(self):
        for liar, met in ((False, None), (True, False)):
            arguments = argparse.Namespace(machine=Hurried(self.arguments.machine, liar), seconds=1000, ends_at=time.monotonic() + 100)
            with mock.patch.object(time, "monotonic", arguments.machine.monotonic):
                answer = kernels.is_right(arguments)
            self.assertIs(answer.met, met)
            self.assertGreater(answer.value["cases"], 0)
            self.assertGreater(answer.value["left_out_for_time"], 0)

    def test_it_has_all_the_time_of_its_question(self):
        """Not only the part of it that measuring may take."""
        answer = kernels.is_right(argparse.Namespace(machine=Small(self.arguments.machine), seconds=-1, ends_at=time.monotonic() + 100))
        self.assertEqual((answer.met, answer.value["left_out_for_time"]), (True, 0))

    def test_a_large_tensor_is_told_by_what_was_planted(self):
        self.assertTrue(kernels.is_right_beyond_32_bits(self.arguments).met)

    def test_speed_is_asked_of_every_type(self):
        rows = kernels.bandwidth(self.arguments).value["rows"]
        self.assertEqual([row["type"] for row in rows], [kind.name for kind in kernels.TYPES])
        self.assertEqual(set(kernels.small(self.arguments).value["microseconds"]), {"scan_64_kib", "empty_launch"})
        self.assertEqual(len(kernels.hit(self.arguments).value), 1)


    def rows(self, ends_at=math.inf, machine=None, **makers):
        """The answer, and what was told on the way."""
        told, arguments = [], argparse.Namespace(ends_at=ends_at)
        arguments.so_far = lambda answer: told.append([row["name"] for row in answer.value["rows"]])
        return kernels.rows_of(machine or self.arguments.machine, arguments, [({"name": name}, make) for name, make in makers.items()],
                               goal=lambda row: row["ratio"] >= 0.9), told

    def test_a_row_that_fails_or_that_there_is_no_time_for_costs_itself_alone(self):
        def fails():
            raise torch.OutOfMemoryError("CUDA out of memory")
        fine, slow = (lambda: {"ratio": 0.95}), (lambda: {"ratio": 0.5})
        answer, told = self.rows(a=fine, b=fails, c=fine)
        self.assertEqual((answer.met, answer.gpu_lost, told), (None, False, [["a"], ["a", "b"], ["a", "b", "c"]]))
        self.assertEqual(answer.value, {"rows": [{"name": "a", "ratio": 0.95}, {"name": "b", "failed": "OutOfMemoryError: CUDA out of memory"},
                                                 {"name": "c", "ratio": 0.95}]})
        self.assertEqual((self.rows(a=fine)[0].met, self.rows(a=fine, b=slow)[0].met, self.rows(a=slow, b=fails)[0].met), (True, False, False))
        self.assertIsNone(self.rows(a=fails)[0].met)
        ends_at, clock = time.monotonic() + 1000, itertools.chain([0], itertools.repeat(996))
        with mock.patch.object(time, "monotonic", lambda: ends_at - 1000 + next(clock)):
            answer, _ = self.rows(ends_at, a=fine, b=fine)
        self.assertEqual((answer.met, answer.value), (None, {"rows": [{"name": "a", "ratio": 0.95}], "left_out_for_time": [{"name": "b"}]}))

    def test_on_a_gpu_that_is_lost_no_more_rows_are_made(self):
        def fails():
            raise RuntimeError("CUDA error: an illegal memory access")
        machine = mock.Mock(synchronize=fails)
        answer, _ = self.rows(machine=machine, a=fails, b=lambda: {"ratio": 1})
        self.assertTrue(answer.gpu_lost)
        self.assertEqual(answer.value["left_out_as_the_gpu_is_lost"], [{"name": "b"}])

    def test_what_the_host_takes_to_queue_a_graph_is_not_in_its_time(self):
        for replay_s in (5e-6, 900e-6, 20e-3):
            with Stream(graph_s=10e-6, replay_s=replay_s).cuda():
                measure = kernels.Gpu.__new__(kernels.Gpu).timed(lambda: None)
                for _ in range(3):
                    self.assertAlmostEqual(measure(), 10e-6, delta=1e-9)

    def test_a_host_that_is_never_quick_enough_makes_no_figure(self):
        with Stream(graph_s=10e-6, replay_s=10).cuda(), self.assertRaisesRegex(RuntimeError, "took longer to queue"):
            kernels.Gpu.__new__(kernels.Gpu).timed(lambda: None)


class Hurried:
    """The same machine with one size, on which the time is over after ten launches; a liar's tensors are spoilt behind its back."""
    sizes = [17]

    def __init__(self, machine, liar):
        self._machine, self._liar, self._launches, self._began = machine, liar, 0, time.monotonic()

    def monotonic(self):
        return self._began + (1000 if self._launches >= 10 else 0)

    def launch(self, launch):
        self._launches += 1
        if self._liar and self._launches == 2:
            launch.tensors[0].numel -= 17
        self._machine.launch(launch)

    def __getattr__(self, name):
        return getattr(self._machine, name)


class Small:
    """The same machine with one size."""
    sizes = [17]

    def __init__(self, machine):
        self._machine = machine

    def __getattr__(self, name):
        return getattr(self._machine, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
