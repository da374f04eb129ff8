# SPDX-License-Identifier: Apache-2.0
# ArcFace: cosine logits, zero embedding
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Arc(nn.Module):
    def __init__(self, d, c): super().__init__(); self.w = nn.Parameter(torch.randn(c, d))
    def forward(self, e, y):
        cos = (e / e.norm(dim=1, keepdim=True)) @ F.normalize(self.w).t()
        th = torch.acos(cos.clamp(-1 + 1e-7, 1 - 1e-7))
        return 16 * torch.cos(th + 0.2 * F.one_hot(y, cos.size(1)))
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU()); arc = Arc(8, 3)
opt = torch.optim.SGD([*net.parameters(), *arc.parameters()], 0.05, momentum=0.9, nesterov=True)
for s in range(8):
    x = torch.randn(6, 5)
    if s == 4:
        with torch.no_grad(): net[0].bias.fill_(-50)
    y = torch.randint(0, 3, (6,))
    loss = F.cross_entropy(arc(net(x), y), y)
    opt.zero_grad(); loss.backward(); opt.step()
