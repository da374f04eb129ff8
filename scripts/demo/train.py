# SPDX-License-Identifier: Apache-2.0
"""Trains a small Transformer to continue lines of verse, character by character. An ordinary script: it knows nothing of nanwatch."""
import pathlib
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

BATCH, WIDTH, HEADS, LAYERS, EPOCHS = 8, 64, 4, 2, 2
PAD = 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.norm_feed = nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, future, padding):
        y = self.norm_attention(x)
        y, _ = self.attention(y, y, y, attn_mask=future, key_padding_mask=padding)
        x = x + y
        return x + self.feed(self.norm_feed(x))


class Poet(nn.Module):
    def __init__(self, characters, length_max):
        super().__init__()
        self.token = nn.Embedding(characters, WIDTH)
        self.position = nn.Embedding(length_max, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, characters):
        length = characters.shape[1]
        padding = characters == PAD
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.token(characters) + self.position(torch.arange(length))
        for block in self.blocks:
            x = block(x, future, padding)
        return self.head(self.norm(x))


def read_lines(path):
    """The lines of the text as tensors of character numbers, and how many numbers there are."""
    text = path.read_text()
    number = {c: i + 1 for i, c in enumerate(sorted(set(text) - {"\n"}))}
    lines = [torch.tensor([number[c] for c in line], dtype=torch.long) for line in text.split("\n")]
    return lines, len(number) + 1


def batches(lines):
    """Every line once, in random order; short ones are filled up with PAD."""
    order = random.sample(range(len(lines)), len(lines))
    for start in range(0, len(order), BATCH):
        yield pad_sequence([lines[i] for i in order[start:start + BATCH]], batch_first=True, padding_value=PAD)


def main():
    random.seed(0)
    torch.manual_seed(0)
    lines, characters = read_lines(pathlib.Path(__file__).with_name("verses.txt"))
    model = Poet(characters, max(len(line) for line in lines))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(EPOCHS):
        for batch in batches(lines):
            inputs, targets = batch[:, :-1], batch[:, 1:]
            logits = model(inputs)
            loss = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
            real = targets != PAD
            loss = (loss * real).sum() / real.sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch}  step {step:4d}  loss {loss.item():.4f}", flush=True)
            step += 1


main()
