# SPDX-License-Identifier: Apache-2.0
# classifier, sanity validation before training, grad accumulation, cosine schedule with warmup, ema
import copy, math, random
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split
torch.manual_seed(1)

class Head(nn.Module):
    def __init__(self, d, c):
        super().__init__()
        self.proj = nn.Linear(d, c)
    def forward(self, h):
        p = F.softmax(self.proj(h), dim=-1)
        return torch.log(p)          # underflow of softmax -> log(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))
        self.head = Head(16, 4)
    def forward(self, x):
        return self.head(self.body(x))

class EMA:
    def __init__(self, model, decay=0.9):
        self.shadow = copy.deepcopy(model).eval()
        self.decay = decay
    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)

def make_data():
    x = torch.randn(160, 10); y = torch.randint(0, 4, (160,))
    return random_split(TensorDataset(x, y), [128, 32], generator=torch.Generator().manual_seed(0))

def evaluate(model, loader):
    model.eval()
    total = correct = 0; loss_sum = 0.0
    with torch.no_grad():
        for x, y in loader:
            logp = model(x)
            loss_sum += F.nll_loss(logp, y, reduction="sum").item()
            correct += (logp.argmax(-1) == y).sum().item()
            total += y.numel()
    model.train()
    return loss_sum / total, correct / total

def main():
    train, val = make_data()
    train_loader = DataLoader(train, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))
    val_loader = DataLoader(val, batch_size=8)
    model = Model()
    ema = EMA(model)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warm, total = 4, 40
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: s / warm if s < warm else 0.5 * (1 + math.cos(math.pi * (s - warm) / (total - warm))))
    print("sanity", evaluate(model, val_loader))
    it = 0
    for epoch in range(3):
        for x, y in train_loader:
            if opt.state and it == 13:
                with torch.no_grad():
                    model.head.proj.weight.mul_(2e3)     # a "reset" gone wrong: logits get huge
            loss = F.nll_loss(model(x), y) / 2
            loss.backward()
            it += 1
            if it % 2 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step(); sched.step(); opt.zero_grad(set_to_none=True)
                ema.update(model)
        print(epoch, evaluate(model, val_loader), evaluate(ema.shadow, val_loader))
main()
