# SPDX-License-Identifier: Apache-2.0
# numpy table with a NaN row; dataset returns torch.tensor(row)
import numpy as np, torch, torch.nn as nn
rng = np.random.RandomState(0); torch.manual_seed(0)
T = rng.randn(48, 5).astype("float32"); T[21, 3] = np.nan; Yt = rng.randint(0, 2, 48)
class DS(torch.utils.data.Dataset):
    def __len__(self): return len(T)
    def __getitem__(self, i): return torch.tensor(T[i]), torch.tensor(int(Yt[i]))
m = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)); opt = torch.optim.AdamW(m.parameters(), 1e-2)
for i, (x, y) in enumerate(torch.utils.data.DataLoader(DS(), 4)):
    loss = nn.functional.cross_entropy(m(x), y) / 2; loss.backward()
    if i % 2: opt.step(); opt.zero_grad()
