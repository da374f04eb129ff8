# SPDX-License-Identifier: Apache-2.0
# WGAN-GP five critic updates; norm of zero gradient -> sqrt backward (double backward)
import torch, torch.nn as nn
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    def forward(self, x): return self.f(x)
C = Critic()
og = torch.optim.Adam(G.parameters(), lr=1e-4); oc = torch.optim.Adam(C.parameters(), lr=1e-4)
def gp(real, fake, kill):
    a = torch.rand(real.size(0), 1)
    inter = (a * real + (1 - a) * fake).requires_grad_(True)
    out = C(inter)
    if kill: out = out * 0
    g, = torch.autograd.grad(out.sum(), inter, create_graph=True)
    norm = torch.sqrt(g.pow(2).sum(1))
    return ((norm - 1) ** 2).mean()
n = 0
for it in range(5):
    for k in range(5):
        real = torch.randn(8, 3); fake = G(torch.randn(8, 4)).detach()
        loss = C(fake).mean() - C(real).mean() + 10 * gp(real, fake, it == 2 and k == 3)
        oc.zero_grad(); loss.backward(); oc.step(); n += 1
    gl = -C(G(torch.randn(8, 4))).mean()
    og.zero_grad(); gl.backward(); og.step()
    print(it, loss.item(), gl.item())
