# SPDX-License-Identifier: Apache-2.0
"""Promise: Python's calls in whose place nanwatch stands do what they did: results, errors and their tracebacks, signatures."""
import unittest

from watched_job import PromiseTest

PROGRAM = """
import functools, inspect, traceback, torch
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)

def show(what):
    try:
        print(what.__name__, what())
    except Exception:
        print(what.__name__, "raised", traceback.format_exc())

def tensor(): return torch.tensor([1.0, 2.0], requires_grad=True)
def backward_twice():
    loss = tensor().square().sum()
    loss.backward(), loss.backward()
def without_graph(): torch.ones(()).backward()
def no_scalar(): tensor().square().backward()
def an_error_in_a_hook():
    x = tensor()
    x.register_hook(lambda gradient: 1 // 0)
    x.square().sum().backward()
def penalty():
    x = tensor()
    inner, = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    inner.square().sum().backward()
    return x.grad
def several():
    x = tensor()
    torch.autograd.backward([x.sum(), x.square()], [None, torch.ones(2)])
    return x.grad
def edges():
    x = tensor()
    y = x.square().sum()
    torch.autograd.backward(torch.autograd.graph.get_gradient_edge(y), torch.ones(()))
    return x.grad
def into_one():
    x, y = tensor(), tensor()
    (x * y).sum().backward(inputs=[x])
    return x.grad, y.grad
def checkpointed():
    layer = torch.nn.Linear(2, 1)
    checkpoint(lambda x: layer(x).sum(), tensor(), use_reentrant=True).backward()
    return layer.weight.grad
def a_callback():
    x, called = tensor(), []
    x.register_hook(lambda gradient: torch.autograd.Variable._execution_engine.queue_callback(lambda: called.append(1)))
    x.sum().backward()
    return called
def compiled():
    layer = torch.nn.Linear(2, 1)
    @torch.compile(backend="aot_eager")
    def step(x):
        loss = layer(x).square().sum()
        scaler.scale(loss).backward()
        return loss
    return step(tensor().detach()), layer.weight.grad
def scaled(): return scaler.scale(tensor()), scaler.scale([tensor(), tensor()]), torch.amp.GradScaler("cpu", enabled=False).scale(tensor())
def scaled_wrongly(): scaler.scale(None)
def signatures():
    return (inspect.signature(torch.amp.GradScaler.scale), torch.amp.GradScaler.scale.__qualname__, torch.amp.GradScaler.scale.__doc__[:40],
            inspect.getsource(torch.amp.GradScaler.scale)[:40], type(torch.autograd.Variable._execution_engine).__name__,
            isinstance(torch.autograd.Variable._execution_engine, torch._C._ImperativeEngine))

class Rows(torch.nn.Module):
    def forward(self, x):
        y = x.square()
        first, _ = y.unbind(0)
        y.mul_(2)  # first is out of date, and must not be asked what made it
        return first, y
def an_outdated_view():
    first, y = Rows()(tensor())
    y.sum().backward()
    first.backward()

class Own(torch.amp.GradScaler):
    def scale(self, outputs):
        return super().scale(outputs) * 2
def a_class_of_its_own(): return Own("cpu", init_scale=4.0).scale(tensor())

layer = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for what in (backward_twice, without_graph, no_scalar, an_error_in_a_hook, penalty, several, edges, into_one, checkpointed, a_callback,
             compiled, an_outdated_view, scaled, scaled_wrongly, signatures, a_class_of_its_own):
    show(what)
for _ in range(3):
    optimizer.zero_grad()
    scaler.scale(layer(torch.ones(3, 2)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
print(list(layer.parameters()))
"""


class ReplacedCalls(PromiseTest):
    @classmethod
    def start(cls, workplace):
        program = workplace.program("calls", PROGRAM)
        cls.bare = workplace.run_bare(program)
        cls.watched = {level: workplace.run_watched(program, ("--level", level)) for level in ("canary", "full")}

    def test_everything_is_as_without(self):
        self.assertEqual(self.bare.status(), 0, self.bare.stderr())
        for level, job in self.watched.items():
            with self.subTest(level):
                self.assertEqual(job.status(), 0, job.stderr())
                lines = job.stdout().splitlines()
                # A function of Python's has a frame.
                ours = [line for line in lines if "<nanwatch>" in line]
                self.assertEqual([line.split()[-1] for line in ours], ["nanwatch_scale"])
                self.assertEqual([line for line in lines if line not in ours], self.bare.stdout().splitlines())


if __name__ == "__main__":
    unittest.main(verbosity=2)
