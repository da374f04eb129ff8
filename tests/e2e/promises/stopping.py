# SPDX-License-Identifier: Apache-2.0
"""Programs whose updates are to be stopped, or not: a fault in step 5, and what a GradScaler skips; and what is asked of them wherever they
run. `device` is assigned in the second line of code."""
NET = """
import torch

device = "cpu"

class Gate(torch.nn.Module):
    def forward(self, x, offset):
        return x + torch.log(x.detach().square().sum() + offset)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.gate, self.head = torch.nn.Linear(8, 16), Gate(), torch.nn.Linear(16, 4)

    def forward(self, x, offset):
        return self.head(self.gate(torch.relu(self.inner(x)), offset))

torch.manual_seed(3)
model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

def step(offset):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(torch.randn(4, 8).to(device), offset), torch.zeros(4, 4, device=device)).backward()
    optimizer.step()
"""
PLAIN = NET + """
try:
    for i in range(8):
        step(-1e6 if i == 5 else 1.0)
except FloatingPointError as error:
    print(i, type(error).__module__, type(error).__name__, all(p.isfinite().all().item() for p in model.parameters()))
    print(error)
    step(1.0)
    print("went on")
"""
# An update makes parameters bad of sound gradients: the gradients that come of them stop the next.
BAD_UPDATE = NET + """
try:
    for i in range(8):
        optimizer.param_groups[0]["lr"] = float("nan") if i == 4 else 1e-3
        step(1.0)
except FloatingPointError as error:
    print(i, type(error).__name__)
"""
UNCAUGHT = NET + "step(1.0)\nstep(-1e6)\n"
SCALED = """
import torch

device = "cpu"
torch.manual_seed(0)
layer = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler(device, init_scale=2.0 ** 126)
for _ in range(6):
    optimizer.zero_grad()
    scaler.scale(layer(torch.full((4, 4), 9.0, device=device)).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
print("done", scaler.get_scale() < 2.0 ** 126)
"""


class Stops:
    """For a test case whose `commands` run these programs."""
    UPDATE_LEVELS = ("full", "canary")
    SCALED_OPTIONS = ((), ("--level", "canary"), ("--budget", "1"))

    def run_stopping(self, name, *options, **environment):
        return self.workplace.run_watched(self.commands[name], ("--on-anomaly", "stop", *options), **environment)

    def test_gradients_of_parameters_that_an_update_made_bad_stop_the_next(self):
        for level in self.UPDATE_LEVELS:
            with self.subTest(level):
                job = self.run_stopping("update", "--level", level)
                self.assertEqual((job.status(), job.stdout()), (0, "5 NonFiniteGradient\n"), job.stderr())

    def test_a_job_that_does_not_catch_it_ends_as_by_any_exception(self):
        job = self.run_stopping("uncaught")
        self.assertEqual(job.status(), 1)
        self.assertIn("nanwatch.NonFiniteGradient: NaN or Inf in 4 of 4 gradients at step 1", job.stderr())

    def test_updates_that_a_scaler_skips_do_not_stop(self):
        for options in self.SCALED_OPTIONS:
            with self.subTest(options):
                job = self.run_stopping("scaled", *options)
                self.assertEqual((job.status(), job.stdout()), (0, "done True\n"), job.stderr())
                self.assertNotEqual(job.verdict()["verdict"], "anomaly")
