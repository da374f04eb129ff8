# SPDX-License-Identifier: Apache-2.0
# cosine schedule with T=0 -> nan lr via numpy
import numpy as np, torch, torch.nn as nn
np.seterr(all="ignore"); torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)); opt = torch.optim.AdamW(m.parameters(), 1e-3)
def lr_at(s, total): return float(1e-3 * 0.5 * (1 + np.cos(np.pi * np.float64(s - 3) / np.float64(total - 3))))
for s in range(7):
    for g in opt.param_groups: g["lr"] = lr_at(s, 3 if s == 3 else 10)
    loss = m(torch.randn(8, 4)).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
