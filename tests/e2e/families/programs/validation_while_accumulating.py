# SPDX-License-Identifier: Apache-2.0
# weights blow up at the update 3; validation of 3 batches runs in the middle of accumulation
import torch, torch.nn as nn
torch.manual_seed(0)
class Gate(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 8)
    def forward(self, h): return h * torch.exp(self.l(h)) / 10
class M(nn.Module):
    def __init__(self): super().__init__(); self.i = nn.Linear(6, 8); self.gate = Gate(); self.o = nn.Linear(8, 2)
    def forward(self, x): return self.o(self.gate(torch.tanh(self.i(x))))
m = M(); opt = torch.optim.SGD(m.parameters(), 0.01)
val = [torch.randn(5, 6) for _ in range(3)]
def validate():
    m.eval()
    with torch.no_grad(): r = sum(m(v).argmax(-1).sum().item() for v in val)
    m.train(); return r
for s in range(16):
    if s == 7: opt.param_groups[0]["lr"] = 1e5
    loss = m(torch.randn(5, 6)).pow(2).mean() / 2
    loss.backward()
    if s % 2: opt.step(); opt.zero_grad(); opt.param_groups[0]["lr"] = 0.01
    if s in (7, 8): print(validate())
