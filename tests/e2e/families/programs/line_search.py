# SPDX-License-Identifier: Apache-2.0
# PINN-like regression with LBFGS, log of negative after a line search step
import torch, torch.nn as nn
torch.manual_seed(0)
class Phys(nn.Module):
    def forward(self, u, bad):
        return torch.log(u - 1e3) if bad else torch.log(u.pow(2) + 1)
class PINN(nn.Module):
    def __init__(self):
        super().__init__(); self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)); self.phys = Phys()
    def forward(self, x, bad=False): return self.phys(self.net(x), bad)
m = PINN(); opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
x = torch.linspace(0, 1, 20)[:, None]; y = torch.sin(3 * x).pow(2)
hist = []
for ep in range(5):
    def closure():
        opt.zero_grad()
        loss = (m(x, ep == 2) - y).pow(2).mean()
        hist.append(loss)
        loss.backward()
        return loss
    l = opt.step(closure)
    with torch.no_grad(): print(ep, float(l), float((m(x) - y).abs().max()))
