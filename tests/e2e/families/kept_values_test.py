# SPDX-License-Identifier: Apache-2.0
"""A value that the program keeps for many steps, and then stacks into a batch: a memory of transitions, a list of rewards."""
from watched_program import WatchedProgramTest, main

TRAINING = """
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
memory = []
for step in range(16):
    x = torch.randn(4)
    {keep}
    {batch}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BATCH = "loss = model(torch.randn(6, 4) if step < 10 else {taken}).square().mean()"
IN_PART = "memory.append(torch.where(torch.arange(4) == 2, torch.log(x - 100), x){shape} if step == 3 else x{shape})"
# What is kept, and how it is taken out.
IN_PARTS = {
    "stack": (IN_PART.format(shape=""), BATCH.format(taken="torch.stack(memory[1:7])")),
    "cat": (IN_PART.format(shape="[None]"), BATCH.format(taken="torch.cat(memory[1:7])")),
    "rows that stand together": (IN_PART.format(shape=".expand(2, 4).clone()"), BATCH.format(taken="torch.cat(memory[1:4])")),
}
# Not one number of it is finite, so another NaN would look the same.
WHOLE = {
    "stack": ("memory.append(torch.log(x - 100) if step == 3 else x)", BATCH.format(taken="torch.stack(memory[1:7])")),
    "rewards": ("memory.append(torch.log(x[0] - 100) if step == 3 else x[0])",
                "target = torch.zeros(4) if step < 10 else torch.stack(memory[2:6])\n"
                "    loss = (model(torch.randn(4, 4)).squeeze(1) - target).square().mean()"),
}


class KeptValues(WatchedProgramTest):
    def assert_made(self, keep, batch, **origin):
        self.assert_anomaly(TRAINING.format(keep=keep, batch=batch), op="aten::log", step=3, **{"class": "produce"}, **origin)

    def test_what_is_bad_in_part_is_traced_to_the_op_that_made_it(self):
        for name, (keep, batch) in IN_PARTS.items():
            with self.subTest(name):
                self.assert_made(keep, batch, exact=True)

    def test_what_is_bad_altogether_is_traced_and_not_certain(self):
        for name, (keep, batch) in WHOLE.items():
            with self.subTest(name):
                self.assert_made(keep, batch, exact=False)

    def test_a_row_that_came_in_beside_it_is_not_taken_for_it(self):
        keep = IN_PART.format(shape="") + "\n    other = x.numpy().copy()\n    if step > 9: other[1] = numpy.nan"
        text = TRAINING.format(keep=keep, batch=BATCH.format(taken="torch.stack([torch.from_numpy(other), *memory[4:7]])"))
        self.assert_anomaly("import numpy\n" + text, kind="input_data", **{"class": "external"})


if __name__ == "__main__":
    main()
