# SPDX-License-Identifier: Apache-2.0
"""What is found on a GPU has the op, layer, line, step and class that it would have had on the CPU, however late it is known."""
import unittest

from gpu_job import LAGS, GpuJobTest, told

TRAINING = """
import torch, torch.nn as nn
torch.manual_seed(0)
class Gate(nn.Module):
    bad = False
    def forward(self, x):
        {gate}
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.gate, self.leave = nn.Linear(8, 16), Gate(), nn.Linear(16, 1)
    def forward(self, x):
        return self.leave(self.gate(torch.relu(self.enter(x))))
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
for step in range(12):
    model.gate.bad = step == 7
    x = torch.randn(32, 8)
    {batch}
    optimizer.zero_grad()
    loss = (model(x.cuda()) ** 2).mean()
    loss.backward()
    {update}
    optimizer.step()
print([p.double().sum().item().hex() for p in model.parameters()])
"""


def training(gate="pass", batch="pass", update="pass"):
    return TRAINING.format(gate=gate, batch=batch, update=update)


SQRT = training(gate="x = (x - 1).sqrt() if self.bad else x")
# Changes its environment once it is observed, and before it has anything on the GPU.
ENVIRONMENT = """
import os, time, types, torch
deadline = time.monotonic() + 60
while isinstance(torch.nn.Module.__dict__["__call__"], types.FunctionType) and time.monotonic() < deadline:
    time.sleep(0.01)
os.environ["NANWATCH_GPU"] = "0"
""" + SQRT
FAULTS = {
    "batch": training(batch="if step == 7: x[3, 2] = float('nan')"),
    "mask_taken_back": training(gate="x = x.masked_fill(x > 3, float('-inf')).clamp(min=-1)"),
    "fully_masked_row": training(gate="x = torch.softmax(x.masked_fill(x > -9, float('-inf')), -1) if self.bad else x"),
    "backward_formula": training(gate="x = x + 0 * (x * 0).norm(dim=-1, keepdim=True).sqrt() if self.bad else x"),
    # Of these two the GPU alone casts the power.
    "autocast": training(gate="""with torch.autocast("cuda", dtype=torch.bfloat16):
            x = x + (torch.pow(x.bfloat16() * 0, 0.5).to(x.dtype) if self.bad else 0)"""),
    "in_place": training(gate="x = x.clone().div_(0) if self.bad else x"),
    "view_of_bad": training(gate="x = torch.cat([x[:, :8].log(), x[:, 8:].view(-1, 8)], 1) if self.bad else x"),
    "update": training(update="if step == 7: optimizer.param_groups[0]['eps'] = float('nan')"),
    "compared": training(update="if not torch.isfinite(loss): continue", gate="x = x / 0 if self.bad else x"),
    "read": training(update="loss.item()", gate="x = (x - 1).log() if self.bad else x"),
}
class Findings(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        sqrt = cls.program("sqrt", SQRT)
        healthy = cls.program("healthy", training())
        cls.healthy = workplace.run_bare(healthy), workplace.run_watched(healthy)
        cls.sqrt = {lag: workplace.run_watched(sqrt, NANWATCH_FAKE_LAG=lag) for lag in LAGS}
        cls.sqrt_bare = workplace.run_bare(sqrt)
        cls.unchecked = workplace.run_watched(sqrt, NANWATCH_GPU="0")
        cls.capsule = workplace.run_watched(sqrt, ("--capsule", "op"))
        cls.environment = workplace.run_watched(cls.program("environment", ENVIRONMENT))
        cls.others = {}
        for name, text in FAULTS.items():
            cls.others[name] = (workplace.run_watched(workplace.program(f"cpu_{name}", text.replace(".cuda()", ""))),
                                workplace.run_watched(cls.program(name, text)))

    def test_a_healthy_job_is_clean_with_the_same_results(self):
        self.assert_same(*self.healthy)
        verdict = self.assert_clean(self.healthy[1])
        self.assertEqual(verdict["runs"][0]["device"], "cuda:0")

    def test_the_op_that_made_the_nan_is_named_however_late_it_is_known(self):
        for lag, job in self.sqrt.items():
            with self.subTest(lag=lag):
                self.assertEqual(job.stdout(), self.sqrt_bare.stdout())
                verdict = job.verdict()
                self.assert_origin(verdict, op="aten::sqrt", layer="gate", step=7, phase="forward", inputs_seen=True, exact=True,
                                   source="sqrt.py:7 in forward", **{"class": "produce"})
                self.assertLessEqual({"loss", "gradient", "parameter", "optimizer_state"}, set(verdict["incidents"][0]["reach"]))
                self.assertEqual(int(verdict["coverage"]["lost_events"]), 0)

    def test_what_was_counted_on_the_gpu_is_told(self):
        origin = self.sqrt["50"].verdict()["incidents"][0]["origin"]
        output, given = origin["outputs"][0], origin["inputs"][0]
        self.assertEqual((output["shape"], given["shape"]), ([32, 16], [32, 16]))
        self.assertGreater(int(output["nan"]), 0)
        self.assertEqual(int(given["nan"]), 0)
        self.assertEqual(given["finite_min"], -1)

    def test_every_fault_is_what_it_is_on_the_cpu(self):
        for name, (cpu, gpu) in self.others.items():
            with self.subTest(name):
                self.assertEqual(told(gpu.verdict()), told(cpu.verdict()))
                self.assertEqual(gpu.verdict()["verdict"], cpu.verdict()["verdict"])

    def test_what_the_job_does_to_its_environment_changes_nothing(self):
        self.assert_origin(self.environment.verdict(), op="aten::sqrt", layer="gate", step=7)

    def test_that_there_is_no_capsule_is_said_once(self):
        said = [line for line in self.capsule.stderr().splitlines() if "capsule" in line]
        self.assertEqual(said, ["nanwatch: no capsule is written of an op on a GPU; --capsule op works on the CPU alone yet"])

    def test_unchecked_gpus_are_said_to_be_so(self):
        verdict = self.unchecked.verdict()
        self.assertEqual((verdict["verdict"], verdict["unknown_because"]), ("unknown", "device_not_checked"))
        self.assertIn("could be checked, and", self.unchecked.stderr())
        self.assertGreater(int(verdict["coverage"]["unchecked"]["other_device"]), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
