# SPDX-License-Identifier: Apache-2.0
"""Promise: what an op reads first, of memory that nobody checks, is not called input data, or made, for certain.

Each program has a bad value come about where no op is checked, or by a number that no tensor holds.
"""
import unittest

from plain_training import TRAIN
from watched_job import PromiseTest, origins

UNCHECKED = {
    "a sparse tensor": """
for at, x in enumerate(data):
    weight = torch.rand(4, 4) + 0.1
    weight[1, 2] = -0.5 if at == 3 else 0.5
    step(x * (weight.to_sparse_csr().sqrt().values() + 0.0).mean())
""",
    "a nested tensor": """
for at, x in enumerate(data):
    count = torch.tensor([1.0, 0.0 if at == 3 else 1.0])
    parts = torch.nested.nested_tensor([count, count])
    step(x * ((parts / parts).unbind()[0] + 1).mean())
""",
    "an op of the program's own that writes its argument": """
@torch.library.custom_op("mine::log_into", mutates_args=("out",))
def log_into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.numpy()[:] = np.log(x.numpy())
out = torch.zeros(3)
for at, x in enumerate(data):
    log_into(torch.tensor([1.0, -1.0 if at == 3 else 1.0, 1.0]), out)
    step(x * (out + 1).mean())
""",
    "a function of Python's that is applied": """
for at, x in enumerate(data):
    kept = (torch.ones(3) * 2).apply_(lambda number: float("inf") if at == 3 else number)
    step(x * torch.stack([kept, kept]).mean(0).mean())
""",
    "a range beyond float16": """
for at, x in enumerate(data):
    count = 70000 if at == 3 else 700
    step(x * ((torch.arange(count, dtype=torch.float16).float() + 1) / count).mean())
""",
    "zeros that numpy writes to": """
memory = torch.zeros(3)
view = memory.numpy()
for at, x in enumerate(data):
    view[0] = np.nan if at == 3 else 1
    step(x * (memory + 1).mean())
""",
    "an array of float64 that is cast": """
for at, x in enumerate(data):
    array = np.asfortranarray(np.random.rand(5, 4))
    array[2, 1] = 1e60 if at == 3 else 1
    step(torch.from_numpy(array).float())
""",
    "a row of float64": """
batch = torch.zeros(5, 4)
for at, x in enumerate(data):
    for i in range(5):
        batch[i] = torch.from_numpy(np.full(4, 1e60 if (at, i) == (3, 2) else 0.5))
    step(batch)
""",
    "a sum by index_put_": """
index = (torch.tensor([0, 0, 0, 1, 2]),)
for at, x in enumerate(data):
    terms = torch.full((5,), 88.0 if at == 3 else 1.0).exp()
    step(x * torch.zeros(3).index_put_(index, terms, accumulate=True).mean())
""",
    "a gradient that numpy writes to between two passes": """
for at, x in enumerate(data):
    optimizer.zero_grad()
    for part in range(2):
        net(x[part:]).square().mean().backward()
        if at == 3 and part == 0:
            net.fc.weight.grad.numpy()[1, 2] = np.inf
    optimizer.step()
""",
    "what ran while parameters were bad": """
raw = torch.rand(40, 4)
raw[38, 1] = -0.1
models = []
def inside(y, scale):
    return (y - 100).sqrt() if (fold, at) == (0, 5) else y
for fold in range(2):
    net = Net()
    models.append(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    feature = torch.log(raw + (1 - fold))
    for at in range(8):
        step(feature[at * 5:at * 5 + 5].clone())
""",
}
NUMBERS = {
    "of a list": """
for at, x in enumerate(data):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    factors = [1.0, float("inf") if at == 3 else 1.0]
    for parameter, gradient in zip(net.parameters(), torch._foreach_mul([p.grad for p in net.parameters()], factors)):
        parameter.grad = gradient
    optimizer.step()
""",
    "a divisor, beside smaller zeros": """
zeros = torch.zeros(3)
for at, x in enumerate(data):
    step(x / (float("nan") if at == 3 else 2.0))
""",
    "an exponent": """
for at, x in enumerate(data):
    step((x.abs() + 0.5) ** (float("inf") if at == 3 else 2.0))
""",
    "that an optimizer computes": """
class Own(torch.optim.Optimizer):
    def step(self):
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.addcdiv_(p.grad, p.grad.abs() + 1, value=-float("inf") if at == 3 else -0.1)
optimizer = Own(net.parameters(), {})
for at, x in enumerate(data):
    step(x)
""",
}
# gc.get_objects() does not list what was frozen.
FROZEN = """
import gc
scale = np.ones(3, dtype=np.float32)
tensor = torch.from_numpy(scale)
gc.collect(), gc.freeze()
for at, x in enumerate(data):
    if at == 3:
        scale[1] = np.inf
    step(x * torch.softmax(tensor, 0).mean())
"""
WRITTEN_LAST = """
for at, x in enumerate(data):
    step(x)
net.fc.weight.detach().numpy()[1, 2] = np.nan
"""


class FirstReader(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def jobs(kind, programs):
            return {name: workplace.run_watched(workplace.program(f"{kind}_{number}", TRAIN + text), options=("--level", "full"))
                    for number, (name, text) in enumerate(programs.items())}
        cls.unchecked, cls.numbers = jobs("unchecked", UNCHECKED), jobs("number", NUMBERS)
        cls.others = jobs("other", {"frozen": FROZEN, "written last": WRITTEN_LAST})

    def assert_unsure(self, job):
        verdict = job.verdict()
        self.assertEqual(verdict["verdict"], "anomaly")
        origin = origins(verdict)[-1]  # where there are two, the other is made by an op
        self.assertEqual(origin["exact"], False, origin)
        self.assertIn("inputs", origin["unseen"], origin)

    def test_memory_that_nobody_checks(self):
        for name, job in self.unchecked.items():
            with self.subTest(name):
                self.assert_unsure(job)

    def test_numbers(self):
        for name, job in self.numbers.items():
            with self.subTest(name):
                self.assert_unsure(job)

    def test_objects_that_the_collector_does_not_list(self):
        self.assert_unsure(self.others["frozen"])

    def test_parameters_are_read_once_more_when_the_program_ends(self):
        verdict = self.others["written last"].verdict()
        self.assertEqual(verdict["verdict"], "anomaly")
        origin = origins(verdict)[0]
        self.assertEqual((origin["kind"], origin["param"], origin["exact"]), ("parameter", "fc.weight", False), origin)


if __name__ == "__main__":
    unittest.main(verbosity=2)
