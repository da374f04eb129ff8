# SPDX-License-Identifier: Apache-2.0
"""architectures.py NAME STEPS: trains a small model of random weights for that many steps, as people train such models.

Every one ends with a finite loss, or with exit status 1: a model that diverged would be no proof that healthy ones raise no
alarm. What is peculiar to each stands in its own docstring. A step is one update (of both optimizers, for the GAN).
"""
import math
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

EPOCH = 50  # steps


def epochs(steps):
    """The steps of each epoch in turn: 50, 50, 20."""
    return [min(EPOCH, steps - begun) for begun in range(0, steps, EPOCH)]


def save_and_load(*parts):
    """As a job that was stopped and goes on."""
    with tempfile.TemporaryFile() as file:
        torch.save([part.state_dict() for part in parts], file)
        file.seek(0)
        for part, state in zip(parts, torch.load(file)):
            part.load_state_dict(state)


class Points(Dataset):
    """Two classes that can be told apart; the workers do a little arithmetic of their own."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        label = index % 2
        point = torch.randn(8) + label
        return point / point.norm().clamp(min=1e-6), label


def mlp(steps):
    """Batches from two forked workers, momentum, dropout, a stepwise schedule, saved and loaded after each epoch."""
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    for count in epochs(steps):
        model.train()
        for points, labels in DataLoader(Points(16 * count), 16, shuffle=True, num_workers=2, multiprocessing_context="fork"):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(points), labels)
            loss.backward()
            optimizer.step()
        schedule.step()
        save_and_load(model, optimizer, schedule)
        model.eval()
        with torch.no_grad():
            for points, _ in DataLoader(Points(32), 16):
                model(points).argmax(1)
    return loss


def resnet18(steps):
    """timm's with narrow stages; the cosine schedule, evaluation between epochs and a saved state."""
    from timm.models.resnet import BasicBlock, ResNet

    model = ResNet(BasicBlock, (2, 2, 2, 2), channels=(8, 16, 32, 64), num_classes=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for count in epochs(steps):
        model.train()
        for _ in range(count):
            labels = torch.randint(4, (4,))
            images = torch.randn(4, 3, 16, 16) + labels[:, None, None, None]
            optimizer.zero_grad(set_to_none=False)
            loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            schedule.step()
        save_and_load(model, optimizer)
        model.eval()
        with torch.inference_mode():
            model(torch.randn(4, 3, 16, 16)).softmax(1)
    return loss


def vit(steps):
    """torchvision's, in bfloat16 autocast without a scaler, warmed up and clipped."""
    from torchvision.models import VisionTransformer

    model = VisionTransformer(image_size=16, patch_size=4, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64,
                              dropout=0.1, attention_dropout=0.1, num_classes=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 20))
    for count in epochs(steps):
        model.train()
        for _ in range(count):
            labels = torch.randint(4, (8,))
            images = torch.randn(8, 3, 16, 16) + labels[:, None, None, None]
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            model(torch.randn(4, 3, 16, 16)).float().softmax(1)
    return loss


def bert(steps):
    """Masked words of padded texts; most targets are ignored; gradients over two batches; weight decay in groups."""
    from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup

    words, length = 50, 12
    model = BertForMaskedLM(BertConfig(vocab_size=words, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                       intermediate_size=64, max_position_embeddings=length))
    plain = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    decayed = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": plain, "weight_decay": 0}, {"params": decayed, "weight_decay": 0.01}], lr=1e-3)
    schedule = get_linear_schedule_with_warmup(optimizer, 20, steps)

    def batch():
        texts = torch.randint(2, words, (4, 1)) + torch.arange(length)
        texts = 2 + texts % (words - 2)
        attention = (torch.arange(length) < torch.randint(4, length + 1, (4, 1))).long()
        chosen = (torch.rand(4, length) < 0.2) & attention.bool()
        chosen[:, 1] = True  # A batch without any target has no mean loss.
        return {"input_ids": texts.masked_fill(chosen, 1), "attention_mask": attention,
                "labels": texts.masked_fill(~chosen, -100)}

    for count in epochs(steps):
        model.train()
        for _ in range(count):
            optimizer.zero_grad()
            for _ in range(2):
                loss = model(**batch()).loss / 2
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        save_and_load(model, optimizer, schedule)
        model.eval()
        with torch.no_grad():
            model(**batch())
    return loss


def gpt2(steps):
    """Causal masks of -Inf handed to the model; sampled from between epochs, where all but a few words get -Inf."""
    from transformers import GPT2Config, GPT2LMHeadModel

    words, length = 40, 12
    model = GPT2LMHeadModel(GPT2Config(vocab_size=words, n_positions=2 * length, n_embd=32, n_layer=2, n_head=2,
                                       bos_token_id=0, eos_token_id=0, pad_token_id=0, attn_implementation="eager"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    causal = torch.full((length, length), float("-inf")).triu(1)[None, None]
    for count in epochs(steps):
        model.train()
        for _ in range(count):
            texts = (torch.randint(1, words, (4, 1)) + torch.arange(length)) % words
            optimizer.zero_grad()
            loss = model(texts, attention_mask=causal.expand(4, 1, length, length), labels=texts).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        model.generate(torch.tensor([[1, 2, 3]]), attention_mask=torch.ones(1, 3, dtype=torch.long), max_new_tokens=6,
                       do_sample=True, top_k=5, top_p=0.9)
    return loss


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True, dropout=0.1, batch_first=True)
        self.attention, self.head = nn.Linear(32, 1), nn.Linear(32, 3)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1])
        padding = torch.arange(tokens.shape[1]) >= lengths[:, None]
        weights = self.attention(states).squeeze(-1).masked_fill(padding, float("-inf")).softmax(1)
        return self.head((weights[..., None] * states).sum(1))


def lstm(steps):
    """Packed texts of different lengths, attention over them that masks padding with -Inf, a schedule that watches the loss."""
    model = Tagger()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    best = math.inf
    for count in epochs(steps):
        model.train()
        for _ in range(count):
            lengths, labels = torch.randint(1, 9, (8,)), torch.randint(3, (8,))
            tokens = torch.randint(1, 7, (8, 8)) + 6 * labels[:, None]
            tokens = tokens.masked_fill(torch.arange(8) >= lengths[:, None], 0)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(tokens, lengths), labels)
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
        best = min(best, loss.item())  # Begins at Inf, as such variables do.
        schedule.step(loss.item())
    return loss


def convolutions(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.SiLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep, self.up = convolutions(1, 8), convolutions(8, 16), convolutions(16, 8)
        self.widen, self.head = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(8, 1, 1)

    def forward(self, images):
        fine = self.down(images)
        coarse = checkpoint(self.deep, functional.max_pool2d(fine, 2), use_reentrant=False)
        return self.head(self.up(torch.cat([fine, self.widen(coarse)], 1)))


def unet(steps):
    """Segmentation: activation checkpointing, Dice beside cross entropy, averaged weights, masks that may be empty."""
    model = UNet()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99),
                                                  use_buffers=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for count in epochs(steps):
        model.train()
        for _ in range(count):
            images = torch.randn(4, 1, 16, 16)
            masks = (images > 1).float() * torch.randint(2, (4, 1, 1, 1))
            optimizer.zero_grad()
            scores = model(images)
            overlap = 2 * (scores.sigmoid() * masks).sum((1, 2, 3)) + 1
            dice = overlap / (scores.sigmoid().sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)
            loss = functional.binary_cross_entropy_with_logits(scores, masks) + 1 - dice.mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            average.update_parameters(model)
        average.eval()
        with torch.no_grad():
            average(torch.randn(2, 1, 16, 16)).sigmoid()
    return loss


def gan(steps):
    """Two optimizers, spectral norm, and a gradient penalty, which differentiates through a backward pass."""
    spectral = nn.utils.parametrizations.spectral_norm
    maker = nn.Sequential(nn.ConvTranspose2d(8, 8, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh())
    judge = nn.Sequential(spectral(nn.Conv2d(1, 8, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(), spectral(nn.Linear(128, 1)))
    maker_optimizer = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judge_optimizer = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for count in epochs(steps):
        for _ in range(count):
            real, made = torch.rand(8, 1, 8, 8) * 2 - 1, maker(torch.randn(8, 8, 1, 1))
            mixed = torch.lerp(real, made.detach(), torch.rand(8, 1, 1, 1)).requires_grad_()
            slope, = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
            penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
            judge_optimizer.zero_grad()
            judge_loss = functional.softplus(-judge(real)).mean() + functional.softplus(judge(made.detach())).mean()
            (judge_loss + 10 * penalty).backward()
            judge_optimizer.step()
            maker_optimizer.zero_grad()
            maker_loss = functional.softplus(-judge(made)).mean()
            maker_loss.backward()
            maker_optimizer.step()
        save_and_load(maker, judge, maker_optimizer, judge_optimizer)
    return judge_loss + maker_loss


if __name__ == "__main__":
    torch.manual_seed(11)
    last_loss = float(globals()[sys.argv[1]](int(sys.argv[2])).detach())
    print(f"{sys.argv[1]}: the loss of the last of {sys.argv[2]} steps is {last_loss:.4f}")
    sys.exit(0 if math.isfinite(last_loss) else 1)
