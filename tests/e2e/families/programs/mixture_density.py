# SPDX-License-Identifier: Apache-2.0
import math, torch, torch.nn as nn
torch.manual_seed(0)
class MDN(nn.Module):
    def __init__(self): super().__init__(); self.h = nn.Sequential(nn.Linear(1, 16), nn.Tanh()); self.pi = nn.Linear(16, 3); self.mu = nn.Linear(16, 3); self.s = nn.Linear(16, 3)
    def forward(self, x): h = self.h(x); return self.pi(h).softmax(-1), self.mu(h), self.s(h).exp()
def nll(pi, mu, s, y):
    p = torch.exp(-0.5 * ((y - mu) / s) ** 2) / (s * math.sqrt(2 * math.pi))
    return -torch.log((pi * p).sum(-1)).mean()
m = MDN(); opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(10):
    x = torch.randn(12, 1); y = x.sin() + (1e3 if s == 6 else 0)
    loss = nll(*m(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if s % 3 == 0: print(s, loss.item())
