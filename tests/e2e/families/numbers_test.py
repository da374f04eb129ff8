# SPDX-License-Identifier: Apache-2.0
"""A NaN that Python reads from a tensor and hands back later, as an op's number or in a tensor built of numbers.

It is reported where it was made. That it is the same number is a guess, so the origin is not exact."""
from watched_program import WatchedProgramTest, main

# The spread of one step is the square root of a negative number; `use` computes the loss of later steps with it.
TRAINING = """
import math, numpy as np, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
number, read = 1.0, None
for step in range(9):
    x, y = torch.randn(6, 5), torch.randn(6, 1)
    each = (model(x) - y).square().squeeze(1)
    {use}
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == {read_at}:
        with torch.no_grad():
            read = {made}.item()
    if step == 4 and read is not None: number = read
"""
AS_A_NUMBER = {
    "factor": "loss = (each * number).mean()",
    "divisor": "loss = each.mean() / number",
    "summand": "loss = (each + number).mean()",
    "alpha": "loss = torch.add(each, each, alpha=number).mean()",
    "exponent": "loss = each.pow(number).mean()",
    "full": "loss = (each * torch.full((6,), number)).mean()",
    "fill": "loss = (each * torch.zeros(6).fill_(number)).mean()",
    "masked_fill": "loss = each.masked_fill(y.squeeze(1) > 0, number).mean()",
    "where": "loss = torch.where(y.squeeze(1) > 0, each, number).mean()",
    "padding": "loss = F.pad(each, (1, 1), value=number).mean()",
    "rate": "loss = each.mean(); opt.param_groups[0]['lr'] = 1e-2 * number",
}
AS_A_TENSOR = {
    "tensor": "loss = (each * torch.tensor(number)).mean()",
    "tensor_of_a_list": "loss = (each * torch.tensor([number])).mean()",
    "as_tensor": "loss = (each * torch.as_tensor([number] * 6)).mean()",
    "from_numpy": "loss = (each * torch.from_numpy(np.array([number], dtype='float32'))).mean()",
    "tensor_of_an_array": "loss = (each * torch.tensor(np.array([number], dtype='float32'))).mean()",
    "mean_of_a_list": "loss = each.mean() * torch.tensor([1.0, number, 2.0]).mean()",
    "legacy_constructor": "loss = (each * torch.Tensor([number])).mean()",
    "element": "weights = torch.ones(6); weights[2] = number; loss = (each * weights).mean()",
    "element_of_the_input": "x[0, 0] = number; loss = (model(x) - y).square().mean()",
}


class Numbers(WatchedProgramTest):
    def assert_made_by_the_root(self, uses, read_at, step, made="torch.sqrt(each.mean() - 1e4)", op="aten::sqrt"):
        for name, use in uses.items():
            with self.subTest(name):
                verdict = self.verdict_of(TRAINING.format(use=use, read_at=read_at, made=made))
                told = [(i["origin"]["op"], i["origin"]["class"], i["origin"]["kind"], int(i["origin"]["step"]), i["origin"]["exact"])
                        for i in verdict["incidents"] if i["severity"] != "info"]
                self.assertEqual(told, [(op, "produce", "op", step, False)])
                self.assertIn("parameter", verdict["incidents"][0]["reach"] + ["parameter"] * (name in HARMLESS))

    def test_number_that_was_read_just_before(self):
        self.assert_made_by_the_root(AS_A_NUMBER, read_at=4, step=5)

    def test_number_that_was_read_steps_before(self):
        self.assert_made_by_the_root(AS_A_NUMBER, read_at=1, step=2)

    def test_tensor_built_of_it_just_after(self):
        self.assert_made_by_the_root(AS_A_TENSOR, read_at=4, step=5)

    def test_tensor_built_of_it_steps_later(self):
        self.assert_made_by_the_root(AS_A_TENSOR, read_at=1, step=2)

    def test_tensor_built_of_a_nan_that_has_the_other_sign(self):
        self.assert_made_by_the_root(AS_A_TENSOR, read_at=1, step=2, made="(each.sum() * 0 / torch.zeros(()))", op="aten::div")

    def test_replay_memory_of_rewards(self):
        self.assert_anomaly("""
import random, torch, torch.nn as nn
torch.manual_seed(0), random.seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
memory = []
for t in range(24):
    state = torch.randn(4)
    with torch.no_grad():
        bonus = torch.log(net(state).max() + (-1e3 if t == 13 else 1e3)).item()
    memory.append((state, random.randrange(2), bonus))
    if len(memory) < 8: continue
    batch = memory[-8:]
    states, actions = torch.stack([s for s, _, _ in batch]), torch.tensor([a for _, a, _ in batch])
    rewards = torch.tensor([r for _, _, r in batch])
    loss = nn.functional.smooth_l1_loss(net(states).gather(1, actions[:, None]).squeeze(1), rewards)
    opt.zero_grad(), loss.backward(), opt.step()
""", kind="op", op="aten::log", step=6, exact=False)

    def test_data_of_a_loader_is_a_batch_whatever_was_read_before(self):
        self.assert_anomaly("""
import torch, torch.nn as nn
torch.manual_seed(0)
labels = [0.1 * i for i in range(32)]
labels[21] = float("nan")
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return torch.randn(5), labels[i]
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
with torch.no_grad():
    precision = (torch.zeros(4).sum() / torch.zeros(4).sum()).item()
for x, y in torch.utils.data.DataLoader(Rows(), 4):
    loss = nn.functional.mse_loss(model(x).squeeze(1), y.float())
    opt.zero_grad(), loss.backward(), opt.step()
""", kind="input_data", op="aten::mse_loss", step=5)


# What is computed of a batch without gradients, by an op that has not been asked for its inputs.
OF_A_BATCH = {
    "div": "x / n", "div_": "x.clone().div_(n)", "floor_divide": "x // n", "remainder": "x % n", "fmod": "torch.fmod(x, n)", "mul": "x * n",
    "clamp_min": "x.clamp_min(n)", "leaky_relu": "F.leaky_relu(x, n)", "elu": "F.elu(x, n)", "pow": "x ** n", "rpow": "n ** x", "rdiv": "n / x",
    "hardtanh": "F.hardtanh(x, -n, n)", "threshold": "F.threshold(x, 0.1, n)", "addmm": "torch.addmm(y, x, torch.ones(5, 1), alpha=n)",
    "alpha": "torch.add(x, x, alpha=n)", "softplus": "F.softplus(x, n)", "full": "x * torch.full((5,), n)", "norm": "x / x.norm(p=n)",
    "linspace": "x * torch.linspace(0, n, 5)", "xlogy": "torch.xlogy(x, n)", "numpy": "x / np.float64(n)",
}
ZERO_BY_ZERO = {
    "deviation": "(x[0] * 0) / (x[0] * 0).std()",
    "constant_rows": "(torch.ones(6, 5) - torch.ones(6, 5).mean(1, keepdim=True)) / torch.ones(6, 5).std(1, keepdim=True)",
    "counts": "torch.zeros(6, 5, dtype=torch.long) / torch.zeros(6, 5, dtype=torch.long)",
    "number": "torch.relu(x) / 0",
}
BATCHES = """
import math, numpy as np, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(5):
    n = math.inf - math.inf if step == 3 else 1.0
    x, y = torch.randn(6, 5), torch.randn(6, 1)
    weight = ({use}).mean() if step == 3 else 1.0
    loss = (model(x) - y).square().mean() * weight
    opt.zero_grad(), loss.backward(), opt.step()
"""


class OwnNumbers(WatchedProgramTest):
    """Python made the NaN itself: no op is to blame with certainty."""

    def test_rate_of_nan_is_a_number_that_the_optimizer_was_given(self):
        for optimizer in ("SGD(model.parameters(), lr=0.1)", "SGD(model.parameters(), lr=0.1, momentum=0.9)", "Adam(model.parameters())",
                          "AdamW(model.parameters())", "Adam(model.parameters(), foreach=True)", "RMSprop(model.parameters())",
                          "Adagrad(model.parameters())", "NAdam(model.parameters())"):
            with self.subTest(optimizer):
                self.assert_anomaly(f"""
import math, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
opt = torch.optim.{optimizer}
for step in range(5):
    opt.param_groups[0]["lr"] = math.nan if step == 3 else 1e-3
    loss = model(torch.randn(6, 4)).square().mean()
    opt.zero_grad(), loss.backward(), opt.step()
""", kind="optimizer", phase="optimizer", step=3, param="weight", **{"class": "scalar"})

    def test_op_of_a_batch_and_a_number_is_not_told_for_certain_as_made_of_finite_values(self):
        for name, use in OF_A_BATCH.items():
            with self.subTest(name):
                origin = self.verdict_of(BATCHES.format(use=use))["incidents"][0]["origin"]
                self.assertEqual(int(origin["step"]), 3)
                self.assertTrue(origin["class"] == "scalar" or not origin["exact"], origin)

    def test_nor_is_one_of_infinity(self):
        for name in ("mul", "alpha", "addmm", "full"):
            with self.subTest(name):
                text = BATCHES.format(use=OF_A_BATCH[name]).replace("math.inf - math.inf", "math.inf")
                origin = self.verdict_of(text)["incidents"][0]["origin"]
                self.assertEqual(int(origin["step"]), 3)
                self.assertTrue(origin["class"] in ("scalar", "inf_to_nan") or not origin["exact"], origin)

    def test_zero_by_zero_is(self):
        for name, use in ZERO_BY_ZERO.items():
            with self.subTest(name):
                self.assert_anomaly(BATCHES.format(use=use), kind="op", op="aten::div", step=3, exact=True, **{"class": "produce"})

    def test_other_numbers_are_never_told_for_certain_as_made_of_finite_values(self):
        for use in AS_A_NUMBER.values():
            with self.subTest(use):
                text = TRAINING.format(use=use, read_at=-1, made="each.sum()").replace("if step == 4 and read is not None: number = read",
                                                                    "if step == 4: number = math.inf - math.inf")
                origin = self.verdict_of(text)["incidents"][0]["origin"]
                self.assertEqual(int(origin["step"]), 5)
                self.assertTrue(origin["class"] == "scalar" or not origin["exact"], origin)

    # What autograd keeps says what number it was.
    def test_infinity_that_an_op_was_given_asked_for_it(self):
        for op, use in (("aten::pow", "loss = (number ** (each / 10)).mean()"),
                        ("aten::addcmul", "loss = torch.addcmul(each, each, each, value=number).mean()")):
            with self.subTest(use):
                text = TRAINING.format(use=use, read_at=-1, made="each.sum()").replace("if step == 4 and read is not None: number = read",
                                                                    "if step == 4: number = math.inf")
                self.assert_anomaly(text, op=op, step=5, exact=True, **{"class": "scalar"})
        # An op that takes its number for some elements only.
        incident = self.assert_anomaly(TRAINING.format(use="loss = F.leaky_relu(each - 1, number).mean()", read_at=-1, made="each.sum()").replace(
            "if step == 4 and read is not None: number = read", "if step == 4: number = math.inf"), op="aten::leaky_relu", exact=False)
        self.assertEqual(int(incident["origin"]["step"]), 5)


HARMLESS = ("summand", "masked_fill", "where", "padding")  # no gradient depends on them


if __name__ == "__main__":
    main()
