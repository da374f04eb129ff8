# SPDX-License-Identifier: Apache-2.0
"""The fake CUDA device does what a CPU does, by the way that a GPU goes. Run by run.py."""
import copy
import ctypes
import io
import os
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


class Packed(nn.LSTM):
    def forward(self, x):
        return super().forward(nn.utils.rnn.pack_padded_sequence(x, [5, 3, 2]))[0].data


class SelfAttention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x)[0]


def masked_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(5, 5, dtype=torch.bool, device=q.device).tril())


def ctc(a):
    targets = torch.ones(2, 3, dtype=torch.long, device=a.device)
    return F.ctc_loss(a.log_softmax(-1), targets, torch.tensor([6, 6]), torch.tensor([3, 3]))


def views(x):
    return (x.t()[1:] * 2).unfold(0, 2, 1).sum() + torch.stack([x, x]).cumsum(0).sort()[0].sum() + x[x > 0].sum()


FLOAT32 = 2  # wire::ElementType::kFloat32

# Modules with the shapes of what they are given.
LAYERS = {
    "conv1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 8)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1, dilation=2), (2, 3, 8, 8)),
    "conv3d": (lambda: nn.Conv3d(3, 4, 3), (2, 3, 6, 6, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 8, 8)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), (2, 4, 8, 8)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), (2, 3, 8, 8)),
    "batch norm, evaluating": (lambda: nn.BatchNorm1d(8).eval(), (5, 8)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5)),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 5)),
    "RMS norm": (lambda: nn.RMSNorm(8), (3, 8)),
    "LSTM": (lambda: nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True), (3, 5, 4)),
    "packed LSTM": (lambda: Packed(4, 6), (5, 3, 4)),
    "GRU": (lambda: nn.GRU(4, 6), (5, 3, 4)),
    "RNN": (lambda: nn.RNN(4, 6), (5, 3, 4)),
    "multi-head attention": (lambda: SelfAttention(8, 2, batch_first=True), (3, 5, 8)),
    "attention": (lambda: Call(masked_attention), (2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (3, 5, 8)),
    "grid": (lambda: Call(lambda x, g: F.grid_sample(x, g.tanh(), align_corners=True)), (2, 3, 4, 4), (2, 5, 5, 2)),
    "views": (lambda: Call(views), (4, 4)),
    "linalg": (lambda: Call(lambda a: torch.linalg.inv(a @ a.t() + torch.eye(4, device=a.device))), (4, 4)),
    "fft": (lambda: Call(lambda a: torch.fft.fft(a).abs()), (4, 4)),
    "checkpoint": (lambda: Call(lambda a: torch.utils.checkpoint.checkpoint(lambda z: F.dropout(z.sin()), a, use_reentrant=False)),
                   (4, 4)),
    "CTC": (lambda: Call(ctc), (6, 2, 5)),
}


def run_layer(make, shapes, device):
    """What comes out, and all gradients, on the CPU."""
    torch.manual_seed(0)
    module = make().to(device)
    inputs = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
    out = module(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    assert out.device.type == device, out.device
    out.pow(2).mean().backward()
    return [out.detach().cpu(), *(x.grad.cpu() for x in [*module.parameters(), *inputs])]


class Computes(unittest.TestCase):
    def test_layers_and_their_gradients_as_the_cpu_does(self):
        for name, (make, *shapes) in LAYERS.items():
            with self.subTest(name):
                torch.testing.assert_close(run_layer(make, shapes, "cuda"), run_layer(make, shapes, "cpu"), rtol=1e-4, atol=1e-4)

    def test_optimizers_as_the_cpu_does(self):
        def train(device, make):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.2), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 1)).to(device)
            optimizer = make(model.parameters())
            losses = []
            for _ in range(5):
                x = torch.randn(8, 6, device=device)
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.item())
            return losses

        for name, make in {"AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
                           "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
                           "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9)}.items():
            with self.subTest(name):
                torch.testing.assert_close(train("cuda", make), train("cpu", make), rtol=1e-4, atol=1e-5)

    def test_half_precision_with_a_gradient_scaler(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 1)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0 ** 40)
        scales, dtypes = [], set()
        model[1].register_forward_hook(lambda module, args, out: dtypes.add(out.dtype))
        for _ in range(30):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.randn(4, 5, 16, device="cuda")).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        self.assertEqual(dtypes, {torch.float16})
        self.assertLess(scales[-1], 2.0 ** 30)
        self.assertEqual(scales[-1], scales[-2])
        self.assertTrue(all(p.isfinite().all() for p in model.parameters()))


class Memory(unittest.TestCase):
    def test_views_share_the_storage_of_their_base(self):
        x = torch.ones(2, 3, device="cuda")
        view = x.view(6)[1:3]
        view.zero_()
        self.assertEqual(x.tolist(), [[1, 0, 0], [1, 1, 1]])
        self.assertEqual(view.untyped_storage()._cdata, x.untyped_storage()._cdata)

    def test_what_is_written_comes_back_as_the_tensor_that_came_in(self):
        x = torch.ones(3, device="cuda")
        out = torch.empty(0, device="cuda")
        self.assertIs(torch.add(x, x, out=out), out)
        self.assertEqual(out.tolist(), [2, 2, 2])
        out.resize_(8).fill_(4)
        self.assertEqual(out.sum().item(), 32)
        other = torch.zeros(5, device="cuda")
        x.set_(other)
        self.assertEqual(x.untyped_storage()._cdata, other.untyped_storage()._cdata)

    def test_storages_can_be_saved_copied_and_loaded(self):
        model = nn.Linear(2, 2).cuda()
        self.assertTrue(copy.deepcopy(model).weight.is_cuda)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        for location, device in ((None, "cuda"), ("cpu", "cpu")):
            file.seek(0)
            weight = torch.load(file, map_location=location)["weight"]
            self.assertEqual(weight.device.type, device)
            self.assertTrue(torch.equal(weight.cpu(), model.weight.detach().cpu()))

    def test_a_generator_of_the_device_draws_what_the_cpus_would(self):
        drawn = [torch.randn(3, device=d, generator=torch.Generator(device=d).manual_seed(3)).tolist() for d in ("cpu", "cuda")]
        self.assertEqual(*drawn)


class Looks(unittest.TestCase):
    def test_ops_have_their_names_on_a_gpu_and_nothing_inside(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).cuda()
        x = torch.randn(2, 3, 8, 8, device="cuda")
        # Kineto would ask CUPTI for the real driver.
        with torch.autograd.profiler.profile(use_kineto=False) as profile:
            model(x)
            torch._foreach_add_([x], 1.0)
        names = {event.name for event in profile.function_events}
        self.assertLessEqual({"aten::cudnn_convolution", "aten::cudnn_batch_norm", "aten::_foreach_add_"}, names)
        self.assertFalse(names & {"aten::mkldnn_convolution", "aten::_slow_conv2d_forward", "aten::native_batch_norm"}, names)

    def test_backward_runs_on_the_engines_own_thread(self):
        threads = []
        x = torch.ones(3, device="cuda", requires_grad=True)
        y = x * 2
        y.register_hook(lambda _: threads.append(threading.get_ident()))
        y.sum().backward()
        self.assertNotEqual(threads, [threading.get_ident()])

    def test_streams_are_those_of_the_driver(self):
        process = ctypes.CDLL(None)

        def handle():
            stream = ctypes.c_void_p(7)
            self.assertEqual(process.aoti_torch_get_current_cuda_stream(0, ctypes.byref(stream)), 0)
            return stream.value

        self.assertIsNone(handle())
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self.assertIsNotNone(handle())
            self.assertEqual(torch.cuda.current_stream(), side)
        self.assertIsNone(handle())
        torch.cuda.current_stream().wait_stream(side)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        end.record()
        end.synchronize()
        self.assertGreaterEqual(start.elapsed_time(end), 0)


class Launch:
    """A launch of the kernel that nanwatch checks one tensor with; the structs are those of check_launch.h."""

    def __init__(self, tensor):
        driver = ctypes.CDLL("libcuda.so.1")
        self.result, self.progress = ctypes.create_string_buffer(960), ctypes.c_uint64(0)
        function = ctypes.c_void_p()
        assert driver.cuModuleGetFunction(ctypes.byref(function), None, b"nanwatch_check_few") == 0
        head = struct.pack("<QQQQQIIII", 5, ctypes.addressof(self.result), 0, ctypes.addressof(self.progress), 0, 1, 0, 0, 0)
        described = struct.pack("<QqBB6x128x", tensor.data_ptr(), tensor.numel(), FLOAT32, 0)
        parameter = ctypes.create_string_buffer(head + described, 56 + 4 * 152)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(parameter))
        assert driver.cuLaunchKernel(function, 1, 1, 1, 512, 1, 1, 0, None, parameters, None) == 0

    def ticket(self):
        return struct.unpack_from("<Q", self.result)[0]


class ChecksAreSeenLate(unittest.TestCase):
    def test_by_whoever_waits_for_the_device(self):
        waits = {"item": lambda x: x[1].item(), "cpu": lambda x: x.cpu(), "synchronize": lambda x: torch.cuda.synchronize(),
                 "stream": lambda x: torch.cuda.current_stream().synchronize()}
        for name, wait in waits.items():
            with self.subTest(name):
                x = torch.ones(4, device="cuda")
                x[2] = float("nan")
                launch = Launch(x)
                x.fill_(1)  # what the launch saw is over
                self.assertEqual((launch.ticket(), launch.progress.value), (0, 0))
                wait(x)
                self.assertEqual((launch.ticket(), launch.progress.value), (5, 5))


class CopiesThatNobodyWaitsFor(unittest.TestCase):
    def test_arrive_when_the_program_waits(self):
        waits = {"item": lambda x: x[1].item(), "synchronize": lambda x: torch.cuda.synchronize(),
                 "stream": lambda x: torch.cuda.current_stream().synchronize(), "event": lambda x: torch.cuda.current_stream().record_event().synchronize()}
        for name, wait in waits.items():
            with self.subTest(name):
                x = torch.arange(4.0, device="cuda")
                kept = torch.zeros(4).pin_memory()
                made = x.to("cpu", non_blocking=True)
                kept.copy_(x, non_blocking=True)
                self.assertTrue(made.is_pinned() and made.isnan().all() and kept.isnan().all())
                back = kept.to("cuda", non_blocking=True)  # in the stream's order
                self.assertTrue(kept.isnan().all())
                wait(x)
                self.assertEqual((made.tolist(), kept.tolist(), back.tolist()), ([0, 1, 2, 3],) * 3)

    def test_are_waited_for_where_they_are_not_asynchronous(self):
        x = torch.arange(4.0, device="cuda")
        pinned, pageable = torch.zeros(4).pin_memory(), torch.zeros(4)
        pinned.copy_(x + 1, non_blocking=True)
        pinned.copy_(x)
        pageable.copy_(x, non_blocking=True)
        torch.cuda.synchronize()
        self.assertEqual((pinned.tolist(), pageable.tolist(), x.cpu().tolist()), ([0, 1, 2, 3],) * 3)

    def test_go_nowhere_once_their_memory_is_given_back(self):
        torch.arange(4.0, device="cuda").to("cpu", non_blocking=True)
        again = torch.ones(4).pin_memory()
        torch.cuda.synchronize()
        self.assertEqual(again.tolist(), [1, 1, 1, 1])


class Graphs(unittest.TestCase):
    @staticmethod
    def network(device="cuda"):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).to(device)

    @staticmethod
    def batches(count=5):
        generator = torch.Generator().manual_seed(1)
        return [torch.randn(6, 4, generator=generator) for _ in range(count)]

    def train(self, graphed):
        model = self.network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True, foreach=False)
        x = torch.zeros(6, 4, device="cuda")
        loss = None

        def step():
            nonlocal loss
            optimizer.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()

        if graphed:
            with torch.cuda.stream(torch.cuda.Stream()):
                for batch in self.batches(3):
                    x.copy_(batch)
                    step()
            optimizer.zero_grad(set_to_none=True)
            loss = None
            graph = torch.cuda.CUDAGraph()
            before = [t.tolist() for t in model.state_dict().values()]
            with torch.cuda.graph(graph):
                step()
            self.assertEqual([t.tolist() for t in model.state_dict().values()], before, "a capture computes nothing")
            self.assertTrue(loss.isnan().item())
        else:
            for batch in self.batches(3):
                x.copy_(batch)
                step()
        losses = []
        for batch in self.batches():
            x.copy_(batch)
            graph.replay() if graphed else step()
            losses.append(loss.item())
        return losses, {name: tensor.cpu() for name, tensor in model.state_dict().items()}

    def test_a_captured_step_is_computed_at_every_replay(self):
        torch.testing.assert_close(self.train(graphed=True), self.train(graphed=False), rtol=0, atol=0)

    def test_graphed_callables_have_the_gradients_of_what_they_were_made_of(self):
        def gradients(graphed):
            model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).cuda()
            model.load_state_dict({name: torch.full_like(tensor, 0.1) for name, tensor in model.state_dict().items()})
            called = torch.cuda.make_graphed_callables(model, (torch.zeros(6, 4, device="cuda"),)) if graphed else model
            found = []
            for batch in self.batches():
                model.zero_grad()
                called(batch.cuda()).square().mean().backward()
                found += [p.grad.cpu() for p in model.parameters()]
            return found

        torch.testing.assert_close(gradients(True), gradients(False), rtol=0, atol=0)

    def test_a_capture_knows_that_it_is_one_and_forbids_waiting(self):
        x = torch.ones(2, device="cuda")
        graph = torch.cuda.CUDAGraph()
        self.assertFalse(torch.cuda.is_current_stream_capturing())
        with torch.cuda.graph(graph):
            y = x + 1
            self.assertTrue(torch.cuda.is_current_stream_capturing())
            with self.assertRaisesRegex(RuntimeError, "capture forbids"):
                y.sum().item()

    def test_what_a_program_drops_is_gone_and_its_memory_is_not(self):
        x = torch.ones(2, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            between = x + 1
            storage = torch.multiprocessing.reductions.StorageWeakRef(between.untyped_storage())
            y = between * 2
            del between
        self.assertTrue(storage.expired())
        graph.replay()
        self.assertEqual(y.tolist(), [4, 4])


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((3,), float(i))


class Programs(unittest.TestCase):
    def test_worker_processes_and_pinned_memory(self):
        loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, pin_memory=True)
        total = sum(batch.to("cuda", non_blocking=True).sum() for batch in loader)
        self.assertEqual((total.device.type, total.item()), ("cuda", 84))

    def test_one_that_knows_nothing_of_devices(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write("import sys, torch\n"
                          "assert __name__ == '__main__' and sys.argv[1:] == ['a', '-b'], sys.argv\n"
                          "data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 1))\n"
                          "model = torch.nn.Linear(3, 1)\n"
                          "for x, y in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=1):\n"
                          "    loss = (model(x) - y).pow(2).mean()\n"
                          "    loss.backward()\n"
                          "print(loss.device, model.weight.grad.device)\n"
                          "sys.exit(3)\n")
            program.flush()
            done = subprocess.run([sys.executable, os.path.join(HERE, "run.py"), "--default-device", program.name, "a", "-b"],
                                  capture_output=True, text=True)
        self.assertEqual((done.stdout, done.returncode), ("cuda:0 cuda:0\n", 3), done.stderr)


if __name__ == "__main__":
    unittest.main()
