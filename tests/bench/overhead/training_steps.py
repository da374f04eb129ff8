# SPDX-License-Identifier: Apache-2.0
"""The training steps whose cost is measured: from half a millisecond of small ops to a fraction of a second of large ones."""
import dataclasses
import importlib.util
import typing

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class TrainingStep:
    description: str
    model: nn.Module
    run: typing.Callable[[], None]
    optimizer: torch.optim.Optimizer
    loss_of: typing.Callable[[], torch.Tensor]


def _training_step(description, model, optimizer, loss_of):
    def run():
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
        optimizer.step()
    return TrainingStep(description, model.train(), run, optimizer, loss_of)


def mlp():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    inputs, targets = torch.randn(64, 64), torch.randint(0, 10, (64,))
    return _training_step("MLP 64-256-256-10, batch 64, SGD", model, torch.optim.SGD(model.parameters(), lr=1e-3),
                          lambda: F.cross_entropy(model(inputs), targets))


class _Attention(nn.Module):
    def __init__(self, width, heads, causal, dropout):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, mask=None):
        def split(y):
            return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.query(x)), split(self.key(x)), split(self.value(x)), attn_mask=mask,
                                           dropout_p=self.dropout if self.training else 0.0, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


class _BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = _Attention(width, heads, causal=False, dropout=0.1)
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask):
        x = self.norm_attention(x + self.dropout(self.attention(x, mask)))
        return self.norm_feed(x + self.dropout(self.narrow(F.gelu(self.widen(x)))))


class _Bert(nn.Module):
    """Post-norm encoder with a masked-language head, as BERT has it."""

    def __init__(self, vocabulary=2000, width=128, heads=4, layers=4, length=64):
        super().__init__()
        self.word, self.position, self.segment = nn.Embedding(vocabulary, width), nn.Embedding(length, width), nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        self.layers = nn.ModuleList(_BertLayer(width, heads) for _ in range(layers))
        self.transform, self.norm_head, self.head = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens, segments, present):
        mask = torch.zeros(present.shape).masked_fill(~present, torch.finfo(torch.float32).min)[:, None, None, :]
        x = self.word(tokens) + self.position(torch.arange(tokens.shape[1])) + self.segment(segments)
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm_head(F.gelu(self.transform(x))))


def bert():
    model = _Bert()
    tokens, targets = torch.randint(0, 2000, (8, 64)), torch.randint(0, 2000, (8, 64))
    segments, present = torch.zeros_like(tokens), torch.arange(64)[None] < torch.randint(40, 65, (8, 1))
    return _training_step("BERT, 4 layers, width 128, batch 8x64, AdamW", model, torch.optim.AdamW(model.parameters(), lr=1e-4),
                          lambda: F.cross_entropy(model(tokens, segments, present).flatten(0, 1), targets.flatten()))


def resnet():
    if not importlib.util.find_spec("torchvision"):
        return None
    from torchvision.models import resnet18
    model = resnet18()
    inputs, targets = torch.randn(8, 3, 112, 112), torch.randint(0, 1000, (8,))
    return _training_step("ResNet-18, batch 8 of 112x112, SGD with momentum", model,
                          torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
                          lambda: F.cross_entropy(model(inputs), targets))


class _GptLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = _Attention(width, heads, causal=True, dropout=0.0)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm_attention(x))
        return x + self.feed(self.norm_feed(x))


class _Gpt(nn.Module):
    def __init__(self, vocabulary=2000, width=256, heads=4, layers=4, length=128):
        super().__init__()
        self.word, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(_GptLayer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.word(tokens) + self.position(torch.arange(tokens.shape[1])))))


def gpt():
    model = _Gpt()
    tokens = torch.randint(0, 2000, (8, 129))
    return _training_step("GPT, 4 layers, width 256, batch 8x128, AdamW", model, torch.optim.AdamW(model.parameters(), lr=1e-4),
                          lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()))




def _storm(step, spoiled):
    """Every op from `spoiled` on computes NaN, forward and backward, in every step; a guard keeps the update away, as people
    write it and as GradScaler does, so that the parameters stay good and every op has to be looked at."""
    optimizer, loss_of = step.optimizer, step.loss_of
    spoiled.register_forward_pre_hook(lambda module, arguments: (arguments[0] + torch.log(-torch.ones(1)), *arguments[1:]))

    def run():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        if loss.isfinite():
            optimizer.step()
    return dataclasses.replace(step, description="NaN storm: " + step.description, run=run)


def mlp_storm():
    step = mlp()
    return _storm(step, step.model)


def bert_storm():
    step = bert()
    return _storm(step, step.model.norm)


def gpt_storm():
    step = gpt()
    return _storm(step, step.model.layers)


def gpt_poisoned():
    """The update has taken the NaN into every parameter."""
    step = gpt()
    with torch.no_grad():
        step.model.position.weight.copy_(torch.log(-torch.ones(1)))
    return dataclasses.replace(step, description="NaN in all parameters: " + step.description)


STEPS = {"mlp": mlp, "bert": bert, "resnet": resnet, "gpt": gpt, "mlp_storm": mlp_storm, "bert_storm": bert_storm,
         "gpt_storm": gpt_storm, "gpt_poisoned": gpt_poisoned}
