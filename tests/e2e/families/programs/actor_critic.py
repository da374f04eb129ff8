# SPDX-License-Identifier: Apache-2.0
# actor critic with replay: advantage normalised over a batch of one -> std of one element is NaN
import random, collections, torch, torch.nn as nn
torch.manual_seed(0); random.seed(0)
class AC(nn.Module):
    def __init__(self):
        super().__init__(); self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh()); self.pi = nn.Linear(32, 2); self.v = nn.Linear(32, 1)
    def forward(self, s):
        h = self.body(s); return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)
net = AC(); opt = torch.optim.RMSprop(net.parameters(), lr=7e-4)
mem = collections.deque(maxlen=100)
def env_step(s, a): return torch.randn(4), random.random(), random.random() < 0.2
s = torch.randn(4)
upd = 0
for ep in range(10):
    n = 1 if ep == 6 else 8
    traj = []
    for _ in range(n):
        with torch.no_grad(): dist, v = net(s)
        a = dist.sample(); s2, r, d = env_step(s, a)
        traj.append((s, a, r, d)); mem.append((s, a, r)); s = s2
    R, rets = 0.0, []
    for (_, _, r, d) in reversed(traj):
        R = r + 0.99 * R * (1 - d); rets.insert(0, R)
    S = torch.stack([t[0] for t in traj]); A = torch.stack([t[1] for t in traj]); Rt = torch.tensor(rets)
    dist, v = net(S)
    adv = Rt - v.detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    loss = -(dist.log_prob(A) * adv).mean() + 0.5 * (v - Rt).pow(2).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step(); upd += 1
    if ep == 6: break
print(upd)
