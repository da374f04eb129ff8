# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn
torch.manual_seed(0)
class SyncLike(nn.Module):
    def __init__(self, c): super().__init__(); self.g = nn.Parameter(torch.ones(c)); self.register_buffer("m", torch.zeros(c)); self.register_buffer("v", torch.ones(c))
    def forward(self, x):
        if self.training:
            mu, var = x.mean(0), x.var(0)
            with torch.no_grad(): self.m.lerp_(mu, 0.1); self.v.lerp_(var, 0.1)
        else: mu, var = self.m, self.v
        return (x - mu) / torch.sqrt(var + 1e-5) * self.g
class M(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(4, 6); self.bn = SyncLike(6); self.o = nn.Linear(6, 2)
    def forward(self, x): return self.o(torch.relu(self.bn(self.l(x))))
m = M(); opt = torch.optim.Adam(m.parameters(), 1e-3)
X, Y = torch.randn(33, 4), torch.randint(0, 2, (33,))
dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), 8)
for ep in range(2):
    for x, y in dl:
        loss = nn.functional.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
    m.eval()
    with torch.no_grad(): acc = sum((m(x).argmax(1) == y).float().sum().item() for x, y in dl) / 33
    m.train(); print(ep, acc)
