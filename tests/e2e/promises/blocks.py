# SPDX-License-Identifier: Apache-2.0
"""A model whose results are of 64 KB: more than a test lets level sampled read in full, or a GPU hold."""

# {fault}: a statement of the second block's forward, for the steps that are faulty.
MODEL = """\
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(128, 128), torch.nn.Linear(128, 128)
        self.norm = torch.nn.LayerNorm(128)
    def forward(self, x, faulty):
        hidden = torch.nn.functional.gelu(self.a(x))
        if faulty:
            {fault}
        return self.norm(x + self.b(hidden))
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(3)])
    def forward(self, x, faulty):
        for i, block in enumerate(self.blocks):
            x = block(x, faulty and i == 1)
        return x
"""
