# SPDX-License-Identifier: Apache-2.0
"""A training that a fault takes NaN into, which goes on for hundreds of steps, loads a good state and meets a second fault."""
FIRST, LOADED, SECOND, END = 130, 330, 345, 350
# What leaves the parameters bad at step FIRST, and the fault of step SECOND, in which another op in another layer makes NaN.
FAULTS = {"log": "h = h + torch.log(h.detach().mean() - 1e9)", "sqrt": "y = y + torch.sqrt(y.detach().mean() - 1e9)"}
# At level canary, where no op is watched, a second bad loss would be the first one's incident once more: the update is at fault instead.
BAD_RATE = f"if i == {SECOND}: optimizer.param_groups[0]['lr'] = float('inf')"
# Ways to make the parameters good again.
HEALS = {"load_state_dict": "model.load_state_dict(good)",
         "copy_": "with torch.no_grad():\n            for name, p in model.named_parameters(): p.copy_(good[name])",
         "data": "for name, p in model.named_parameters(): p.data = good[name].clone()"}
TEXT = """
import json, os, torch
torch.manual_seed(1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    def forward(self, x, i):
        h = self.first(x)
        if i == {first}: {log}
        y = self.second(torch.relu(h))
        if i == {second} and {in_forward}: {sqrt}
        return y
model = Net().to("{device}")
good = {{name: t.detach().clone() for name, t in model.state_dict().items()}}
optimizer = torch.optim.{optimizer}
{before}
for i in range({end}):
    if i == {loaded}:
        {heal}
        optimizer.state.clear()
    optimizer.zero_grad()
    x = torch.randn(6, 8, device="{device}")
    loss = (model(x, i) - x[:, :4]).square().mean()
    loss.backward()
    {in_update}
    optimizer.step()
    {each}
print(all(p.isfinite().all().item() for p in model.parameters()))
"""


def program_text(heal="load_state_dict", optimizer="AdamW(model.parameters(), lr=1e-3)", device="cpu", before="", each="pass", end=END, loaded=LOADED,
                 in_update=False):
    """`before` and `each` are lines of the caller's, before the first step and behind each."""
    return TEXT.format(first=FIRST, second=SECOND, loaded=loaded, end=end, heal=HEALS[heal], optimizer=optimizer, device=device, before=before,
                       each=each, in_forward=not in_update, in_update=BAD_RATE if in_update else "pass", **FAULTS)


def incidents(verdict):
    return sorted((int(i["origin"]["step"]), i["origin"]["op"], i["origin"]["layer"]) for i in verdict["incidents"])


BY_OPS = [(FIRST, "aten::log", ""), (SECOND, "aten::sqrt", "")]
# On a CPU canary reads what the model returns; on a GPU, what a pass begins at.
BY_CANARY = [(FIRST, "torch.nn.Module.__call__", ""), (SECOND, "Optimizer.step#AdamW.step", "first")]
BY_CANARY_ON_GPU = [(FIRST, "torch.autograd.backward", ""), BY_CANARY[1]]
