# SPDX-License-Identifier: Apache-2.0
"""A small training of twelve steps, or so many, and two faults that only its gradients or its update show."""
OPTIMIZERS = {"sgd": "torch.optim.SGD(model.parameters(), lr=1e-2)",
              "adam": "torch.optim.Adam(model.parameters(), lr=1e-2)",
              "fused": "torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)",
              "foreach": "torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)"}
BAD_GRADIENT = "if i == 7: model[0].weight.grad[2, 3] = float('nan')"
BAD_UPDATE = "if i == 7: optimizer.param_groups[0]['lr'] = float('inf')"
TEXT = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)){to_device}
optimizer = {optimizer}
for i in range({steps}):
    optimizer.zero_grad()
    x = torch.randn(6, 8){to_device}
    loss = (model(x) - x[:, :4]).square().mean()
    loss.backward()
    {fault}
    optimizer.step()
{indent}print(loss.item().hex())
"""


def program_text(optimizer, fault="", gpu=False, steps=12):
    """Prints each loss; on a GPU, which nothing here waits for, the last."""
    return TEXT.format(optimizer=OPTIMIZERS[optimizer], fault=fault, steps=steps, to_device=".cuda()" if gpu else "",
                       indent="" if gpu else "    ")
