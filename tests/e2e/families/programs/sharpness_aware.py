# SPDX-License-Identifier: Apache-2.0
# SAM: e_w = grad * rho / norm, norm is zero (no eps)
import torch, torch.nn as nn
torch.manual_seed(0)
class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw)); self.base = base(self.param_groups, **kw); self.param_groups = self.base.param_groups
    @torch.no_grad()
    def first_step(self):
        n = torch.norm(torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]))
        for g in self.param_groups:
            for p in g["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * (g["rho"] / n))
        self.zero_grad()
    @torch.no_grad()
    def second_step(self):
        for g in self.param_groups:
            for p in g["params"]: p.data = self.state[p]["old"]
        self.base.step(); self.zero_grad()
    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        closure(); self.first_step(); loss = closure(); self.second_step(); return loss
m = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)); opt = SAM(m.parameters(), torch.optim.SGD, lr=0.1)
for s in range(8):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    def closure():
        loss = nn.functional.cross_entropy(m(x), y) * (0.0 if s == 4 else 1.0)
        loss.backward(); return loss
    opt.step(closure)
