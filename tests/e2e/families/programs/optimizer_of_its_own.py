# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn
torch.manual_seed(0)
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(4, 8); self.gate = nn.Linear(4, 8, bias=False); self.o = nn.Linear(8, 2); self.open = False
    def forward(self, x):
        h = self.a(x)
        if self.open: h = h + self.gate(torch.zeros_like(x))
        return self.o(h)
class CamW(torch.optim.Optimizer):
    def __init__(self, p, lr=1e-3, b=(0.9, 0.99)): super().__init__(p, dict(lr=lr, b=b))
    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad(): loss = closure()
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None: continue
                st = self.state[p]
                if not st: st["m"] = torch.zeros_like(p); st["v"] = torch.zeros_like(p)
                st["m"].mul_(g["b"][0]).add_(p.grad, alpha=1 - g["b"][0])
                st["v"].mul_(g["b"][1]).addcmul_(p.grad, p.grad, value=1 - g["b"][1])
                upd = st["m"] / st["v"].sqrt()
                rms = upd.pow(2).mean().sqrt()
                p.add_(upd / max(1.0, 1.0), alpha=-g["lr"])
        return loss
m = M(); opt = CamW(m.parameters())
for s in range(8):
    m.open = s >= 4
    loss = nn.functional.cross_entropy(m(torch.randn(8, 4)), torch.randint(0, 2, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
