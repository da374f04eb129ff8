# SPDX-License-Identifier: Apache-2.0
"""Mixed precision with a gradient scaler, which makes Inf on purpose to find its scale.

Skips at the beginning are by design; for ever, or below a scale of 1, they are not."""
from training import layer, training
from watched_program import WatchedProgramTest, main

CPU = 'torch.amp.GradScaler("cpu", init_scale={})'
STEP = "scaler.scale(loss).backward()\nscaler.step(opt)\nscaler.update()"
AUTOCAST = """
with torch.autocast("cpu", dtype=torch.float16):
    out = model(x)
    loss = (out.float() - TARGET).pow(2).mean()
"""


def scaled(model="nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))", scale="2.0 ** 16", target="5", backward=STEP,
           prepare="", steps=20, definitions="", **more):
    more.setdefault("optimizer", "torch.optim.SGD(model.parameters(), lr=1e-3)")
    return training(definitions, model=model, prepare=f"scaler = {CPU.format(scale)}\n" + prepare, backward=backward,
                    steps=steps,
                    forward=more.pop("forward", AUTOCAST.replace("TARGET", target)), **more)


class Scaler(WatchedProgramTest):
    def test_first_steps_are_skipped_until_the_scale_fits(self):
        self.assert_no_alarm(scaled(scale="2.0 ** 20", target="50"))

    def test_scale_that_takes_more_than_ten_halvings_to_fit(self):
        self.assert_no_alarm(scaled(scale="2.0 ** 28", target="50", steps=30))

    def test_skips_with_gradients_unscaled_and_clipped(self):
        self.assert_no_alarm(scaled(scale="2.0 ** 20", target="50", optimizer="torch.optim.AdamW(model.parameters(), lr=1e-3)",
                                    backward="""
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()"""))

    def test_step_that_a_fused_optimizer_skips_counts_once(self):
        steps = [int(self.verdict_of(scaled(scale="2.0 ** 20", target="50",
                                            optimizer=f"torch.optim.AdamW(model.parameters(), lr=1e-3, fused={fused})"))
                     ["coverage"]["steps"]) for fused in (False, True)]
        self.assertEqual(steps[0], steps[1])

    def test_skips_of_a_fused_optimizer(self):
        self.assert_no_alarm(scaled(scale="2.0 ** 20", target="50",
                                    optimizer="torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)"))

    def test_skips_under_accumulation(self):
        self.assert_no_alarm(scaled(scale="2.0 ** 20", target="50",
                                    backward="scaler.scale(loss / 2).backward()\nif step % 2:\n    scaler.step(opt)\n    "
                                             "scaler.update()")
                             .replace("    opt.zero_grad()\n", "    if step % 2 == 0:\n        opt.zero_grad()\n"))

    def test_scale_that_overflows_the_loss_itself(self):
        """loss * scale is infinite though the loss is not."""
        self.assert_no_alarm(scaled(scale="1e38", target="50", steps=5, prepare="scaler.set_growth_interval(100)",
                                    after="if step == 1:\n    scaler = "
                                          "torch.amp.GradScaler('cpu', init_scale=64.0)"))

    def test_skips_by_growth_in_the_middle_of_training(self):
        self.assert_no_alarm(scaled(scale="2.0 ** 12", target="50", prepare="scaler.set_growth_interval(2)", steps=40))

    def test_two_optimizers_share_a_scaler(self):
        self.assert_no_alarm(scaled(scale="2.0 ** 20", target="50", optimizer="torch.optim.SGD(model[0].parameters(), lr=1e-3)",
                                    prepare="other = torch.optim.Adam(model[2].parameters())",
                                    backward="other.zero_grad()\nscaler.scale(loss).backward()\n"
                                             "scaler.step(opt)\nscaler.step(other)\nscaler.update()"))

    def test_single_slope_at_zero_that_the_scaler_skips(self):
        self.assert_no_alarm(scaled(scale="64.0", forward="loss = torch.sqrt((model(x) * (step != 5)).abs()).mean()"))

    def test_scaler_that_is_switched_off_skips_nothing(self):
        self.assert_anomaly(scaled(forward="loss = torch.sqrt((model(x) * (step != 5)).abs()).mean()",
                                   prepare="scaler = torch.amp.GradScaler('cpu', enabled=False)"),
                            op="aten::div", autograd_node="SqrtBackward0", phase="backward", step=5)

    def test_loss_that_is_nan_before_it_is_scaled(self):
        self.assert_anomaly(scaled(scale="64.0", forward="loss = (model(x) / (step != 5)).pow(2).mean()"), op="aten::div",
                            phase="forward", layer="", step=5)

    def test_forward_overflow_that_skips_for_ever(self):
        self.assert_anomaly(scaled("nn.Sequential(nn.Linear(6, 8), Square(), nn.Linear(8, 2))", "64.0", "1",
                                   definitions=layer("return h ** 2", name="Square", given="h"),
                                   before="x = x * (400.0 if step >= 4 else 1.0)", steps=30), op="aten::pow", phase="forward",
                            layer="1", step=4)

    def test_model_that_is_filled_after_a_pass_has_made_no_step(self):
        """All updates are skipped, so writes to parameters are all that could count. The healthy step before counts as one."""
        self.assert_anomaly(scaled("nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), Overflows(), nn.Linear(8, 2))", "64.0", "1",
                                   definitions=layer("return torch.sinh(h + 1000)", name="Overflows", given="h") + """
torch.ones(3, requires_grad=True).pow(2).sum().backward()
""", forward="loss = model(x).pow(2).mean()", steps=3), op="aten::sinh", layer="2", step=1, step_source="scaler")

    def test_slope_that_is_infinite_in_every_step(self):
        """Nothing in forward is bad, and no scale helps: it sinks below 1."""
        self.assert_anomaly(scaled(scale="64.0", steps=30, forward="loss = torch.sqrt((model(x) * (step < 5)).abs()).mean()"),
                            op="aten::div", autograd_node="SqrtBackward0", phase="backward", step=5)

    def test_gradients_too_large_for_half_precision_at_any_scale(self):
        self.assert_anomaly(scaled(scale="16.0", steps=30, forward="""
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(x).float() * (1e7 if step >= 3 else 1.0)).sum()"""), phase="backward", step=3)

    def test_healthy_training_with_a_scaler(self):
        self.assert_no_alarm(scaled(scale="16.0", target="0"), "clean")

    def test_steps_that_were_skipped_do_not_count(self):
        incident = self.assert_anomaly(scaled(scale="2.0 ** 20", target="50", steps=30, forward="""
            skips = 0 if step == 0 else skips + (scaler.get_scale() < before)
            before = scaler.get_scale()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(x).float() - 50).pow(2).mean()
            loss = loss / (step < 25)"""), op="aten::div", phase="forward")
        self.assertEqual(incident["origin"]["iteration"], 25)
        self.assertLess(incident["origin"]["step"], 25)


if __name__ == "__main__":
    main()
