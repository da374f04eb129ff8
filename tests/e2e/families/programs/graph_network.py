# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn
torch.manual_seed(0)
class GCN(nn.Module):
    def __init__(self, i, o): super().__init__(); self.l = nn.Linear(i, o)
    def forward(self, x, A):
        d = A.sum(1); dis = d.pow(-0.5)
        return self.l(dis[:, None] * A * dis[None] @ x)
class Net(nn.Module):
    def __init__(self): super().__init__(); self.c1 = GCN(4, 8); self.c2 = GCN(8, 2)
    def forward(self, x, A): return self.c2(torch.relu(self.c1(x, A)), A)
m = Net(); opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(7):
    A = (torch.rand(6, 6) > 0.5).float() + torch.eye(6)
    if s == 3: A[2] = 0; A[:, 2] = 0
    loss = nn.functional.cross_entropy(m(torch.randn(6, 4), A), torch.randint(0, 2, (6,))); opt.zero_grad(); loss.backward(); opt.step()
