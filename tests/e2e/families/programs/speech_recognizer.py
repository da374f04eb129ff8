# SPDX-License-Identifier: Apache-2.0
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class ASR(nn.Module):
    def __init__(self):
        super().__init__(); self.conv = nn.Conv1d(8, 16, 3, stride=2, padding=1); self.rnn = nn.GRU(16, 16, batch_first=True); self.out = nn.Linear(16, 6)
    def forward(self, x):
        h = F.relu(self.conv(x)).transpose(1, 2)
        h, _ = self.rnn(h)
        return F.log_softmax(self.out(h), -1).transpose(0, 1)
m = ASR(); opt = torch.optim.Adam(m.parameters(), 1e-3); crit = nn.CTCLoss(blank=0)
def batch(s):
    lens = torch.tensor([20, 18, 16]); tl = torch.tensor([3, 4, 2])
    if s == 5: tl = torch.tensor([3, 12, 2])     # longer than the frames of the sample
    x = torch.randn(3, 8, 20); tgt = torch.randint(1, 6, (int(tl.sum()),))
    return x, tgt, (lens + 1) // 2, tl
for s in range(9):
    x, tgt, il, tl = batch(s)
    lp = m(x)
    loss = crit(lp, tgt, il, tl)
    opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), 5.); opt.step()
    if s % 4 == 3:
        m.eval()
        with torch.no_grad(): print(s, [crit(m(x), tgt, il, tl).item() for _ in range(2)])
        m.train()
