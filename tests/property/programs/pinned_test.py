# SPDX-License-Identifier: Apache-2.0
"""Programs that nanwatch and the oracle once disagreed on, by nanwatch's mistake, each cut down to what it takes.

Run by ctest; alone: NANWATCH_BUILD=build/release python pinned_test.py
"""
import pathlib
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/families"))

from watched_program import WatchedProgramTest, main  # noqa: E402

BEGIN = '''
import torch
import torch.nn as nn
import torch.nn.functional as F


class Tail(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.fc(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.middle = Middle()
        self.tail = Tail()

    def forward(self, x):
        return self.tail(self.middle(self.first(x)))


torch.manual_seed(0)
'''

TRAIN = '''
for step in range(STEPS):
    x, y = torch.randn(2, 4), torch.randn(2, 4)
    before(step, x, y)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
'''


CONSTANT_BECAME_A_ROOT = '''
import math, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
first, last = nn.Linear(4, 4), nn.Linear(4, 4)
optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.01)
for step in range(3):
    x = torch.randn(3, 4, requires_grad=True)
    h = first(x)
    if step == 1: h = h.masked_fill(torch.arange(4) == 1, math.inf)
    out = last(h)
    torch.autograd.grad(out[:, 0].sum(), x, create_graph=True)
    loss = F.cross_entropy(out, torch.zeros(3, dtype=torch.long))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
'''

LOSS_SPOILED_TWICE = '''
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(3, 4)
    offset = torch.exp(x.detach().sum() * 0 + (100 if step == 1 else 0))
    loss = ((model(x) * (1e30 if step == 1 else 1)).pow(2).sum(1).sqrt() - 1).pow(2).mean() + offset
    optimizer.zero_grad(); loss.backward(); optimizer.step()
'''

MORE_BAD_LAYERS_THAN_A_RECORD_LISTS = '''
import torch, torch.nn as nn
torch.manual_seed(0)
many = nn.ModuleList(nn.Linear(4, 1) for _ in range(6))
one = nn.Linear(4, 1)
optimizer = torch.optim.Adagrad([*many.parameters(), *one.parameters()], lr=0.01, foreach=True)
for step in range(3):
    x = torch.randn(3, 4)
    zero = 0.0 if step == 1 else 1.0
    optimizer.zero_grad()
    loss = sum((layer(x) * zero).abs().pow(0.5).mean() for layer in many) + (one(x) * zero).square().sqrt().mean()
    loss.backward()
    optimizer.step()
'''

BATCH_NORM_OVERFLOWS = '''
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(4, 8) + (3e38 if step == 1 else 0)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
'''


def program(middle="return x", before="pass", optimizer="torch.optim.SGD(model.parameters(), lr=0.1)", steps=2):
    """A model whose middle layer does `middle`; `before` runs before each step."""
    return (BEGIN.replace("class Tail", "class Middle(nn.Module):\n    def forward(self, x):\n"
                          + textwrap.indent(textwrap.dedent(middle), " " * 8) + "\n\n\nclass Tail")
            + f"STEPS = {steps}\nmodel = Model()\noptimizer = {optimizer}\n\n\ndef before(step, x, y):\n"
            + textwrap.indent(textwrap.dedent(before), "    ") + "\n" + TRAIN)


class PinnedPrograms(WatchedProgramTest):
    def test_nan_that_an_assignment_carried_into_a_parameter_is_the_parameter(self):
        self.assert_anomaly(program(before="""
            if step == 0:
                with torch.no_grad():
                    model.tail.fc.weight[0, 0] = float('nan')"""),
                            kind="parameter", param="tail.fc.weight", layer="tail.fc", step=0)

    def test_masked_bias_does_not_hide_the_nan_that_comes_later(self):
        self.assert_anomaly(program(before="""
            if step == 0:
                with torch.no_grad():
                    model.tail.fc.bias[3] = float('-inf')
            if step == 2:
                with torch.no_grad():
                    model.first.weight.copy_(torch.log(-torch.ones(4, 4)))""", steps=4),
                            kind="op", op="aten::log", step=2)

    def test_masked_bias_alone_is_expected(self):
        text = program(before="with torch.no_grad():\n    model.tail.fc.bias[3] = float('-inf')", steps=3)
        self.assertEqual(self.verdict_of(text)["verdict"], "expected")

    def test_nan_constant_copied_into_a_parameter_in_the_middle_of_training_is_an_anomaly(self):
        text = program(before="""
            if step == 1:
                with torch.no_grad():
                    model.first.weight.copy_(torch.full((4, 4), float('nan')))""", steps=3)
        self.assert_anomaly(text, kind="op", op="aten::full", step=1)
        self.assertIn("parameter", self.verdict_of(text)["incidents"][0]["reach"])

    def test_activation_that_overflows_in_a_cast_from_float64_is_made_by_the_cast(self):
        self.assert_anomaly(program("return (x.double().abs() + 1e200).float()"),
                            kind="op", op="aten::_to_copy", layer="middle", **{"class": "produce"})

    def test_infinity_in_a_float64_batch_is_not_made_by_its_cast(self):
        self.assert_anomaly(program(before="import numpy\nx.copy_(torch.from_numpy(numpy.full((2, 4), numpy.inf)).float())"),
                            kind="input_data")

    def test_bad_target_that_a_composite_hands_on_is_first_used_by_the_op_that_computes(self):
        self.assert_anomaly(program(before="x.zero_()\ny.copy_(torch.tensor([[float('nan')] * 4] * 2))"),
                            kind="input_data", op="aten::mse_loss", phase="forward")

    def test_dropout_in_evaluation_makes_nothing(self):
        self.assert_anomaly(program(before="import numpy\n"
                                           "z = F.dropout(torch.from_numpy(numpy.full((2, 4), numpy.nan)), 0.1, False)\n"
                                           "x.copy_(z)"), kind="input_data")

    def test_nan_that_numpy_wrote_beside_a_mask_is_not_made_by_the_op_that_reads_it(self):
        middle = "x = x.masked_fill(torch.arange(4) == 1, float('inf'))\nx.detach().numpy().reshape(-1)[:1] = numpy.nan\nreturn x.flip(1)"
        text = program(middle).replace("import torch\n", "import numpy\nimport torch\n", 1)
        incident = self.assert_anomaly(text, op="aten::flip", layer="middle", exact=False)
        self.assertNotEqual("inf_to_nan", incident["origin"]["class"])

    def test_constant_that_became_a_root_is_the_cause_of_what_comes_of_it_later(self):
        self.assert_anomaly(CONSTANT_BECAME_A_ROOT, op="aten::masked_fill", step=1, **{"class": "scalar"})

    def test_loss_that_two_ops_spoiled_was_lost_to_the_first(self):
        self.assert_anomaly(LOSS_SPOILED_TWICE, op="aten::exp", step=1)

    def test_first_of_two_bad_slopes_reached_the_parameters_too(self):
        incident = self.assert_anomaly(MORE_BAD_LAYERS_THAN_A_RECORD_LISTS, op="aten::div", phase="backward", step=1)
        self.assertIn("parameter", incident["reach"])

    def test_statistics_that_overflow_are_one_incident_of_the_op_that_wrote_them(self):
        verdict = self.verdict_of(BATCH_NORM_OVERFLOWS)
        severe = [i for i in verdict["incidents"] if i["severity"] != "info"]
        self.assertEqual([(i["origin"]["op"], i["origin"]["class"], i["origin"]["layer"], i["origin"]["step"]) for i in severe],
                         [("aten::native_batch_norm", "produce", "0", 1)])
        self.assertLessEqual({"buffer", "loss", "parameter"}, set(severe[0]["reach"]))

    def test_hook_on_a_gradient_belongs_to_the_layer_whose_node_it_precedes(self):
        self.assert_anomaly(program("x = x * 1.0\nx.register_hook(lambda g: g / (g * 0))\nreturn x"),
                            op="aten::div", phase="backward", layer="middle")

    def test_number_of_a_backward_formula_is_not_a_constant_that_was_asked_for(self):
        self.assert_anomaly(program("return x + torch.nan_to_num(x[:, :1].var(1, keepdim=True))", steps=1),
                            kind="op", phase="backward", **{"class": "produce"})

    def test_op_that_reads_what_it_writes_is_not_taken_for_its_own_source(self):
        mask = "mask = torch.full((2, 4), float('-inf'))\n"  # something bad is alive, so that inputs are looked at
        self.assert_anomaly(program(mask + "h = x.detach().abs() + 1e30\nh.mul_(h)\nreturn x + h + 0 * mask.exp()"),
                            kind="op", op="aten::mul_", layer="middle", **{"class": "produce"})

    def test_maximum_into_its_own_argument_is_not_taken_for_the_batch(self):
        self.assert_anomaly(program("return x.masked_fill(x > -9, float('nan'))",
                                    optimizer="torch.optim.AdamW(model.parameters(), amsgrad=True)", steps=1),
                            op="aten::masked_fill", layer="middle",
                            reach=["activation", "loss", "gradient", "parameter", "optimizer_state"])

    def test_running_variance_that_overflows_under_a_mask_is_made_by_the_batch_norm(self):
        middle = "mask = torch.full((2, 4), float('-inf'))\nreturn norm(torch.tensor([[-1.], [1.]]) * 3e19 + x) + 0 * mask.exp()"
        text = program(middle, before="pass").replace("torch.manual_seed(0)", "torch.manual_seed(0)\nnorm = nn.BatchNorm1d(4)")
        self.assert_anomaly(text.replace("self.middle = Middle()", "self.middle = Middle()\n        self.norm = norm"),
                            kind="op", op="aten::native_batch_norm", layer="norm")

    def test_writing_an_activation_between_two_passes_is_no_update(self):
        text = program("x = x * 1.0\nx[:, 0] = 0.5\nreturn torch.log(-x.abs() - 1)").replace(
            "    loss.backward()\n    optimizer.step()",
            "    scaler.scale(loss).backward()\n    scaler.scale(F.mse_loss(model(x), y)).backward()\n"
            "    scaler.step(optimizer)\n    scaler.update()")
        text = text.replace("STEPS = 2", "STEPS = 2\nscaler = torch.amp.GradScaler('cpu')")
        incident = self.assert_anomaly(text, op="aten::log")
        self.assertEqual((incident["origin"]["step"], incident["last_step"]), (1, 1))  # 1 is the fixture's own


if __name__ == "__main__":
    main()
