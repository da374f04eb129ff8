# SPDX-License-Identifier: Apache-2.0
"""Promise: an origin is called exact only where all that it was given is known to have been finite.

Each program lets a bad value come about, or come in, where no op is observed; the ones before show that an origin is exact elsewhere.
"""
import unittest

from plain_training import TRAIN
from watched_job import NANWATCH, PromiseTest, origins

SEEN = {
    "a square root of a negative number": ("aten::sqrt", "produce", """
def inside(y, scale):
    return (y - 100).sqrt() if at == 3 else y
for at, x in enumerate(data):
    step(x)
"""),
    "a slope of a root at zero": ("aten::div", "produce", """
def inside(y, scale):
    return (y * 0).abs().sqrt() if at == 3 else y
for at, x in enumerate(data):
    step(x)
"""),
}

HOLES = {
    "an array of numpy's": """
def inside(y, scale):
    return y / scale
scale = np.ones(3, dtype=np.float32)
for at, x in enumerate(data):
    if at == 3:
        scale[1] = np.nan
    step(x, torch.from_numpy(scale))
""",
    "a tensor that numpy writes to": """
memory = torch.ones(3)
view = memory.numpy()
for at, x in enumerate(data):
    if at == 3:
        view[0] = np.nan
    step(x * memory.sqrt().sum())
""",
    "a tensor that numpy writes to and an op writes over": """
memory = torch.ones(3)
view = memory.numpy()
for at, x in enumerate(data):
    if at == 3:
        view[0] = np.nan
    step(x * memory.sqrt_().sum())
""",
    "what a hidden op made, and autograd saved": """
def inside(y, scale):
    if at != 3: return y
    torch.autograd._enable_record_function(False)
    z = torch.full_like(y, float("inf")).abs()
    torch.autograd._enable_record_function(True)
    return y + torch.atan2(y, z)
for at, x in enumerate(data):
    step(x)
""",
    "what numpy wrote to, and autograd saved": """
def inside(y, scale):
    z = torch.ones(5, 3)
    z.numpy()[:] = np.inf if at == 3 else 1
    return y + torch.atan2(y, z)
for at, x in enumerate(data):
    step(x)
""",
    "a gradient that numpy writes to": """
def inside(y, scale):
    z = y * 3.0
    z.register_hook(lambda g: g.numpy().fill(np.inf if at == 3 else 1))
    return z.tanh()
for at, x in enumerate(data):
    step(x)
""",
    "a gradient that numpy writes to, and that views hand on": """
def inside(y, scale):
    z = (y * 3.0).view(-1)
    z.register_hook(lambda g: g.numpy().fill(np.inf if at == 3 else 1))
    return z.unsqueeze(0).view(5, 3).tanh()
for at, x in enumerate(data):
    step(x)
""",
    "a gradient that hidden ops make": """
def overflow(g):
    torch.autograd._enable_record_function(False)
    large = 1e38 if at == 3 else 1.0
    g = g * large * large
    torch.autograd._enable_record_function(True)
    return g
def inside(y, scale):
    z = y * 3.0
    z.register_hook(overflow)
    return z.tanh()
for at, x in enumerate(data):
    step(x)
""",
    "an op that raises after it has written": """
def inside(y, scale):
    z = (y * 0 + 1).detach()
    try:
        torch._foreach_mul_([z, torch.zeros(2, dtype=torch.long)], float("inf") if at == 3 else 1.0)
    except RuntimeError:
        pass
    return y * z.sqrt()
for at, x in enumerate(data):
    step(x)
""",
    "a value of an op, where more values are bad than are kept track of": """
hoard = []
def inside(y, scale):
    if at != 3: return y
    hoard.extend(torch._foreach_add(list(torch.full((9000,), float("nan")).unbind()), 1.0))
    return y - y[y > 1e6].mean()
for at, x in enumerate(data):
    step(x)
""",
    "what the parent of a forked process computed": """
memory = torch.ones(3)
memory[1] = float("nan")
child = os.fork()
if child == 0:
    def inside(y, scale):
        return y * memory.log()
    for at, x in enumerate(data):
        step(x)
    os._exit(0)
os.waitpid(child, 0)
""",
}

# It came with its memory, before any op used it: what came in is known, though not who made it.
CAME_IN = {
    "an array of numpy's": """
for at, x in enumerate(data):
    a = x.numpy().copy()
    if at == 3: a[1, 2] = np.nan
    step(torch.from_numpy(a))
""",
    "numbers of Python's": """
for at, x in enumerate(data):
    step(torch.tensor([[float("nan") if at == 3 else 1.0] * 4]))
""",
    "a file of torch's": """
import io
file = io.BytesIO()
x = torch.from_numpy(np.full((5, 4), np.nan, np.float32))
torch.save(x, file)
file.seek(0)
data[3] = torch.load(file)
for at, x in enumerate(data):
    step(x)
""",
    "a parameter that nothing has filled": """
net.fc.bias = torch.nn.Parameter(torch.from_numpy(np.full(3, np.nan, np.float32)).clone())
for at, x in enumerate(data):
    step(x)
""",
}

# Memory of torch's own that no observed op has filled, and parameters that turn bad between two steps.
WRITER_UNSEEN = {
    "memory that other code fills": ("input_data", """
import ctypes
for at, x in enumerate(data):
    a = x.numpy().copy()
    if at == 3: a[1, 2] = np.nan
    x = torch.zeros(5, 4)
    ctypes.memmove(x.data_ptr(), a.ctypes.data, a.nbytes)
    step(x)
"""),
    "memory that nobody fills": ("input_data", """
for at, x in enumerate(data):
    if at == 3:
        torch.use_deterministic_algorithms(True)  # puts NaN into what torch.empty leaves open
        x = torch.empty(5, 4)
    step(x)
"""),
    "shared memory, which any process may write": ("input_data", """
import ctypes
x = torch.zeros(5, 4).share_memory_()
for at, each in enumerate(data):
    a = each.numpy().copy()
    if at == 3: a[1, 2] = np.nan
    ctypes.memmove(x.data_ptr(), a.ctypes.data, a.nbytes)
    step(x)
"""),
    "an update with kernels of its own": ("parameter", """
import ctypes
class OwnKernels(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})
    def step(self):
        for p in self.param_groups[0]["params"]:
            a = np.array(p.detach().tolist(), np.float32) - 0.01 * np.array(p.grad.tolist(), np.float32)
            a = np.sqrt(-a * a) if at == 3 else a
            ctypes.memmove(p.data_ptr(), a.ctypes.data, a.nbytes)
optimizer = OwnKernels(net.parameters())
for at, x in enumerate(data):
    step(x)
"""),
    "a buffer that other code fills": ("buffer", """
net.register_buffer("scale", torch.ones(3))
def inside(y, scale):
    net.scale.numpy()[:] = np.nan if at == 3 else 2
    return y * net.scale
for at, x in enumerate(data):
    step(x)
"""),
}

# Where a value that is bad by design stands beside it, which is not to blame.
BESIDE = {
    "a gradient that numpy writes to, behind a padding": """
def inside(y, scale):
    y = torch.cat([y, torch.full((5, 2), float("nan"))], 1)[:, :3]
    y.register_hook(lambda g: g.numpy().reshape(-1)[:1].fill(np.nan if at == 3 else 0.1))
    return y
for at, x in enumerate(data):
    step(x)
""",
    "a gradient that numpy writes to, on its way through where()": """
def inside(y, scale):
    y = torch.where(y > 0, y, 0.1 * y)
    y.register_hook(lambda g: g.numpy().reshape(-1)[:1].fill(np.inf if at == 3 else 0.1))
    return y * torch.sigmoid(y)
for at, x in enumerate(data):
    step(x)
""",
}

# The first op of a node is not asked for the gradient that it reads, the next one is: they are one incident.
SPOILT_GRADIENT = """
import ctypes
class InC(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y): return y.clone()
    @staticmethod
    def backward(ctx, g):
        a = np.array(g.tolist(), np.float32)
        if at == 3: a[0, 0] = np.nan
        g = torch.empty_like(g)
        ctypes.memmove(g.data_ptr(), a.ctypes.data, a.nbytes)
        return g
def inside(y, scale):
    return InC.apply(y)
for at, x in enumerate(data):
    step(x)
"""

# A value that an op made comes back by a way that nobody can follow.
RETURNS = {
    "a list that is kept for steps": """
memory = []
def inside(y, scale):
    return y * (torch.stack([memory[0], memory[at - 3 if at == 5 else 0]]).mean() if at else 1)
for at, x in enumerate(data):
    zero = torch.full((3,), 0.0 if at == 2 else 1.0)
    memory.append(zero / zero)
    step(x)
""",
    "a deepcopy": """
import copy
def inside(y, scale):
    return y * scale
for at, x in enumerate(data):
    zero = torch.tensor([1.0, 0.0 if at == 3 else 1.0, 1.0])
    batch = {"scale": zero / zero}
    step(x, copy.deepcopy(batch)["scale"])
""",
    "an array of numpy's": """
def inside(y, scale):
    return y * scale
for at, x in enumerate(data):
    zero = torch.tensor([1.0, 0.0 if at == 3 else 1.0, 1.0])
    step(x, torch.from_numpy((zero / zero).numpy().copy()))
""",
}

# A skip after the pass: `if not isfinite(loss): continue`.
LEFT_OUT = """
def inside(y, scale):
    return y / (0.0 if at == 2 else 1.0)
for at, x in enumerate(data):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    if torch.isfinite(loss):
        optimizer.step()
"""

# The scaler's update, which is not hidden, is told that a gradient was Inf. Nothing after it shows that the parameters are well.
HIDDEN_SCALER_STEP = """
class Overflows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y): return y * 1.0
    @staticmethod
    def backward(ctx, g): return (g.abs() + 1) * (1e38 if at == 3 else 1) * 1e3
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
for at, x in enumerate(data[:4]):
    optimizer.zero_grad()
    scaler.scale(Overflows.apply(net(x)).square().mean()).backward()
    torch.autograd._enable_record_function(False)
    scaler.step(optimizer)
    torch.autograd._enable_record_function(True)
    scaler.update()
"""

# At canary the first updates are watched by their ops. One that hides them all, and one that hides them from within.
BREAKS = """
class Breaks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y): return y * 1.0
    @staticmethod
    def backward(ctx, g): return g * np.nan
Breaks.apply(net(data[0])).square().mean().backward()
"""
HIDDEN_UPDATES = {
    "around it": BREAKS + """
torch.autograd._enable_record_function(False)
optimizer.step()
torch.autograd._enable_record_function(True)
""",
    "within it": BREAKS + """
optimizer.register_step_pre_hook(lambda *_: torch.autograd._enable_record_function(False))
optimizer.register_step_post_hook(lambda *_: torch.autograd._enable_record_function(True))
optimizer.step()
""",
}

# A call of a module at idle, and not a whole step.
PARTLY_IDLE = f"""
import subprocess
def attach(level):
    subprocess.run(["{NANWATCH}", "attach", str(os.getpid()), "--level", level, "--wait", "0"], stdout=subprocess.DEVNULL)
for at, x in enumerate(data):
    if at == 2:
        for level in ("idle", "full"):
            attach(level)
            net(x)
    step(x)
"""


class Exactness(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def job(number, text, level="full"):
            return workplace.run_watched(workplace.program(f"program_{number}", TRAIN + text), options=("--level", level))
        cls.partly_idle = job("partly_idle", PARTLY_IDLE)
        cls.spoilt_gradient = job("spoilt_gradient", SPOILT_GRADIENT)
        cls.skipped = job("scaler", HIDDEN_SCALER_STEP)
        cls.left_out = job("left_out", LEFT_OUT)
        cls.returns = {name: job(f"return_{number}", text) for number, (name, text) in enumerate(RETURNS.items())}
        cls.seen = {name: job(f"seen_{number}", text) for number, (name, (_, _, text)) in enumerate(SEEN.items())}
        cls.came_in = {name: job(f"came_in_{number}", text) for number, (name, text) in enumerate(CAME_IN.items())}
        cls.unseen = {name: job(f"unseen_{number}", text) for number, (name, (_, text)) in enumerate(WRITER_UNSEEN.items())}
        cls.beside = {name: job(f"beside_{number}", text) for number, (name, text) in enumerate(BESIDE.items())}
        cls.updates = {name: job(f"update_{number}", text, "canary") for number, (name, text) in enumerate(HIDDEN_UPDATES.items())}
        cls.holes = {name: job(f"hole_{number}", text) for number, (name, text) in enumerate(HOLES.items())}

    def test_what_was_seen_to_be_made_of_finite_values_is_exact(self):
        for name, job in self.seen.items():
            with self.subTest(name):
                origin = origins(job.verdict())[0]
                self.assertEqual((origin["op"], origin["class"], origin["exact"], origin["unseen"]), (*SEEN[name][:2], True, []))

    def test_what_came_in_with_its_memory_is_exact(self):
        for name, job in self.came_in.items():
            with self.subTest(name):
                origin = origins(job.verdict())[0]
                self.assertEqual((origin["class"], origin["exact"], origin["unseen"]), ("external", True, []), origin)

    def test_what_code_that_nobody_observes_may_have_written_is_not(self):
        for name, job in self.unseen.items():
            with self.subTest(name):
                origin = origins(job.verdict())[0]
                self.assertEqual((origin["kind"], origin["exact"]), (WRITER_UNSEEN[name][0], False), origin)
                self.assertIn("writer", origin["unseen"])

    def test_a_gradient_that_nobody_saw_written_is_one_incident(self):
        found = origins(self.spoilt_gradient.verdict())
        self.assertEqual([(origin["class"], origin["exact"]) for origin in found], [("external", False)], found)

    def test_what_is_bad_by_design_is_not_blamed_for_what_came_in_beside_it(self):
        for name, job in self.beside.items():
            with self.subTest(name):
                origin = origins(job.verdict())[0]
                self.assertEqual((origin["phase"], origin["exact"], origin["step"]), ("backward", False, 3), origin)

    def test_what_came_in_unseen_is_not(self):
        for name, job in self.holes.items():
            with self.subTest(name):
                verdict = job.verdict()
                self.assertEqual(verdict["verdict"], "anomaly")
                origin = origins(verdict)[0]
                self.assertFalse(origin["exact"] and origin["class"] == "produce", origin)
                self.assertTrue(origin["exact"] or origin["unseen"], origin)

    def test_a_skip_that_a_scaler_told_of_afterward_is_no_anomaly(self):
        verdict = self.skipped.verdict()
        self.assertIn(verdict["verdict"], ("expected", "unknown"), verdict["incidents"])

    def test_a_bad_gradient_is_not_harmless_because_its_update_was_hidden(self):
        for name, job in self.updates.items():
            with self.subTest(name):
                self.assertIn(job.verdict()["verdict"], ("anomaly", "unknown"))

    def test_what_may_be_a_value_of_an_op_names_the_op(self):
        for name, job in self.returns.items():
            with self.subTest(name):
                origin = origins(job.verdict())[0]
                if origin["class"] == "external":
                    self.assertEqual((origin["exact"], [made["op"] for made in origin["candidates"]]), (False, ["aten::div"]), origin)
                else:
                    self.assertEqual(origin["op"], "aten::div")

    def test_a_loss_that_is_read_after_its_pass_and_left_out_is_no_anomaly(self):
        self.assertEqual(self.left_out.verdict()["verdict"], "expected")

    def test_a_step_that_was_idle_in_part_is_not_clean(self):
        verdict = self.partly_idle.verdict()
        self.assertEqual((verdict["verdict"], verdict["unknown_because"]), ("unknown", "steps_not_checked"))
        self.assertEqual(verdict["coverage"]["steps_watched"], {"idle": 1, "full": 5})


if __name__ == "__main__":
    unittest.main()
