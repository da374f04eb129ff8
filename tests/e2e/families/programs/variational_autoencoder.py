# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(20, 16); self.mu = nn.Linear(16, 4); self.lv = nn.Linear(16, 4)
        self.dec = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20))
    def reparam(self, mu, lv):
        return mu + torch.exp(0.5 * lv) * torch.randn_like(mu)
    def forward(self, x):
        h = F.relu(self.enc(x)); mu, lv = self.mu(h), self.lv(h)
        return self.dec(self.reparam(mu, lv)), mu, lv
def elbo(r, x, mu, lv, beta):
    rec = F.binary_cross_entropy_with_logits(r, x, reduction="sum") / x.size(0)
    kl = -0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp()) / x.size(0)
    return rec + beta * kl
m = VAE(); opt = torch.optim.Adam(m.parameters(), lr=1e-3)
def val():
    m.eval()
    with torch.no_grad():
        out = [elbo(*((lambda r, mu, lv: (r, v, mu, lv))(*m(v))), 1.0).item() for v in vals]
    m.train(); return sum(out) / len(out)
vals = [torch.rand(8, 20) for _ in range(3)]
i = 0
for ep in range(3):
    for b in range(5):
        x = torch.rand(8, 20)
        if i == 9: x = x * 1e6
        r, mu, lv = m(x)
        loss = elbo(r, x.clamp(0, 1), mu, lv, min(1, i / 10))
        opt.zero_grad(); loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 5.0)
        opt.step(); i += 1
    print(ep, loss.item(), val())
