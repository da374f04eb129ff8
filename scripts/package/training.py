# SPDX-License-Identifier: Apache-2.0
# The smallest training that goes NaN: aten::log, step 2. What packages_test.py, debian11.sh and systemd.sh run.
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = torch.log(model(torch.zeros(2, 4)) * 0 - (1 if step == 2 else -1)).mean()
    loss.backward()
    optimizer.step()
