# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn
torch.manual_seed(0)
class RMS(nn.Module):
    def __init__(self, d): super().__init__(); self.g = nn.Parameter(torch.ones(d))
    def forward(self, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * self.g
class N(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(6, 16); self.bn = nn.BatchNorm1d(16); self.norm = RMS(16); self.b = nn.Linear(16, 2)
    def forward(self, x): return self.b(self.norm(torch.relu(self.bn(self.a(x)) - self.off)))
    off = 0.0
m = N(); swa = AveragedModel(m); opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9); ss = SWALR(opt, 0.01)
data = [(torch.randn(8, 6), torch.randint(0, 2, (8,))) for _ in range(4)]
i = 0
for ep in range(4):
    for x, y in data:
        m.off = 1e3 if i == 8 else 0.0
        loss = nn.functional.cross_entropy(m(x), y)
        opt.zero_grad(); loss.backward(); opt.step(); i += 1
    if ep >= 1: swa.update_parameters(m); ss.step()
update_bn([d[0] for d in data], swa)
print(nn.functional.cross_entropy(swa(data[0][0]), data[0][1]).item())
