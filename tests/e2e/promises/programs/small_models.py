# SPDX-License-Identifier: Apache-2.0
"""small_models.py NAME...: trains the named models one after the other, and prints every loss and the final weights exactly.

With `nan_` before its name, a model's second batch makes a NaN.
"""
import hashlib
import sys

import torch
from torch import nn

STEPS = 3


def show(name, losses, *models):
    digest = hashlib.sha256()
    for model in models:
        for value in model.state_dict().values():
            digest.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    print(name, " ".join(float(loss.detach()).hex() for loss in losses), digest.hexdigest(), flush=True)


def train(name, model, batches, loss_of):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    show(name, losses, model)


def classify(model, inputs, targets):
    return nn.functional.cross_entropy(model(inputs), targets)


def mlp():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    train("mlp", model, [(torch.randn(8, 8), torch.randint(4, (8,))) for _ in range(STEPS)], classify)


def nan_mlp():
    class Logarithm(nn.Module):
        def forward(self, inputs):
            return torch.log(inputs)

    model = nn.Sequential(Logarithm(), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    batches = [(torch.rand(8, 8) + 0.5, torch.randint(4, (8,))) for _ in range(STEPS)]
    batches[1][0][3, 5] = -1.0
    train("nan_mlp", model, batches, classify)


def resnet18():
    import torchvision

    model = torchvision.models.resnet18(num_classes=4)
    train("resnet18", model, [(torch.randn(2, 3, 32, 32), torch.randint(4, (2,))) for _ in range(2)], classify)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens, padding=None):
        return self.head(self.encoder(self.embedding(tokens), src_key_padding_mask=padding).mean(1))


def transformer():
    batches = [(torch.randint(11, (4, 6)), torch.randint(4, (4,))) for _ in range(STEPS)]
    train("transformer", Tokens(), batches, classify)


def lstm():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTM(6, 8, num_layers=2, batch_first=True), nn.Linear(8, 4)

        def forward(self, inputs):
            return self.head(self.cell(inputs)[0][:, -1])

    train("lstm", Recurrent(), [(torch.randn(4, 5, 6), torch.randint(4, (4,))) for _ in range(STEPS)], classify)


def gan():
    maker = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 5))
    judge = nn.Sequential(nn.Linear(5, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    maker_optimizer = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.9))
    judge_optimizer = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.9))
    loss_of, ones, zeros = nn.BCEWithLogitsLoss(), torch.ones(4, 1), torch.zeros(4, 1)
    losses = []
    for _ in range(STEPS):
        judge_optimizer.zero_grad()
        made = maker(torch.randn(4, 3))
        judge_loss = loss_of(judge(torch.randn(4, 5)), ones) + loss_of(judge(made.detach()), zeros)
        judge_loss.backward()
        judge_optimizer.step()
        maker_optimizer.zero_grad()
        maker_loss = loss_of(judge(made), ones)
        maker_loss.backward()
        maker_optimizer.step()
        losses += [judge_loss, maker_loss]
    show("gan", losses, maker, judge)


def compiled():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    batches = [(torch.randn(8, 8), torch.randint(4, (8,))) for _ in range(STEPS)]
    compiled_model = torch.compile(model, backend="inductor", fullgraph=True)
    train("compiled", model, batches, lambda _, *batch: classify(compiled_model, *batch))


def loader():
    """Batches made by two forked workers, which do a little arithmetic of their own."""
    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, index):
            return torch.sqrt(torch.arange(8.0) + index), index % 4

    batches = torch.utils.data.DataLoader(Samples(), batch_size=4, shuffle=True, num_workers=2,
                                          multiprocessing_context="fork")
    train("loader", nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), batches, classify)


for chosen in sys.argv[1:]:
    torch.manual_seed(20)
    globals()[chosen]()
