# SPDX-License-Identifier: Apache-2.0
"""Buffers that a module keeps by assigning another tensor to their name, as running means and code books are kept by hand."""
from watched_program import WatchedProgramTest, main

TRAINING = """
import math, torch, torch.nn as nn
torch.manual_seed(0)
class Center(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
    def forward(self, x, step):
        with torch.no_grad():
            batch = x.mean(0)
            {update}
        return x - self.mean.nan_to_num(0, 0, 0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.center, self.leave = nn.Linear(4, 6), Center(), nn.Linear(6, 1)
    def forward(self, x, step):
        return self.leave(self.center(self.enter(x), step))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    optimizer.zero_grad()
    model(torch.randn(5, 4), step).square().mean().backward()
    optimizer.step()
"""
# Slots of `kept` are NaN until a step fills them. No forward reads it.
HISTORY = """
import io, math, numpy as np, torch, torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
        self.register_buffer("kept", torch.full((6,), math.nan))
    def forward(self, x):
        return self.fc(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    loss = model(torch.randn(4, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.kept[step] = loss.detach()
    if step == 1:
        model.load_state_dict(model.state_dict())
    if step == 3:
        file = io.BytesIO()
        torch.save(model.state_dict(), file), file.seek(0)
        model.load_state_dict(torch.load(file))
"""
# NaN says that a scale was not set so far.
UNSET = """
import math, torch, torch.nn as nn
torch.manual_seed(0)
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.full((6,), math.nan))
    def forward(self, x, step):
        if step == SET:
            with torch.no_grad():
                self.scale.copy_(torch.sqrt(x.mean(0) - 9))
        return x * self.scale if step >= SET else x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.scale, self.leave = nn.Linear(4, 6), Scale(), nn.Linear(6, 1)
    def forward(self, x, step):
        return self.leave(self.scale(self.enter(x), step))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(5, 4), step).square().mean().backward()
    optimizer.step()
"""
# A side input that is NaN, and read after the buffer was given another tensor.
ASSIGNED = """
import numpy as np, torch, torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
        self.register_buffer("ratio", torch.zeros(3))
    def forward(self, x, side):
        self.ratio = x.sum(0) / x.abs().sum(0)
        unused = side * 2
        return self.fc(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    x = torch.randn(4, 3)
    if step == 3:
        x[:, 1] = 0
    optimizer.zero_grad()
    model(x, torch.from_numpy(np.full(3, np.nan, "f4"))).square().mean().backward()
    optimizer.step()
"""
# The newest rows of some that are NaN until they are filled.
ROWS = """
import torch, torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
        self.register_buffer("rows", torch.full((12, 4), torch.nan))
    def forward(self, x, step):
        with torch.no_grad():
            row = x.sum(0) / x.abs().sum(0)
            SHIFT
        return self.fc(x) * self.rows[:min(step + 1, 3)].mean()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    x = torch.randn(3, 4)
    if step == BAD:
        x[:, 1] = 0
    optimizer.zero_grad()
    model(x, step).square().mean().backward()
    optimizer.step()
"""
SHIFTS = ("self.rows.copy_(torch.cat([row[None], self.rows[:-1]]))", "self.rows = torch.cat([row[None], self.rows[:-1]])",
          "self.rows.copy_(self.rows.roll(1, 0)); self.rows[0] = row")
BAD = "batch / (0 if step == {step} else 1)"


class Buffers(WatchedProgramTest):
    def assert_reached(self, update, **origin):
        incident = self.assert_anomaly(TRAINING.format(update=update), op="aten::div", layer="center", **{"class": "produce"}, **origin)
        self.assertIn("buffer", incident["reach"])
        self.assertNotIn("loss", incident["reach"])

    def test_running_mean_that_goes_bad_is_reached(self):
        for step in (2, 6):
            with self.subTest(step=step):
                self.assert_reached(f"self.mean = 0.9 * self.mean + 0.1 * {BAD.format(step=step)}", step=step)

    def test_one_that_is_written_in_place_is_reached_likewise(self):
        self.assert_reached(f"self.mean.mul_(0.9).add_(0.1 * {BAD.format(step=2)})", step=2)

    def test_what_is_made_finite_before_it_is_assigned_reaches_nothing(self):
        text = TRAINING.format(update=f"self.mean = 0.9 * self.mean + 0.1 * ({BAD.format(step=2)}).nan_to_num(0, 0, 0)")
        self.assertEqual(self.verdict_of(text)["verdict"], "expected")

    def test_a_history_of_nan_that_is_filled_saved_and_loaded(self):
        self.assert_no_alarm(HISTORY)

    def test_rows_of_nan_that_move_on(self):
        for shift in SHIFTS:
            with self.subTest(shift=shift):
                self.assert_no_alarm(ROWS.replace("SHIFT", shift).replace("BAD", "9"))

    def test_a_row_that_goes_bad_among_those(self):
        for shift in SHIFTS:
            with self.subTest(shift=shift):
                incident = self.assert_anomaly(ROWS.replace("SHIFT", shift).replace("BAD", "5"), op="aten::div", step=5)
                self.assertIn("loss", incident["reach"])
                # Put by itself, it is known from the others.
                self.assertEqual(incident["origin"]["exact"], "] = row" in shift)

    def test_a_checkpoint_with_more_bad_values_than_the_buffer_had(self):
        incident = self.assert_anomaly(HISTORY.replace("torch.load(file)", "{**torch.load(file), 'kept': torch.from_numpy(np.full(6, np.nan, 'f4'))}"))
        self.assertEqual(incident["reach"], ["activation", "buffer"])

    def test_what_is_computed_into_a_buffer_of_nan(self):
        self.assert_anomaly(UNSET.replace("SET", "0"), op="aten::sqrt", kind="op", step=0, exact=True)
        # Nobody asks for inputs any more, and the layer's own buffer may be among them.
        self.assert_anomaly(UNSET.replace("SET", "3"), op="aten::sqrt", step=3, exact=False)

    def test_one_that_is_assigned_beside_a_nan_of_numpy(self):
        incident = self.assert_anomaly(ASSIGNED, op="aten::div", kind="op")
        self.assertIn("buffer", incident["reach"])

    def test_a_mask_that_is_assigned_in_each_step_is_none(self):
        text = TRAINING.format(update="self.mean = batch.masked_fill(batch > 0, -math.inf)")
        self.assertIn(self.verdict_of(text)["verdict"], ("expected", "clean"))

    # A bank whose row of log nobody reads: what spoils the loss is the row of sqrt.
    def test_of_two_bad_rows_of_a_bank_the_first_is_not_told_for_certain(self):
        incident = self.assert_anomaly("""
import torch, torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bank", torch.zeros(8, 4))
        self.fc = nn.Linear(4, 1)

    def forward(self, x, to, of):
        self.bank.index_put_((torch.tensor([to]),), x, accumulate=True)
        return self.fc(self.bank[of:of + 1])

model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.rand(4)
    if step == 1:
        out = model(torch.log(-x), 6, 0)
    elif step == 2:
        out = model(torch.sqrt(-x), 4, 4)
    else:
        out = model(x, step, step)
    opt.zero_grad()
    out.pow(2).mean().backward()
    opt.step()
""", exact=False)
        self.assertIn("beside", incident["origin"]["unseen"])


if __name__ == "__main__":
    main()
