# SPDX-License-Identifier: Apache-2.0
"""What an optimizer writes is described once, and verified in each step: where a job changes it, what is bad is found as on a CPU."""
import unittest

from gpu_job import GpuJobTest, told

LATE = 112  # by then an update's ops are no longer watched one by one, and it has been described
TRAINING = """
import copy, torch
torch.manual_seed(1)
device = "{device}"
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
        self.head = torch.nn.Linear(8, 8)
    def forward(self, x):
        for layer in self.layers:
            x = x + 0.1 * layer(x)
        return self.head(x).square().mean()
model = Net().to(device)
weight = model.layers[1].weight
optimizer = torch.optim.{optimizer}
def bad(tensor):
    tensor = tensor.detach().clone()
    tensor.view(-1)[5] = float("nan")
    return tensor
for i in range({late} + 4):
    optimizer.zero_grad(set_to_none={set_to_none})
    model(torch.randn(6, 8, device=device)).backward()
    if i == {late}:
{change}
    optimizer.step()
"""
ADAM = "AdamW(model.layers.parameters(), lr=1e-3)"
# What is done behind the back of an optimizer that has been described.
CHANGES = {
    "nothing": "pass",
    "a group is added": 'optimizer.add_param_group({"params": model.head.parameters(), "lr": float("inf")})',
    "a parameter is added": 'optimizer.param_groups[0]["params"].append(model.head.weight); model.head.weight.grad[0, 1] = float("nan")',
    "a parameter is left out": 'optimizer.param_groups[0]["params"].pop(0); optimizer.param_groups[0]["lr"] = float("inf")',
    "states are loaded": """state = copy.deepcopy(optimizer.state_dict())
state["state"][2]["exp_avg"] = bad(state["state"][2]["exp_avg"])
optimizer.load_state_dict(state)""",
    "a state is replaced": 'optimizer.state[weight]["exp_avg"] = bad(optimizer.state[weight]["exp_avg"])',
    "states are dropped": 'optimizer.state.clear(); optimizer.param_groups[0]["lr"] = float("inf")',
    "data is replaced": "weight.data = bad(weight)",
    "data is turned": "weight.data = weight.data.t()\nweight.grad = weight.grad.t()\noptimizer.state.clear()\nweight.grad[2, 5] = float('nan')",
    "all lies in one storage": """flat = torch.cat([p.detach().reshape(-1) for p in model.layers.parameters()])
at = 0
for p in model.layers.parameters():
    p.data = flat[at:at + p.numel()].view_as(p)
    at += p.numel()
optimizer.param_groups[0]["lr"] = float("inf")""",
}
FEW = {"nothing": "pass", "a gradient is bad": "weight.grad[2, 3] = float('nan')", "data is replaced": CHANGES["data is replaced"]}
# Optimizer, whether gradients go between the steps, and what is changed.
TRAININGS = {"adam": (ADAM, True, CHANGES), "gradients stay": (ADAM, False, FEW),
             "sgd": ("SGD(model.layers.parameters(), lr=1e-3, momentum=0.9)", True, FEW),
             "counts on the device": ("AdamW(model.layers.parameters(), lr=1e-3, capturable=device != 'cpu')", True, FEW)}


def text(device, optimizer, set_to_none, change):
    indented = "\n".join(8 * " " + line for line in change.splitlines())
    return TRAINING.format(device=device, optimizer=optimizer, set_to_none=set_to_none, change=indented, late=LATE)


class Plans(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {}
        for training, (optimizer, set_to_none, changes) in TRAININGS.items():
            for change, code in changes.items():
                name = f"{training} {change}".replace(" ", "_")
                on_gpu = workplace.run_watched(cls.program(name, text("cuda", optimizer, set_to_none, code)), ("--level", "canary"))
                on_cpu = workplace.run_watched(workplace.program(f"{name}_cpu", text("cpu", optimizer, set_to_none, code)), ("--level", "canary"))
                cls.jobs[training, change] = on_gpu, on_cpu

    def test_what_is_bad_after_a_change_is_found_as_on_a_cpu(self):
        for name, (on_gpu, on_cpu) in self.jobs.items():
            with self.subTest(name):
                self.assertEqual(on_gpu.status(), 0, on_gpu.stderr())
                verdict = on_gpu.verdict()
                self.assertEqual(len(verdict["incidents"]), 0 if name[1] == "nothing" else 1)
                # On a CPU canary reads what the model returns, too, and finds it bad in the next step.
                self.assertEqual(told(verdict), told(on_cpu.verdict())[:1])
                unchecked = verdict["coverage"]["unchecked"]
                # The checker is set up beside the first steps, which on a busy machine are faster. The change comes long after.
                self.assertLess(int(unchecked.pop("gpu_not_ready", 0)), LATE)
                self.assertEqual(unchecked, {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
