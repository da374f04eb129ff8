# SPDX-License-Identifier: Apache-2.0
"""The training steps whose cost on a GPU is asked: ResNet-50, GPT-2 124M, a small GPT and ViT-B/16, in torch alone."""
import contextlib
import dataclasses
import typing

import torch
from torch import nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != out:
            self.downsample = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        beside = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + beside)


class ResNet(nn.Module):
    def __init__(self, blocks=(3, 4, 6, 3), width=64, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        stages, inside = [], width
        for stage, count in enumerate(blocks):
            inner = width * 2 ** stage
            for block in range(count):
                stages.append(Bottleneck(inside, inner, 2 if stage and block == 0 else 1))
                inside = 4 * inner
        self.layers, self.avgpool, self.fc = nn.Sequential(*stages), nn.AdaptiveAvgPool2d(1), nn.Linear(inside, classes)

    def forward(self, x):
        x = self.layers(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(self.avgpool(x).flatten(1))


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (y.view(*y.shape[:2], self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, 2))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, causal, approximate):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, causal)
        self.norm2 = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary=50257, width=768, heads=12, layers=12, length=1024):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, True, "tanh") for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        # As GPT-2 begins: with torch's own N(0, 1) the tied head would have logits in the hundreds.
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


class Vit(nn.Module):
    def __init__(self, size=224, patch=16, width=768, heads=12, layers=12, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, False, "none") for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


@dataclasses.dataclass
class Step:
    description: str
    model: nn.Module
    run: typing.Callable[[], torch.Tensor]  # one training step; its loss


def _step(description, device, model, loss_of, optimizer_of, bf16):
    model = model.to(device).train()
    optimizer = optimizer_of(model.parameters())

    def run():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16) if bf16 else contextlib.nullcontext():
            loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss
    return Step(description, model, run)


def _adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def _images(count, size, device, classes=1000):
    return torch.randn(count, 3, size, size, device=device), torch.randint(0, classes, (count,), device=device)


def _resnet(device, tiny, bf16):
    model = ResNet((1, 1, 1, 1), 8) if tiny else ResNet()
    images, labels = _images(2, 32, device) if tiny else _images(128, 224, device)
    if bf16:
        model, images = model.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)
    name = "bf16 autocast, channels_last" if bf16 else "fp32"
    return _step(f"ResNet-50, batch 128 of 224x224, {name}, SGD with momentum", device, model,
                 lambda m: F.cross_entropy(m(images), labels), lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), bf16)


def resnet50_fp32(device, tiny):
    return _resnet(device, tiny, bf16=False)


def resnet50_bf16(device, tiny):
    return _resnet(device, tiny, bf16=True)


def gpt2(device, tiny):
    model = Gpt(64, 32, 2, 2, 16) if tiny else Gpt()
    tokens = torch.randint(0, 64, (2, 17), device=device) if tiny else torch.randint(0, 50257, (16, 1025), device=device)
    return _step("GPT-2 124M, batch 16 of 1024, bf16 autocast, SDPA, fused AdamW", device, model,
                 lambda m: F.cross_entropy(m(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()), _adamw, True)


def small_gpt(device, tiny):
    """So small that the GPU waits for the host."""
    model = Gpt(64, 32, 2, 2, 16) if tiny else Gpt(65, 384, 6, 6, 256)
    tokens = torch.randint(0, 64, (2, 17), device=device) if tiny else torch.randint(0, 65, (8, 257), device=device)
    return _step("GPT of 6 layers of 384, batch 8 of 256, bf16 autocast, SDPA, fused AdamW", device, model,
                 lambda m: F.cross_entropy(m(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()), _adamw, True)


def vit(device, tiny):
    model = Vit(32, 16, 32, 2, 2) if tiny else Vit()
    images, labels = _images(2, 32, device) if tiny else _images(64, 224, device)
    return _step("ViT-B/16, batch 64 of 224x224, bf16 autocast, fused AdamW", device, model,
                 lambda m: F.cross_entropy(m(images), labels), _adamw, True)


STEPS = {"resnet50_fp32": resnet50_fp32, "resnet50_bf16": resnet50_bf16, "gpt2": gpt2, "small_gpt": small_gpt, "vit": vit}
