# SPDX-License-Identifier: Apache-2.0
"""Optimizers that make the first NaN themselves: epsilons of zero or below their type, rates that are not finite, clipping."""
from training import BEGIN, training
from watched_program import WatchedProgramTest, main

UPDATE = {"kind": "optimizer", "class": "produce", "phase": "optimizer"}

# A gate that gets a gradient of exactly zero from step 2 on.
GATED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.gate = nn.Linear(6, 4), nn.Linear(6, 4, bias=False)
        self.open = False

    def forward(self, x):
        return self.fc(x) + self.gate(torch.zeros_like(x)) if self.open else self.fc(x)
"""


def gated(optimizer, dtype="float32"):
    return training(GATED, model=f"Net().to(torch.{dtype})", optimizer=optimizer, before="model.open = step >= 2",
                    loss=f"(model(x.to(torch.{dtype})) - 1).float().pow(2).sum()")


class Optimizers(WatchedProgramTest):
    # Sharpness-aware minimisation: the gradients of the second pass are taken where the weights were moved to, and are bad.
    def test_perturbation_that_is_taken_back_before_the_update(self):
        self.assert_anomaly("""
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(6):
    x, weight = torch.randn(8, 4), 0. if step == 3 else 1.
    optimizer.zero_grad()
    (model(x).pow(2).mean() * weight).backward()
    with torch.no_grad():
        kept = [p.clone() for p in model.parameters()]
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p.add_(p.grad * (.05 / norm))
    optimizer.zero_grad()
    (model(x).pow(2).mean() * weight).backward()
    with torch.no_grad():
        for p, before in zip(model.parameters(), kept):
            p.copy_(before)
    optimizer.step()
""", reach=["activation", "loss", "gradient", "parameter", "optimizer_state"], op="aten::reciprocal", step=3)

    def test_adam_in_half_precision_whose_epsilon_underflows(self):
        self.assert_anomaly(gated("torch.optim.Adam(model.parameters(), lr=1e-3)", "float16"), op="aten::addcdiv_",
                            param="gate.weight", step=2, **UPDATE)

    def test_adam_w_in_half_precision_for_each_list(self):
        self.assert_anomaly(gated("torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)", "float16"),
                            op="aten::addcdiv_", param="gate.weight", step=2, **UPDATE)

    def test_adam_without_epsilon(self):
        self.assert_anomaly(gated("torch.optim.Adam(model.parameters(), eps=0.0)"), op="aten::addcdiv_", param="gate.weight",
                            step=2, **UPDATE)

    def test_adam_without_epsilon_in_one_kernel(self):
        self.assert_anomaly(gated("torch.optim.Adam(model.parameters(), eps=0.0, fused=True)"), op="aten::_fused_adam_",
                            param="gate.weight", step=2, **UPDATE)

    def test_adam_w_without_epsilon_for_each_list(self):
        self.assert_anomaly(gated("torch.optim.AdamW(model.parameters(), eps=0.0, foreach=True)"), op="aten::addcdiv_",
                            param="gate.weight", step=2, **UPDATE)

    def test_rms_prop_without_epsilon(self):
        self.assert_anomaly(gated("torch.optim.RMSprop(model.parameters(), eps=0.0)"), op="aten::addcdiv_", param="gate.weight",
                            step=2, **UPDATE)

    def test_adagrad_without_epsilon(self):
        self.assert_anomaly(gated("torch.optim.Adagrad(model.parameters(), eps=0.0)"), op="aten::addcdiv_", param="gate.weight",
                            step=2, **UPDATE)

    def test_adagrad_without_epsilon_in_one_kernel(self):
        self.assert_anomaly(gated("torch.optim.Adagrad(model.parameters(), eps=0.0, fused=True)"), op="aten::_fused_adagrad_",
                            param="gate.weight", step=2, **UPDATE)

    def test_adamax_without_epsilon(self):
        self.assert_anomaly(gated("torch.optim.Adamax(model.parameters(), eps=0.0)"), op="aten::addcdiv_", param="gate.weight",
                            step=2, **UPDATE)

    def test_nadam_without_epsilon(self):
        self.assert_anomaly(gated("torch.optim.NAdam(model.parameters(), eps=0.0)"), op="aten::addcdiv_", param="gate.weight",
                            step=2, **UPDATE)

    def test_stochastic_gradient_descent_with_an_infinite_rate(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", optimizer="torch.optim.SGD(model.parameters(), lr=0.1)",
                                     before="if step == 2:\n    opt.param_groups[0]['lr'] = math.inf"),
                            kind="optimizer", op="aten::add_", phase="optimizer", step=2)

    # Each parameter is updated as soon as its gradient is there, within the backward pass.
    def test_update_in_a_hook_of_the_gradient(self):
        for optimizer, spoil, expected in (
                ("SGD([p], lr=0.1)", "o.param_groups[0]['lr'] = math.inf", {"op": "aten::add_", "class": "scalar"}),
                ("RMSprop([p], lr=0.1, eps=0.0)", "x.zero_()", {"op": "aten::addcdiv_", "class": "produce"})):
            with self.subTest(optimizer):
                incident = self.assert_anomaly(BEGIN + f"""
model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 2, bias=False))
updates = {{p: torch.optim.{optimizer} for p in model.parameters()}}
def update(p):
    updates[p].step(), updates[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for step in range(4):
    x = torch.randn(4, 6)
    if step == 2:
        for p, o in updates.items():
            o.state.clear()
            {spoil}
    model(x).pow(2).mean().backward()
""", kind="optimizer", phase="optimizer", **expected)
                self.assertIn("parameter", incident["reach"])

    def test_stochastic_gradient_descent_with_a_rate_of_nan_is_one_incident(self):
        text = training(model="nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))",
                        optimizer="torch.optim.SGD(model.parameters(), lr=0.1)",
                        before="if step == 2:\n    opt.param_groups[0]['lr'] = math.nan")
        told = [(i["origin"]["kind"], i["origin"]["class"], i["origin"]["phase"], i["origin"]["step"])
                for i in self.verdict_of(text)["incidents"]]
        self.assertEqual(told, [("optimizer", "scalar", "optimizer", 2)])

    def test_a_factor_that_is_infinite_is_one_incident(self):
        for optimizer, name, factor in (
                ("SGD(model.parameters(), lr=0.1, momentum=0.9)", "momentum", "math.inf"), ("SGD(model.parameters(), lr=0.1)", "weight_decay", "math.inf"),
                ("Adam(model.parameters())", "weight_decay", "math.inf"), ("Adam(model.parameters(), foreach=True)", "weight_decay", "math.inf"),
                ("Adam(model.parameters())", "betas", "(math.inf, 0.9)"), ("AdamW(model.parameters())", "weight_decay", "math.inf"),
                ("Adadelta(model.parameters())", "weight_decay", "math.inf"), ("Adagrad(model.parameters())", "weight_decay", "math.inf"),
                ("RMSprop(model.parameters())", "weight_decay", "math.inf"), ("NAdam(model.parameters())", "weight_decay", "math.inf")):
            with self.subTest(optimizer=optimizer, name=name):
                incident = self.assert_anomaly(training(model="nn.Linear(6, 2)", optimizer=f"torch.optim.{optimizer}",
                                                        before=f"if step == 2:\n    opt.param_groups[0]['{name}'] = {factor}"),
                                               kind="optimizer", phase="optimizer", step=2, pattern="update-with-bad-number",
                                               **{"class": "scalar"})
                self.assertIn("parameter", incident["reach"])

    def test_an_infinite_rate_of_which_torch_makes_a_tensor_is_one_incident(self):
        text = training(model="nn.Linear(6, 2)", optimizer="torch.optim.ASGD(model.parameters(), lr=0.1)",
                        before="if step == 2:\n    opt.param_groups[0]['lr'] = math.inf")
        told = [(i["origin"]["kind"], i["origin"]["class"], i["origin"]["step"])
                for i in self.verdict_of(text)["incidents"] if i["severity"] != "info"]
        self.assertEqual(told, [("optimizer", "scalar", 2)])

    # Its state is made by ops that are made of others, in place: norm().square_().div_().
    def test_adafactor_with_a_bad_gradient_is_one_incident(self):
        verdict = self.verdict_of("""
import torch
weight = torch.nn.Parameter(torch.ones(3, 2))
optimizer = torch.optim.Adafactor([weight], lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    (weight * (1 if step != 1 else -1)).sqrt().mean().backward()
    optimizer.step()
""")
        told = [(i["origin"]["kind"], i["origin"]["op"]) for i in verdict["incidents"] if i["severity"] != "info"]
        self.assertEqual(told, [("op", "aten::sqrt")])

    def test_a_nan_among_the_options_that_no_op_was_given_made_nothing(self):
        self.assert_anomaly(training("""
class Normalised(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "last": math.nan})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad / p.grad.norm())
""", model="nn.Linear(6, 2)", optimizer="Normalised(model.parameters())", loss="(model(x) * (step != 2)).sum()"),
                            op="aten::div", phase="optimizer", step=2, **{"class": "produce"})

    def test_a_loop_that_scales_by_a_bad_number_is_one_incident(self):
        for number, loop in (("math.inf", "for p in model.parameters():\n    p.grad.mul_(number)"),
                             ("math.nan", "with torch.no_grad():\n    for p in model.parameters():\n        p.mul_(number)")):
            with self.subTest(loop):
                text = training(model="nn.Linear(6, 2)", backward=f"loss.backward()\nnumber = {number} if step == 2 else 1.0\n{loop}\nopt.step()")
                told = [(i["origin"]["op"], i["origin"]["class"], i["origin"]["step"]) for i in self.verdict_of(text)["incidents"]
                        if i["severity"] != "info"]
                self.assertEqual(told, [("aten::mul_", "scalar", 2)])

    def test_a_bound_that_is_infinite_is_none(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", optimizer="torch.optim.Rprop(model.parameters(), step_sizes=(0.0, math.inf))"),
                             verdict="clean")

    def test_schedule_that_hands_out_nan(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))",
                                     prepare="schedule = torch.optim.lr_scheduler.LambdaLR("
                                             "opt, lambda n: math.nan if n == 3 else 1.0)",
                                     after="schedule.step()"),
                            kind="optimizer", op="aten::addcdiv_", phase="optimizer", step=3)

    def test_momentum_in_half_precision_that_overflows(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2).half()",
                                     optimizer="torch.optim.SGD(model.parameters(), lr=1e-3, momentum=2.0)", steps=20,
                                     loss="(model(x.half()) - 300).float().mean() * 2e4"), kind="optimizer", op="aten::add_",
                            phase="optimizer")

    def test_own_optimizer_that_divides_by_the_norm(self):
        self.assert_anomaly(training(GATED + """

class Lars(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    trust = p.norm() / p.grad.norm()
                    p.sub_(group["lr"] * trust * p.grad)
""", model="Net()", optimizer="Lars(model.parameters())", before="model.open = step >= 2"), op="aten::div", phase="optimizer",
                            step=2, **{"class": "produce"})

    def test_gradients_normalised_by_hand(self):
        self.assert_anomaly(training(GATED, before="model.open = step >= 2", backward="""
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p.grad.div_(p.grad.norm())
            opt.step()"""), kind="op", op="aten::div_", step=2, **{"class": "produce"})

    def test_update_by_hand(self):
        """Without an optimizer a step is a pass and what it writes to parameters; the fixture's own healthy step is the first."""
        self.assert_anomaly(training(model="nn.Linear(6, 2, bias=False)", optimizer="None",
                                     loss="(model(x) * (step != 2)).pow(2).mean()", backward="""
            loss.backward()
            with torch.no_grad():
                model.weight -= 0.1 * model.weight.grad / model.weight.grad.abs().max()
                model.weight.grad = None""").replace("    opt.zero_grad()\n", ""), op="aten::div", step=3,
                            **{"class": "produce"})

    def test_line_search_whose_closure_divides_by_zero(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.Tanh())",
                                     optimizer="torch.optim.LBFGS(model.parameters(), max_iter=3)", backward="""
            def closure():
                opt.zero_grad()
                loss = (model(x).sum(-1) / (0.0 if step == 2 else 1.0)).pow(2).mean()
                loss.backward()
                return loss
            opt.step(closure)""", loss="None"), op="aten::div", phase="forward", layer="", step=2, **{"class": "produce"})

    def test_clipping_of_gradients_that_are_zero(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)",
                                      backward="(loss * 0).backward()\nnn.utils.clip_grad_norm_(model.parameters(), "
                                               "1.0)\nopt.step()"), "clean")

    def test_clipping_of_gradients_whose_norm_overflows(self):
        """The norm is infinite, every gradient finite: clipped to zero, none is spoiled."""
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", optimizer="torch.optim.SGD(model.parameters(), lr=0.1)",
                                      backward="(loss * (1e30 if step == 2 else "
                                               "1)).backward()\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\nopt.step()"))

    def test_clipping_of_an_infinite_gradient_spreads_it_and_is_not_to_blame(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))",
                                     loss="torch.sqrt((model(x) * (step != 2)).abs()).mean()",
                                     backward="loss.backward()\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\nopt.step()"),
                            op="aten::div", autograd_node="SqrtBackward0", phase="backward", step=2, kind="op")

    def test_clipping_of_more_gradients_than_eight_that_were_filled_with_nan(self):
        """The norms of all are one op's results, and each is known to come from the fill."""
        self.assert_anomaly(training(model="nn.Sequential(*[nn.Linear(6, 6) for _ in range(6)])", backward="""
            loss.backward()
            if step == 2:
                for p in model.parameters():
                    p.grad = p.grad.masked_fill(torch.ones_like(p, dtype=torch.bool), math.nan)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()"""), kind="op", op="aten::masked_fill", step=2, **{"class": "scalar"})

    def test_average_of_weights_follows_and_is_not_to_blame(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", prepare="average = torch.optim.swa_utils.AveragedModel(model)",
                                     loss="(model(x) / (step != 2)).mean()", after="average.update_parameters(model)"),
                            op="aten::div", phase="forward", step=2)


# What an optimizer keeps for a parameter is spoiled out of sight, and loaded in the middle of the training.
LOADED = """
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.{optimizer}
for step in range(6):
    loss = model(torch.randn(6, 5)).square().mean()
    opt.zero_grad(), loss.backward(), opt.step()
    if step == 2:
        kept = opt.state_dict()
        kept["state"][2]["{key}"].numpy().fill(float("{bad}"))
        opt.load_state_dict(kept)
"""
KEPT = (("Adam(model.parameters())", "exp_avg"), ("Adam(model.parameters())", "exp_avg_sq"),
        ("AdamW(model.parameters(), foreach=True)", "exp_avg"), ("NAdam(model.parameters())", "exp_avg"),
        ("SGD(model.parameters(), lr=0.1, momentum=0.9)", "momentum_buffer"), ("RMSprop(model.parameters())", "square_avg"),
        ("Adagrad(model.parameters())", "sum"))


class LoadedStates(WatchedProgramTest):
    def test_state_that_was_loaded_bad_is_no_fault_of_the_update(self):
        for optimizer, key in KEPT:
            with self.subTest(optimizer=optimizer, key=key):
                self.assert_anomaly(LOADED.format(optimizer=optimizer, key=key, bad="nan"), kind="optimizer_state", step=3,
                                    param="2.weight", **{"class": "external"})

    def test_infinite_state_that_was_loaded_is_not_told_for_certain_as_made(self):
        for optimizer, key in (*KEPT, ("AdamW(model.parameters(), fused=True)", "exp_avg_sq")):
            with self.subTest(optimizer=optimizer, key=key):
                for incident in self.verdict_of(LOADED.format(optimizer=optimizer, key=key, bad="inf"))["incidents"]:
                    origin = incident["origin"]
                    self.assertEqual(int(origin["step"]), 3)
                    self.assertFalse(origin["class"] == "produce" and origin["exact"], origin)

    def test_state_of_one_kernel_that_was_loaded_bad_is_not_told_for_certain_as_made(self):
        origin = self.assert_anomaly(LOADED.format(optimizer="AdamW(model.parameters(), fused=True)", key="exp_avg", bad="nan"),
                                     step=3, param="2.weight")["origin"]
        self.assertFalse(origin["class"] == "produce" and origin["exact"], origin)


if __name__ == "__main__":
    main()
