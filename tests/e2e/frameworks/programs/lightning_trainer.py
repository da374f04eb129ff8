# SPDX-License-Identifier: Apache-2.0
"""lightning_trainer.py [--precision P] [--fault]: a LightningModule in the Trainer.

It has validation, gradient clipping, a learning rate schedule and checkpoints. With the fault, one sample is empty: its counts
sum to zero, and the layer that makes shares of them divides by that.
"""
import argparse
import logging
import warnings

import lightning
import torch
from exactly import show
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
BATCH, BATCHES, BAD_BATCH = 4, 6, 4


class Shares(nn.Module):
    def forward(self, counts):
        return counts / counts.sum(1, keepdim=True)  # here


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8, bias=False), Shares(), nn.Linear(8, 3)])

    def forward(self, counts):
        hidden = torch.relu(self.layers[0](counts))
        return self.layers[2](self.layers[1](hidden + counts.sum(1, keepdim=True)))


class Training(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Classifier()
        self.losses = []

    def training_step(self, batch, index):
        counts, labels = batch
        loss = nn.functional.cross_entropy(self.model(counts), labels)
        self.losses.append(loss.detach())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        counts, labels = batch
        self.log("validation", nn.functional.cross_entropy(self.model(counts), labels))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--fault", action="store_true")
    arguments = parser.parse_args()
    lightning.seed_everything(4, verbose=False)
    counts, labels = torch.randint(1, 9, (BATCH * BATCHES, 6)).float(), torch.randint(3, (BATCH * BATCHES,))
    if arguments.fault:
        counts[BATCH * BAD_BATCH + 1] = 0
    healthy = TensorDataset(counts[:BATCH], labels[:BATCH])
    training = Training()
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", precision=arguments.precision, gradient_clip_val=1.0,
                                logger=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(training, DataLoader(TensorDataset(counts, labels), BATCH), DataLoader(healthy, BATCH))
    show(training.losses, training)


main()
