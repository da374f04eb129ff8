# SPDX-License-Identifier: Apache-2.0
# resume from a checkpoint whose second moment went negative through a bf16 round trip bug
import os, tempfile
import torch, torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.dec = nn.Linear(16, 3)
    def forward(self, x): return self.dec(self.enc(x))
def save(path, model, opt, step):
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, path)
def train(model, opt, start, n, data):
    for s in range(start, start + n):
        x, y = data[s % len(data)]
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
        print(s, loss.item())
data = [(torch.randn(4, 8), torch.randn(4, 3)) for _ in range(7)]
path = os.path.join(tempfile.mkdtemp(), "ck.pt")
m = Net(); o = torch.optim.Adam(m.parameters(), lr=1e-2)
train(m, o, 0, 5, data)
save(path, m, o, 5)
ck = torch.load(path)
m2 = Net(); m2.load_state_dict(ck["model"])
for st in ck["opt"]["state"].values():
    st["exp_avg_sq"] = -st["exp_avg_sq"]      # wrong sign
o.load_state_dict(ck["opt"])
m.load_state_dict(ck["model"])
train(m, o, 5, 5, data)
