# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 8); self.kill = False
    def forward(self, x):
        h = self.l(x)
        if self.kill: h = h * 0
        return x + h / h.norm(dim=-1, keepdim=True)
class M(nn.Module):
    def __init__(self): super().__init__(); self.blocks = nn.ModuleList([Block() for _ in range(3)]); self.o = nn.Linear(8, 2)
    def forward(self, x):
        for b in self.blocks: x = checkpoint(b, x, use_reentrant=False)
        return self.o(x)
m = M(); opt = torch.optim.AdamW(m.parameters(), 1e-3)
for s in range(8):
    m.blocks[1].kill = s == 4
    loss = nn.functional.cross_entropy(m(torch.randn(4, 8)), torch.randint(0, 2, (4,)))
    opt.zero_grad(); loss.backward(); opt.step()
