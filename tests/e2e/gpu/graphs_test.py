# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in one replay of a CUDA graph is told as the same program without graphs tells it, and nothing else is."""
import unittest

from gpu_job import LAGS, GpuJobTest, origins, told

# One step of a network with a fault at replay 7, a number on the GPU that the capture has as an input. {step} is the way that the
# step is run: by itself, or captured once and replayed.
NETWORK = """
import torch, torch.nn as nn
torch.manual_seed(0)
class Gate(nn.Module):
    def forward(self, x, fault):
        {gate}
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.gate, self.leave = nn.Linear(8, 16), Gate(), nn.Linear(16, 1)
    def forward(self, x, fault):
        return self.leave(self.gate(torch.relu(self.enter(x)), fault))
model = Net().cuda()
optimizer = torch.optim.{optimizer}
x, fault = torch.randn(32, 8).cuda(), torch.zeros(1).cuda()
def backward():
    loss = (model(x, fault) ** 2).mean()
    loss.backward()
    return loss
def step():
    loss = backward()
    optimizer.step()
    return loss
def warm_up(whole, steps=3):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            (step if whole else backward)()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
def captured(function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph
def feed(i, bad):
    x.copy_(torch.randn(32, 8))
    {batch}
    fault.fill_(1. if i == bad else 0.)
def sums():
    print([p.double().sum().item().hex() for p in model.parameters()])
"""
EAGER = """
for i in range(12):
    feed(i, 7)
    optimizer.zero_grad(set_to_none=True)
    step()
sums()
"""
# Forward and backward are captured, the update is not.
OUTSIDE = """
warm_up(whole=False)
graph = captured(backward)
for i in range(12):
    feed(i, 7)
    graph.replay()
    optimizer.step()
sums()
"""
# The whole step is.
INSIDE = """
warm_up(whole=False)
graph = captured(step)
for i in range(12):
    feed(i, 7)
    graph.replay()
sums()
"""
GRAPHED = """
graphed = torch.cuda.make_graphed_callables(model, (x, fault))
for i in range(12):
    feed(i, 7)
    optimizer.zero_grad(set_to_none=True)
    (graphed(x, fault) ** 2).mean().backward()
    optimizer.step()
sums()
"""
# Warms up with a fault, leaves the gradients out, and goes on with sound numbers.
WARM_UP = """
fault.fill_(1.)
warm_up(whole=False, steps=1)
fault.fill_(0.)
graph = captured(backward) if {captures} else None
for i in range(12):
    feed(i, None)
    if graph is None: optimizer.zero_grad(set_to_none=True)
    graph.replay() if graph else backward()
    optimizer.step()
sums()
"""
NEVER_REPLAYED = """
warm_up(whole=True)
fault.fill_(1.)
never = captured(step)
fault.fill_(0.)
for i in range(12):
    feed(i, None)
    optimizer.zero_grad(set_to_none=True)
    step()
sums()
"""
# Two of different lengths in turn, the second one bad in its third replay.
TWO = """
def evaluated():
    with torch.no_grad(): seen.copy_(model(x, fault).square().mean() + 1)
seen = torch.zeros((), device="cuda")
if {captures}:
    warm_up(whole=False)
    with torch.cuda.stream(torch.cuda.Stream()): evaluated()
    train, evaluate = captured(backward).replay, captured(evaluated).replay
else:
    train, evaluate = backward, evaluated
for i in range(12):
    feed(i, None)
    if not {captures}: optimizer.zero_grad(set_to_none=True)
    train()
    optimizer.step()
    if i % 3 == 2:
        feed(i, 8)
        evaluate()
print(seen.item())
sums()
"""
# The program looks at the loss and leaves bad steps out: what a replay has left bad, the next one clears.
SKIPS = """
static = torch.zeros((), device="cuda")
def forward_and_backward():
    loss = backward()
    static.copy_(loss.detach())
if {captures}:
    warm_up(whole=False)
    graph = captured(forward_and_backward)
skipped = 0
for i in range(16):
    feed(i, i if i in (3, 4, 9) else None)
    if not {captures}: optimizer.zero_grad(set_to_none=True)
    graph.replay() if {captures} else forward_and_backward()
    if not torch.isfinite(static):
        skipped += 1
        continue
    optimizer.step()
print(skipped)
sums()
"""
SCALED = """
scaler = torch.amp.GradScaler("cuda", init_scale=2.0 ** {scale}, growth_interval=1000)
def scaled_backward():
    with torch.autocast("cuda", dtype=torch.float16, cache_enabled=False):
        loss = (model(x, fault) ** 2).mean()
    scaler.scale(loss).backward()
scaler.scale(torch.zeros(1).cuda())
if {captures}:
    backward = scaled_backward
    warm_up(whole=False, steps=1)
    graph = captured(scaled_backward)
for i in range(14):
    feed(i, None)
    if not {captures}: optimizer.zero_grad(set_to_none=True)
    graph.replay() if {captures} else scaled_backward()
    scaler.step(optimizer)
    scaler.update()
sums()
"""
MANY = """
warm_up(whole=False)
graph = captured(backward)
for i in range(1000):
    feed(i, {bad})
    graph.replay()
    optimizer.step()
sums()
"""
# By the class that Python's is made of, as a C++ program would.
UNANNOUNCED = """
warm_up(whole=False)
graph = torch.cuda.CUDAGraph()
base = torch.cuda.CUDAGraph.__mro__[1]
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    base.capture_begin(graph)
    backward()
    base.capture_end(graph)
for i in range(12):
    feed(i, 7)
    base.replay(graph)
    torch.cuda.synchronize()
    optimizer.step()
sums()
"""
SQRT = "x = (x + 1 - 9 * fault).sqrt()"
GATES = {
    "sqrt": {"gate": SQRT},
    "batch": {"batch": "if i == bad: x[3, 2] = float('nan')"},
    "mask_taken_back": {"gate": "x = x.masked_fill(x > 0.5, float('-inf')).clamp(min=-1)"},
    "fully_masked_row": {"gate": "x = torch.softmax(x.masked_fill(fault > 0, float('-inf')), -1)"},
    "backward_formula": {"gate": "x = x + 0 * (x * (1 - fault) + (1 - fault)).square().sum(-1, keepdim=True).sqrt()"},
    "in_place": {"gate": "x = x.clone().div_(1 - fault)"},
    "view_of_bad": {"gate": "x = torch.cat([(x[:, :8] + 1 - 9 * fault).log(), x[:, 8:].view(-1, 8)], 1)"},
}
SGD = "SGD(model.parameters(), lr=1e-3, foreach=False)"


def program(body, gate="pass", batch="pass", optimizer=SGD):
    return NETWORK.format(gate=gate, batch=batch, optimizer=optimizer) + body


class Graphs(GpuJobTest):
    @classmethod
    def run_program(cls, name, text, **environment):
        return cls.workplace.run_watched(cls.program(name, text), **environment)

    @classmethod
    def start(cls, workplace):
        sqrt = program(OUTSIDE, **GATES["sqrt"])
        cls.lags = {lag: cls.run_program(f"lag_{lag}", sqrt, NANWATCH_FAKE_LAG=lag) for lag in LAGS}
        cls.faults = {}
        for name, fault in GATES.items():
            cls.faults[name] = {kind: cls.run_program(f"{name}_{kind}", program(body, **fault))
                                for kind, body in {"eager": EAGER, "outside": OUTSIDE}.items()}
        cls.inside = {kind: cls.run_program(f"inside_{kind}", program(body, **GATES["sqrt"]))
                      for kind, body in {"eager": EAGER, "inside": INSIDE}.items()}
        # Fresh memory holds 0x7E in each byte: 8e37 in float32.
        cls.graphed = cls.run_program("graphed", program(GRAPHED, **GATES["sqrt"]), MALLOC_PERTURB_=str(0xFF ^ 0x7E))
        adam = {"optimizer": "AdamW(model.parameters(), lr=1e-3, foreach=False, capturable=True)", **GATES["sqrt"]}
        cls.pairs = {"adam": [cls.run_program(f"adam_{kind}", program(body, **adam)) for kind, body in (("graph", INSIDE), ("eager", EAGER))]}
        for name, body, gate in (("warm_up", WARM_UP, SQRT), ("two", TWO, SQRT), ("skips", SKIPS, SQRT)):
            cls.pairs[name] = [cls.run_program(f"{name}_{captures}", program(body.format(captures=captures), gate=gate))
                               for captures in (True, False)]
        cls.scaled = {scale: [cls.run_program(f"scaled_{scale}_{captures}", program(SCALED.format(captures=captures, scale=scale)))
                              for captures in (True, False)] for scale in (8, 22)}
        never = cls.program("never", program(NEVER_REPLAYED, **GATES["sqrt"]))
        cls.never = workplace.run_bare(never), workplace.run_watched(never)
        many = cls.program("many", program(MANY.format(bad=None), **GATES["sqrt"]))
        cls.many = workplace.run_bare(many), workplace.run_watched(many)
        cls.late = cls.run_program("late", program(MANY.format(bad=987), **GATES["sqrt"]), NANWATCH_FAKE_LAG="1500")
        cls.unannounced = cls.run_program("unannounced", program(UNANNOUNCED, **GATES["sqrt"]))

    def test_the_op_and_its_replay_are_named_however_late_they_are_known(self):
        for lag, job in self.lags.items():
            with self.subTest(lag=lag):
                verdict = job.verdict()
                self.assert_origin(verdict, op="aten::sqrt", layer="gate", step=7, phase="forward", inputs_seen=True, exact=True,
                                   source=f"lag_{lag}.py:6 in forward", **{"class": "produce"})
                self.assertLessEqual({"loss", "gradient", "parameter"}, set(verdict["incidents"][0]["reach"]))

    def test_every_fault_is_what_it_is_without_graphs(self):
        for name, jobs in self.faults.items():
            with self.subTest(name):
                self.assertEqual(told(jobs["outside"].verdict()), told(jobs["eager"].verdict()))

    def test_so_it_is_with_the_update_in_the_graph(self):
        self.assertEqual(told(self.inside["inside"].verdict()), told(self.inside["eager"].verdict()))

    def test_so_it_is_in_graphed_callables(self):
        # Its warm-up takes fresh memory for the gradients of the outputs, so that anything may come of it. That is no defect.
        found = [origin for origin in told(self.graphed.verdict()) if origin["severity"] != "info"]
        self.assertEqual(found, told(self.inside["eager"].verdict()))

    def test_so_it_is_in_warm_ups_in_two_graphs_in_turn_and_where_bad_steps_are_left_out(self):
        for name, (graph, eager) in self.pairs.items():
            with self.subTest(name):
                self.assertEqual(graph.status(), 0, graph.stderr())
                self.assertNotEqual(told(eager.verdict()), [])
                self.assertEqual(told(graph.verdict()), told(eager.verdict()))

    def test_what_a_scaler_skips_is_expected(self):
        for scale, (graph, eager) in self.scaled.items():
            with self.subTest(scale):
                self.assertEqual(graph.status(), 0, graph.stderr())
                self.assertEqual(told(graph.verdict()), told(eager.verdict()))
                self.assertEqual(graph.verdict()["verdict"], "clean" if scale == 8 else "expected")

    def test_a_graph_that_is_never_replayed_says_nothing(self):
        self.assert_same(*self.never)
        self.assert_clean(self.never[1])

    def test_a_thousand_clean_replays_are_clean_with_the_same_results(self):
        self.assert_same(*self.many)
        verdict = self.assert_clean(self.many[1])
        self.assertEqual(verdict["coverage"]["steps"], 1000)
        self.assertNotIn("gpu_busy", verdict["coverage"]["unchecked"])

    def test_the_one_bad_replay_among_a_thousand_is_named(self):
        self.assert_origin(self.late.verdict(), op="aten::sqrt", layer="gate", step=987, phase="forward", **{"class": "produce"})

    def test_replays_that_python_does_not_see_are_told_when_they_are_noticed(self):
        found = [(o["op"], o["layer"]) for o in origins(self.unannounced.verdict())]
        self.assertIn(("aten::sqrt", "gate"), found)
        # Its own consequences are not taken for others: not in the graph, and not in the update behind it.
        self.assertLessEqual(set(found), {("aten::sqrt", "gate"), ("aten::addmm", "enter")})


if __name__ == "__main__":
    unittest.main(verbosity=2)
