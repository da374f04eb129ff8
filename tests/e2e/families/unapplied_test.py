# SPDX-License-Identifier: Apache-2.0
"""Bad gradients under a finite loss, of which the program makes no update, and what only looks so.

An update that is left out, a gradient that is repaired or thrown away: the training went on and nothing was ruined."""
from watched_program import WatchedProgramTest, main

# A gradient of NaN at `bad` steps: the slope of the square root at 0.
TRAINING = """
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.01)
for step in range({steps}):
    out = model(torch.randn(6, 4))
    target = out.detach() if {bad} else torch.randn(6, 2)
    loss = (out - target).square().sum(1).sqrt().mean()
    optimizer.zero_grad()
    loss.backward()
    {update}
"""
LOOKED_AT = "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


def training(update, bad="step == 3", optimizer="Adam", steps=8):
    return TRAINING.format(update=update.replace("\n", "\n    "), bad=bad, optimizer=optimizer, steps=steps)


class Unapplied(WatchedProgramTest):
    def test_update_left_out_where_the_norm_is_not_finite(self):
        for optimizer in ("SGD", "Adam"):
            with self.subTest(optimizer):
                self.assert_no_alarm(training(LOOKED_AT + "\nif torch.isfinite(norm): optimizer.step()", optimizer=optimizer))

    def test_update_left_out_again_and_again(self):
        self.assert_no_alarm(training(LOOKED_AT + "\nif norm.isfinite(): optimizer.step()", bad="step % 3 == 1", steps=30))

    def test_error_of_the_clipping_that_is_caught(self):
        self.assert_no_alarm(training("try:\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)\n"
                                      "except RuntimeError:\n    continue\noptimizer.step()"))

    def test_gradients_repaired_before_the_update(self):
        self.assert_no_alarm(training("for p in model.parameters(): torch.nan_to_num_(p.grad, 0.0, 0.0, 0.0)\noptimizer.step()"))

    def test_gradients_dropped_one_by_one(self):
        self.assert_no_alarm(training("for p in model.parameters():\n    if not p.grad.isfinite().all(): p.grad = None\n"
                                      "optimizer.step()"))

    def test_scale_of_ones_own_that_is_halved(self):
        self.assert_no_alarm("""
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Linear(8, 4)
half = nn.Linear(8, 4).half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scale = 2.0 ** 20
for step in range(14):
    half.load_state_dict(model.state_dict())
    loss = half(torch.randn(6, 8).half()).float().square().mean()
    half.zero_grad()
    (loss * scale).backward()
    if not all(p.grad.isfinite().all() for p in half.parameters()):
        scale /= 2
        continue
    for p, h in zip(model.parameters(), half.parameters()): p.grad = h.grad.float() / scale
    optimizer.step()
""")

    def test_update_by_hand_that_is_left_out(self):
        self.assert_no_alarm(training("for p in model.parameters():\n    if p.grad.isfinite().all():\n"
                                      "        with torch.no_grad(): p.sub_(0.01 * p.grad)"))

    def test_update_that_is_made(self):
        for optimizer in ("SGD", "Adam"):
            with self.subTest(optimizer):
                self.assert_anomaly(training(LOOKED_AT + "\noptimizer.step()", optimizer=optimizer), op="aten::div",
                                    phase="backward", step=3)

    def test_update_made_after_others_were_left_out(self):
        self.assert_anomaly(training(LOOKED_AT + "\nif norm.isfinite() or step == 7: optimizer.step()",
                                     bad="step in (3, 7)", steps=9), op="aten::div", phase="backward")

    def test_update_of_the_second_of_two_optimizers(self):
        self.assert_anomaly("""
import torch, torch.nn as nn
torch.manual_seed(0)
first, second = nn.Linear(4, 2), nn.Linear(4, 2)
optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (first, second)]
for step in range(6):
    x = torch.randn(6, 4)
    out = second(x)
    target = out.detach() if step == 3 else torch.randn(6, 2)
    for o in optimizers: o.zero_grad()
    ((out - target).square().sum(1).sqrt().mean() + first(x).square().mean()).backward()
    for o in optimizers: o.step()
""", op="aten::div", phase="backward", step=3)

    def test_program_that_ends_by_itself_at_the_bad_gradient(self):
        self.assert_anomaly(training(LOOKED_AT + "\nif not norm.isfinite(): break\noptimizer.step()"), op="aten::div",
                            phase="backward", step=3)


# A loss that is bad at two steps, which the program checks.
CHECKED = """
import math, torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(12):
    out = model(torch.randn(6, 4))
    loss = ({bad} if step in (4, 8) else out.square()).mean()
    optimizer.zero_grad()
    {update}
"""
BAD_LOSSES = ("torch.log(out - 1e4)", "(out - 1e30).square()")
CHECKS = ("not math.isfinite(loss.item())", "not torch.isfinite(loss)", "loss.isnan() or loss.isinf()")


class LossesLeftOut(WatchedProgramTest):
    def test_step_that_is_left_out_where_its_loss_is_bad(self):
        for bad in BAD_LOSSES:
            for check in CHECKS:
                with self.subTest(bad=bad, check=check):
                    update = f"if {check}: continue\n    loss.backward()\n    optimizer.step()"
                    self.assert_no_alarm(CHECKED.format(bad=bad, update=update))

    def test_step_that_is_left_out_where_the_norm_of_its_gradients_is_bad(self):
        update = ("loss.backward()\n    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                  "    if not {}: continue\n    optimizer.step()")
        for check in ("torch.isfinite(norm)", "norm.isfinite()", "math.isfinite(norm.item())"):
            with self.subTest(check):
                self.assert_no_alarm(CHECKED.format(bad="(out * 0 / torch.zeros(1))", update=update.format(check)))

    def test_steps_that_are_left_out_one_after_another(self):
        norm = "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    if not norm.isfinite(): continue"
        for check in ("if not torch.isfinite(loss): continue", norm):
            with self.subTest(check):
                text = CHECKED.format(bad="(out * 0 / torch.zeros(1))", update=f"loss.backward()\n    {check}\n    optimizer.step()")
                self.assert_no_alarm(text.replace("step in (4, 8)", "3 <= step < 10"))

    def test_scale_of_ones_own_that_overflows_the_loss(self):
        self.assert_no_alarm("""
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Linear(4, 1).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scale = 2.0 ** 16
for step in range(12):
    loss = (model(torch.randn(8, 4).half()) - 2).pow(2).mean()
    optimizer.zero_grad()
    (loss * scale).backward()
    if not all(p.grad.isfinite().all() for p in model.parameters()):
        scale /= 2
        continue
    for p in model.parameters(): p.grad /= scale
    optimizer.step()
""")

    def test_bad_loss_that_is_read_and_used_all_the_same(self):
        update = "value = loss.item()\n    loss.backward()\n    optimizer.step()"
        self.assert_anomaly(CHECKED.format(bad=BAD_LOSSES[0], update=update), op="aten::log", phase="forward", step=4)

    def test_program_that_ends_at_its_bad_loss(self):
        update = "if not math.isfinite(loss.item()): break\n    loss.backward()\n    optimizer.step()"
        self.assert_anomaly(CHECKED.format(bad=BAD_LOSSES[0], update=update), op="aten::log", phase="forward", step=4)


if __name__ == "__main__":
    main()
