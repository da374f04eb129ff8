# SPDX-License-Identifier: Apache-2.0
"""Level canary on a GPU: gradients and what an update has written go by lists, and are told as a job on the CPU tells them."""
import json
import unittest

from gpu_job import GpuJobTest, origins, told

LATE = 112  # by then an update's ops are no longer watched one by one
# A model of 150 parameters, or fewer. Counts what is launched in ten steps when its updates are read and no longer watched.
TRAINING = """
import ctypes, json, torch
torch.manual_seed(1)
def launches():
    cuda = ctypes.CDLL("libcuda.so.1")
    return {{name: cuda.fake_cuda_launches(b"nanwatch_" + name.encode()) for name in ("check_few", "check_many", "check_list", "sum_list", "add_step")}}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range({layers})))
    def forward(self, x):
        for layer in self.layers:
            x = x + 0.1 * layer(x)
        return x.square().mean()
model = Net(){to_device}
optimizer = torch.optim.{optimizer}
for i in range({late} + 3):
    if {counts} and i == {late} - 10: before = launches()
    if {counts} and i == {late}: print(json.dumps({{name: count - before[name] for name, count in launches().items()}}))
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8){to_device})
    loss.backward()
    if i == {late}: {fault}
    optimizer.step()
"""
# Optimizer, what it keeps for a parameter beside a count of steps, and the launches of lists that 150 parameters take.
OPTIMIZERS = {"sgd": ("SGD(model.parameters(), lr=1e-3)", 2), "foreach": ("AdamW(model.parameters(), lr=1e-3, foreach=True)", 3),
              "fused": ("AdamW(model.parameters(), lr=1e-3, fused=True)", 3),
              "groups": ("Adam([{'params': layer.parameters()} for layer in model.layers], lr=1e-3)", 3)}
BAD_RATE = "optimizer.param_groups[-1]['lr'] = float('inf')"
FAULTS = {"rate": BAD_RATE, "middle": "model.layers[1].weight.grad[2, 3] = float('nan')",
          "last": "model.layers[-1].bias.grad[7] = -float('inf')",
          # No gradient is bad: this is the update's.
          "state": "next(iter(optimizer.state.values()))['exp_avg'][0, 1] = float('inf')"}
PAIRS = [*((name, "rate") for name in OPTIMIZERS), ("sgd", "middle"), ("groups", "last"), ("fused", "state")]


def program_text(optimizer, fault="pass", gpu=True, counts=False, layers=3):
    return TRAINING.format(optimizer=optimizer, fault=fault, to_device=".cuda()" if gpu else "", late=LATE, layers=layers, counts=counts)


def told_with_figures(verdict):
    """And what is in the tensors, how many of them, and how often."""
    return [incident | {"outputs": found["origin"]["outputs"], "count": found["count"], "gradients": found["gradients"],
                        "parameters": found["parameters"]} for incident, found in zip(told(verdict), verdict["incidents"])]


# The first half of the layers on one device, the second on another. (With answers that are late by launches, the steps of the
# second, on which there are few, would not be told by then.)
TWO_DEVICES = """
import torch
torch.manual_seed(1)
class Half(torch.nn.Sequential):
    pass
first = Half(*(torch.nn.Linear(8, 8) for _ in range(3))).to("cuda:0")
second = Half(*(torch.nn.Linear(8, 8) for _ in range(3))).to("cuda:1")
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-3)
for i in range({late} + 3):
    optimizer.zero_grad()
    second(first(torch.randn(6, 8, device="cuda:0")).to("cuda:1")).square().mean().backward()
    if i == {late}: {fault}
    optimizer.step()
"""
DEVICE_FAULTS = {"gradient": "second[1].bias.grad[3] = float('nan')", "update": "second[1].bias.data[3] = float('nan')"}
# Gradients and parameters in other orders of memory, and one with gaps.
LAYOUTS = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(16, 4)).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range({late} + 3):
    optimizer.zero_grad()
    model(torch.randn(6, 3, 4, 4).cuda().to(memory_format=torch.channels_last)).square().mean().backward()
    gaps = torch.zeros(4, 32).cuda()[:, ::2]
    gaps.copy_(model[2].weight.grad)
    model[2].weight.grad = gaps
    assert model[0].weight.grad.stride()[1] == 1
    if i == {late}: {fault}
    optimizer.step()
"""
LAYOUT_FAULTS = {"channels_last": "model[0].weight.grad[1, 2, 0, 1] = float('nan')", "gaps": "gaps[3, 15] = float('nan')"}
# A step that the scaler skips once the update's ops are no longer watched, by a gradient that overflows.
SCALED = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused={fused})
scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=10000)
for i in range({late} + 10):
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8).cuda()).square().mean()
    if i == {late}: loss = loss * torch.tensor(3e38).cuda() * 100
    scaler.scale(loss).backward()
    if i == {late} + 6: {fault}
    scaler.step(optimizer)
    scaler.update()
print(scaler.get_scale())
"""
# Steps by themselves, then twelve that are captured; a rate, which the capture has as an input, is bad in one of them.
CAPTURED = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).cuda()
rate = torch.tensor(1e-3).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True, foreach=True)
x = torch.randn(6, 8).cuda()
def step():
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for i in range({late}): step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph() if {captures} else None
if graph:
    with torch.cuda.graph(graph): step()
for i in range(12):
    if i == {bad}: rate.fill_(float("inf"))
    graph.replay() if graph else step()
"""
# A loop that leaves out a bad loss by itself, and later a bad gradient that has nothing to do with it.
LEFT_OUT = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1).to("{device}")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
class Criterion(torch.nn.Module):
    def forward(self, out): return out.square().mean()
criterion = Criterion()
for i in range({late} + 60):
    optimizer.zero_grad()
    x = torch.randn(8, 4).to("{device}")
    if i == {late}: x[0, 0] = float("nan")
    loss = criterion(model(x))
    if torch.isfinite(loss).item():
        loss.backward()
        if i == {late} + 50: model.weight.grad[0, 1] = float("nan")
        optimizer.step()
"""


class CanaryLists(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        def watched(name, text, **environment):
            return workplace.run_watched(cls.program(name, text), ("--level", "canary"), **environment)
        cls.counted = {name: watched(f"counted_{name}", program_text(optimizer, counts=True, layers=75))
                       for name, (optimizer, _) in OPTIMIZERS.items()}
        cls.pairs = {}
        for name, kind in PAIRS:
            optimizer, fault = OPTIMIZERS[name][0], FAULTS[kind]
            on_cpu = workplace.run_watched(workplace.program(f"{name}_{kind}_cpu", program_text(optimizer, fault, gpu=False)),
                                           ("--level", "canary"))
            cls.pairs[name, kind] = watched(f"{name}_{kind}", program_text(optimizer, fault)), on_cpu
        cls.all_bad = [run(program_text(OPTIMIZERS["sgd"][0], FAULTS["rate"], gpu=gpu, layers=75)) for gpu, run in (
            (True, lambda text: watched("all_bad", text)),
            (False, lambda text: workplace.run_watched(workplace.program("all_bad_cpu", text), ("--level", "canary"))))]
        cls.full = {kind: workplace.run_watched(cls.program(f"full_{kind}", program_text(OPTIMIZERS["sgd"][0], FAULTS[kind])),
                                                ("--level", "full")) for kind in ("rate", "middle")}
        cls.devices = {kind: watched(f"devices_{kind}", TWO_DEVICES.format(late=LATE, fault=fault), NANWATCH_FAKE_DEVICES="2", NANWATCH_FAKE_LAG="0")
                       for kind, fault in DEVICE_FAULTS.items()}
        cls.layouts = {kind: watched(f"layouts_{kind}", LAYOUTS.format(late=LATE, fault=fault)) for kind, fault in LAYOUT_FAULTS.items()}
        cls.captured = {(captures, bad): watched(f"captured_{captures}_{bad}", CAPTURED.format(late=LATE, captures=captures, bad=bad))
                        for captures in (True, False) for bad in (7, -1)}
        cls.left_out = [run(LEFT_OUT.format(late=LATE, device=device)) for device, run in (
            ("cuda", lambda text: watched("left_out", text)),
            ("cpu", lambda text: workplace.run_watched(workplace.program("left_out_cpu", text), ("--level", "canary"))))]
        cls.scaled = {(fused, bad): watched(f"scaled_{fused}_{bad}", SCALED.format(late=LATE, fused=fused, fault=fault))
                      for fused in (False, True)
                      for bad, fault in ((False, "pass"), (True, "optimizer.param_groups[0]['lr'] = float('inf')"))}

    def test_a_step_is_a_launch_for_its_loss_one_for_its_gradients_and_one_for_250_tensors_written(self):
        for name, job in self.counted.items():
            with self.subTest(name):
                self.assert_clean(job)
                made = json.loads(job.stdout())
                # The loss and the gradients are summed, what the update has written is only checked.
                self.assertEqual(made, {"check_few": 0, "check_many": 0, "sum_list": 20, "check_list": 10 * (OPTIMIZERS[name][1] - 1), "add_step": 0})

    def test_every_fault_is_told_as_on_the_cpu(self):
        for name, (on_gpu, on_cpu) in self.pairs.items():
            with self.subTest(name):
                self.assertEqual(on_gpu.status(), 0, on_gpu.stderr())
                self.assertEqual(len(on_gpu.verdict()["incidents"]), 1)
                self.assertEqual(told_with_figures(on_gpu.verdict()), told_with_figures(on_cpu.verdict()))

    def test_a_bad_loss_that_was_left_out_explains_nothing_later(self):
        on_gpu, on_cpu = (job.verdict() for job in self.left_out)
        # Canary reads what a model returns on a CPU alone, so there the loss is met one module earlier; and what torch.isfinite is
        # asked of, so that there the program is known to have left the loss out.
        place = ("layer", "layer_type", "root", "severity")
        without = [[{name: value for name, value in incident.items() if name not in place} for incident in told(verdict)]
                   for verdict in (on_gpu, on_cpu)]
        self.assertEqual(*without)
        self.assertEqual(sorted(int(origin["step"]) for origin in origins(on_gpu)), [LATE, LATE + 49])
        self.assertEqual([incident["severity"] for incident in on_cpu["incidents"]], ["critical", "info"])

    def test_an_update_that_leaves_everything_bad_is_told_as_on_the_cpu(self):
        on_gpu, on_cpu = (job.verdict() for job in self.all_bad)
        self.assertEqual(on_gpu["incidents"][0]["parameters"], 150)
        self.assertEqual(told_with_figures(on_gpu), told_with_figures(on_cpu))

    def test_parameters_and_gradients_are_as_bad_as_level_full_finds_them(self):
        for kind, full in self.full.items():
            with self.subTest(kind):
                by_list, by_ops = (job.verdict()["incidents"][0] for job in (self.pairs["sgd", kind][0], full))
                self.assertEqual([int(by_list["origin"]["step"]), by_list["parameters"]], [LATE, by_ops["parameters"]])
                self.assertEqual(by_ops["origin"]["step"], by_list["origin"]["step"])
                self.assertIn("parameter", by_ops["reach"])
                self.assertIn("parameter", by_list["reach"])
                if kind == "rate":
                    self.assertEqual(by_list["origin"]["param"], by_ops["origin"]["param"])

    def test_each_device_has_a_list_of_its_own(self):
        for job in self.devices.values():
            self.assertEqual(job.status(), 0, job.stderr())
        self.assert_origin(self.devices["gradient"].verdict(), device="cuda:1", op="torch::autograd::AccumulateGrad", step=LATE)
        self.assert_origin(self.devices["update"].verdict(), device="cuda:1", op="Optimizer.step#SGD.step", param="1.bias", step=LATE)

    def test_tensors_in_any_order_of_memory_are_found_bad(self):
        for kind, layer, first in (("channels_last", "0", [1, 2, 0, 1]), ("gaps", "2", [3, 15])):
            with self.subTest(kind):
                self.assert_origin(self.layouts[kind].verdict(), op="torch::autograd::AccumulateGrad", layer=layer, step=LATE)
                output = origins(self.layouts[kind].verdict())[0]["outputs"][0]
                self.assertEqual((int(output["nan"]), [int(at) for at in output["first_bad_index"]]), (1, first))

    def test_lists_in_a_graph_are_told_in_the_replay_that_found_something(self):
        graph, eager = (self.captured[captures, 7].verdict() for captures in (True, False))
        self.assertEqual([(o["kind"], int(o["step"])) for o in origins(graph)], [("optimizer", LATE + 7)])
        self.assertEqual(told(graph), told(eager))
        self.assert_clean(self.captured[True, -1])

    def test_a_step_that_a_scaler_skips_is_none_and_the_update_after_it_is_told(self):
        for (fused, bad), job in self.scaled.items():
            with self.subTest(fused=fused, bad=bad):
                # One by the loss; from the bad update on every step.
                self.assertEqual(float(job.stdout()), 0.5 if bad else 4.0)
                # The loss was bad before it was scaled, which no scaler excuses.
                self.assertEqual(sorted((int(o["step"]), o["kind"], o["op"], o["param"]) for o in origins(job.verdict())),
                                 [(LATE, "op", "torch.autograd.backward", "")] +
                                 ([(LATE + 5, "optimizer", "Optimizer.step#AdamW.step", "0.weight")] if bad else []))


if __name__ == "__main__":
    unittest.main(verbosity=2)
