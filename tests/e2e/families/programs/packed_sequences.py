# SPDX-License-Identifier: Apache-2.0
# mean pooling by true length; one empty after filtering
import torch, torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
torch.manual_seed(0)
class Cls(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Embedding(30, 8); self.l = nn.LSTM(8, 8, batch_first=True, bidirectional=True); self.o = nn.Linear(16, 3)
    def forward(self, seqs, keep):
        lens = torch.tensor([len(s) for s in seqs])
        x = self.e(pad_sequence(seqs, batch_first=True))
        h, _ = self.l(pack_padded_sequence(x, lens, batch_first=True, enforce_sorted=False))
        h, _ = pad_packed_sequence(h, batch_first=True)
        m = (torch.arange(h.size(1))[None] < keep[:, None]).unsqueeze(-1)
        pooled = (h * m).sum(1) / keep[:, None]
        return self.o(pooled)
m = Cls(); opt = torch.optim.Adam(m.parameters(), 1e-3)
for s in range(8):
    seqs = [torch.randint(0, 30, (n,)) for n in (7, 5, 3, 6)]
    keep = torch.tensor([6, 4, 2, 5]).float()
    if s == 4: keep[2] = 0
    loss = nn.functional.cross_entropy(m(seqs, keep), torch.randint(0, 3, (4,)))
    opt.zero_grad(); loss.backward(); opt.step()
    if s % 3 == 2: print(s, loss.item())
