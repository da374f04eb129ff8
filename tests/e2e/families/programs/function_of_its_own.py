# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn
torch.manual_seed(0)
class SafeSqrt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clamp(min=0).sqrt(); ctx.save_for_backward(y); return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g / (2 * y)
class Act(nn.Module):
    def forward(self, x): return SafeSqrt.apply(x)
m = nn.Sequential()
m.add_module("fc", nn.Linear(5, 8)); m.add_module("act", Act()); m.add_module("out", nn.Linear(8, 2))
opt = torch.optim.Adam(m.parameters(), 1e-3)
with torch.no_grad(): m.fc.bias.fill_(10.0)
for s in range(9):
    x = torch.randn(4, 5)
    if s == 5:
        h = m.fc(x) - 20
        loss = m.out(m.act(h)).pow(2).mean()
    else:
        loss = m(x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
