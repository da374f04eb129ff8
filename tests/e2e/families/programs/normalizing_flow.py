# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn
torch.manual_seed(0)
class Coupling(nn.Module):
    def __init__(self, d, flip):
        super().__init__(); self.flip = flip; self.net = nn.Sequential(nn.Linear(d // 2, 32), nn.ReLU(), nn.Linear(32, d)); self.boost = 1.0
    def forward(self, x):
        a, b = x.chunk(2, -1)
        if self.flip: a, b = b, a
        s, t = self.net(a).chunk(2, -1)
        s = s * self.boost
        y = b * torch.exp(s) + t
        return (torch.cat([y, a], -1) if self.flip else torch.cat([a, y], -1)), s.sum(-1)
class Flow(nn.Module):
    def __init__(self):
        super().__init__(); self.layers = nn.ModuleList([Coupling(4, i % 2 == 1) for i in range(4)])
    def forward(self, x):
        ld = 0
        for l in self.layers:
            x, d = l(x); ld = ld + d
        return x, ld
f = Flow(); opt = torch.optim.Adam(f.parameters(), 1e-3); base = torch.distributions.Normal(0., 1., validate_args=False)
for s in range(10):
    x = torch.randn(32, 4) * 0.5 + 1
    f.layers[1].boost = 5000.0 if s == 6 else 1.0
    z, ld = f(x)
    nll = -(base.log_prob(z).sum(-1) + ld).mean()
    opt.zero_grad(); nll.backward(); nn.utils.clip_grad_value_(f.parameters(), 1.0); opt.step()
    if s % 4 == 3:
        with torch.no_grad():
            print(s, nll.item(), f(torch.randn(8, 4))[1].mean().item())
