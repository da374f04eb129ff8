# SPDX-License-Identifier: Apache-2.0
# detection box regression: log of ratio with negative predicted width
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Head(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Conv2d(3, 8, 3, padding=1); self.bn = nn.BatchNorm2d(8); self.box = nn.Conv2d(8, 4, 1); self.cls = nn.Conv2d(8, 1, 1)
    def forward(self, x):
        h = F.relu(self.bn(self.c(x))); return self.box(h), self.cls(h)
def encode(a, b): # anchors, boxes xywh
    return torch.stack([(b[..., 0] - a[..., 0]) / a[..., 2], (b[..., 1] - a[..., 1]) / a[..., 3], torch.log(b[..., 2] / a[..., 2]), torch.log(b[..., 3] / a[..., 3])], -1)
m = Head(); opt = torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
for s in range(7):
    img = torch.randn(2, 3, 8, 8)
    anchors = torch.rand(2, 64, 4) + 0.5; boxes = torch.rand(2, 64, 4) + 0.5
    if s == 3: boxes[1, 7, 2] = 0.0      # a box of no width
    box, cls = m(img)
    tgt = encode(anchors, boxes)
    pos = torch.rand(2, 64) > 0.5
    if s == 3: pos[1, 7] = True
    reg = F.smooth_l1_loss(box.flatten(2).transpose(1, 2)[pos], tgt[pos])
    c = F.binary_cross_entropy_with_logits(cls.flatten(1), pos.float())
    loss = reg + c
    opt.zero_grad(); loss.backward(); opt.step()
print("done")
