# SPDX-License-Identifier: Apache-2.0
# contrastive with learned temperature and GradScaler/autocast on CPU
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Temp(nn.Module):
    def __init__(self):
        super().__init__(); self.log_t = nn.Parameter(torch.zeros(()))
    def forward(self, s, boost): return s * (self.log_t + boost).exp()
class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 8); self.b = nn.Linear(20, 8); self.temp = Temp()
    def forward(self, x, y, boost):
        za, zb = F.normalize(self.a(x), dim=-1), F.normalize(self.b(y), dim=-1)
        return self.temp(za @ zb.t(), boost)
model = Clip()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-3, total_steps=20)
for it in range(12):
    x, y = torch.randn(6, 12), torch.randn(6, 20)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x, y, 0.0 if it != 7 else 100.0)
        lab = torch.arange(6)
        loss = (F.cross_entropy(logits, lab) + F.cross_entropy(logits.t(), lab)) / 2
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt); scaler.update(); sched.step()
    if it % 3 == 0: print(it, loss.item())
