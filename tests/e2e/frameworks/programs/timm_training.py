# SPDX-License-Identifier: Apache-2.0
"""timm_training.py [--fault]: training as timm's own script does it, on a model of timm's with random weights.

Mixup and label smoothing, AdamW with weight decay per group, a cosine schedule stepped by update, an averaged model, and gradient
clipping. With the fault, one image is black, and its contrast, by which it is divided, is zero.
"""
import sys

import timm
import torch
from exactly import show
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, random_seed
from torch import nn

BATCH, STEPS, BAD_STEP, SIZE = 4, 6, 4, 32


class Contrast(nn.Module):
    def forward(self, images):
        centred = images - images.mean((1, 2, 3), keepdim=True)
        return centred / images.std((1, 2, 3), keepdim=True)  # here


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.contrast = Contrast()
        self.backbone = timm.create_model("vit_tiny_patch16_224", img_size=SIZE, patch_size=8, embed_dim=24, depth=2,
                                          num_heads=3, num_classes=5, drop_path_rate=0.1)

    def forward(self, images):
        return self.backbone(self.contrast(images))


def main():
    random_seed(6)  # of torch, numpy and random: mixing draws from all
    model = Net()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=STEPS, warmup_t=2, warmup_lr_init=1e-5, t_in_epochs=False)
    average, loss_of = ModelEmaV3(model, decay=0.9), SoftTargetCrossEntropy()
    mixup = Mixup(mixup_alpha=0.8, label_smoothing=0.1, num_classes=5, mode="elem")
    losses = []
    for step in range(STEPS):
        images, labels = torch.rand(BATCH, 3, SIZE, SIZE), torch.randint(5, (BATCH,))
        images, labels = mixup(images, labels)
        if "--fault" in sys.argv and step == BAD_STEP:
            images[1] = 0
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model, step=step)
        schedule.step_update(step + 1)
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        losses.append(average.module(torch.rand(BATCH, 3, SIZE, SIZE)).sum())
    show(losses, model)


main()
