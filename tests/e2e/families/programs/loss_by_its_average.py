# SPDX-License-Identifier: Apache-2.0
# loss list averaged as tensor; the bad value is used as weight the next step
import torch, torch.nn as nn, numpy as np
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)); opt = torch.optim.Adam(m.parameters(), 1e-2)
losses = []
for s in range(9):
    x, y = torch.randn(6, 5), torch.randn(6, 1)
    err = (m(x) - y).pow(2).mean()
    base = torch.tensor(losses[-3:]).mean() if losses else torch.tensor(1.0)
    loss = err / base
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(torch.log(err.detach() - (1e3 if s == 5 else -1)).item())
