# SPDX-License-Identifier: Apache-2.0
# DQN: reward built from a torch value read in numpy and stored in a replay as python floats
import random, torch, torch.nn as nn
from collections import deque
torch.manual_seed(0); random.seed(0)
q = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)); tgt = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)); tgt.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), 1e-3); mem = deque(maxlen=50)
def bonus(s, t):
    with torch.no_grad():
        v = q(s).max() - (1e3 if t == 10 else -1e3)
        return torch.log(v).item()
s = torch.randn(4); upd = 0
for t in range(40):
    a = int(q(s).argmax()) if random.random() > 0.3 else random.randrange(2)
    s2 = torch.randn(4); r = random.random() + 0.01 * bonus(s, t)
    mem.append((s, a, r, s2)); s = s2
    if len(mem) >= 8:
        b = random.sample(mem, 8)
        S = torch.stack([i[0] for i in b]); A = torch.tensor([i[1] for i in b]); R = torch.tensor([i[2] for i in b]); S2 = torch.stack([i[3] for i in b])
        with torch.no_grad(): y = R + 0.99 * tgt(S2).max(1)[0]
        loss = nn.functional.smooth_l1_loss(q(S).gather(1, A[:, None]).squeeze(1), y)
        opt.zero_grad(); loss.backward(); opt.step(); upd += 1
        if upd % 10 == 0: tgt.load_state_dict(q.state_dict())
