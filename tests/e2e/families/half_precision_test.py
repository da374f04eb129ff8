# SPDX-License-Identifier: Apache-2.0
"""Numbers too large or too small for their type: casts, sums and powers that overflow, epsilons that underflow."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

FORWARD = {"kind": "op", "class": "produce", "phase": "forward"}
SGD = {"optimizer": "torch.optim.SGD(model.parameters(), lr=1e-4)"}
AUTOCAST = """
with torch.autocast("cpu", dtype=torch.float16):
    loss = model(x).float().pow(2).mean()
"""


class HalfPrecision(WatchedProgramTest):
    def test_linear_layer_under_autocast(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.LayerNorm(8))", before="""
            x = x.abs()
            if step == 2:
                for m in model[:2]:
                    m.weight.data.fill_(200.0)""", forward=AUTOCAST, **SGD), layer="1", layer_type="Linear", step=2, **FORWARD)

    def test_convolution_in_a_half_precision_model(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)).half()", forward="""
            images = torch.ones(2, 3, 6, 6) * (0.1 if step < 2 else 6e4)
            model[0].weight.data.abs_()
            loss = model(images.half()).float().pow(2).mean()""", **SGD), layer="0", step=2, **FORWARD)

    def test_attention_scores_without_scaling(self):
        self.assert_anomaly(training(layer("q = h * self.scale\nreturn (q @ q.transpose(-1, -2)).softmax(-1) @ h",
                                           "self.scale = 1.0", "Attend", "h"),
                                     model="nn.Sequential(nn.Linear(6, 8), Attend()).half()",
                                     before="model[1].scale = 1.0 if step < 3 else 4e2\nx = x[None]",
                                     loss="model(x.half()).float().pow(2).mean()", **SGD), layer="1", step=3, **FORWARD)

    def test_cast_of_a_finite_activation(self):
        self.assert_anomaly(with_layer("return (h * given[0]).half().float()", given="1e6 if step == 3 else 1.0"),
                            op="aten::_to_copy", layer="odd", step=3, **FORWARD)

    def test_cast_of_a_module_under_autocast(self):
        """An activation of float32 that the next layer's autocast cannot hold."""
        self.assert_anomaly(training(layer("return h.float() * self.gain", "self.gain = 1.0", "Gain", "h"),
                                     model="nn.Sequential(nn.Linear(6, 8), Gain(), nn.Linear(8, 2))",
                                     before="model[1].gain = 1.0 if step < 2 else 1e7",
                                     forward=AUTOCAST, **SGD), op="aten::_to_copy", layer="2", step=2, **FORWARD)

    def test_cast_to_bfloat16_of_a_float64(self):
        self.assert_anomaly(with_layer("return (h.double() * given[0]).to(torch.bfloat16).float()",
                                       given="1e60 if step == 1 else 1.0"),
                            op="aten::_to_copy", layer="odd", step=1, **FORWARD)

    def test_cast_back_of_a_gradient(self):
        """The gradient of a cast is a cast: float32 above what float16 holds."""
        self.assert_anomaly(with_layer("return self.inner(h.half()).float() * given[0]", init="self.inner = nn.Identity()",
                                       loss="model(x, 1e12 if step == 2 else 1.0).sum() * 1e-3"),
                            op="aten::_to_copy", autograd_node="ToCopyBackward0", phase="backward", layer="odd", step=2,
                            kind="op", **{"class": "produce"})

    def test_sum_of_squares_in_half_precision(self):
        self.assert_anomaly(with_layer("z = (h * given[0]).half()\nreturn (z * z.pow(2).sum(-1, keepdim=True).sqrt()).float()",
                                       given="300.0 if step == 2 else 1.0"),
                            layer="odd", step=2, **FORWARD)

    def test_exponential_in_half_precision(self):
        self.assert_anomaly(with_layer("e = torch.exp((h * given[0]).half())\nreturn (e / e.sum(-1, keepdim=True)).float()",
                                       given="40.0 if step == 2 else 1.0"),
                            op="aten::exp", layer="odd", step=2, **FORWARD)

    def test_loss_in_half_precision(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2).half()",
                                     loss="(model(x.half()) - (300.0 if step == 2 else 0.0)).pow(2).mean()", **SGD),
                            op="aten::pow", layer="", step=2, **FORWARD)

    def test_parameter_too_large_for_half_precision(self):
        incident = self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))", steps=3, before="""
            if step == 1:
                model[1].weight.data.mul_(1e6)
                model.half()
            x = x.to(model[0].weight.dtype)""", **SGD), op="aten::_to_copy", step=1)
        self.assertIn(incident["origin"]["kind"], ("op", "parameter"))

    def test_epsilon_that_underflows_under_a_root(self):
        self.assert_anomaly(with_layer("z = (h * given[0]).half()\nreturn (z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + "
                                       "1e-9)).float()",
                                       given="1e-6 if step == 2 else 1.0"), op="aten::rsqrt", layer="odd", step=2, **FORWARD)

    def test_epsilon_that_underflows_in_a_quotient(self):
        self.assert_anomaly(with_layer("z = (h.abs() * given[0]).half()\nreturn (z / (z.sum(-1, keepdim=True) + 1e-8)).float()",
                                       given="1e-9 if step == 2 else 1.0"), op="aten::div", layer="odd", step=2, **FORWARD)

    def test_probability_that_underflows_before_its_logarithm(self):
        self.assert_anomaly(with_layer("p = torch.softmax((h * given[0]).half(), -1)\nreturn torch.log(p).float()",
                                       given="60.0 if step == 2 else 1.0"),
                            op="aten::log", layer="odd", step=2, **FORWARD)

    def test_static_loss_scale_that_is_too_large(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)",
                                     loss="(model(x).half().pow(2).mean() * (1e7 if step == 3 else 8.0))", **SGD),
                            op="aten::mul", layer="", step=3, **FORWARD)

    def test_bfloat16_has_the_range_of_float32(self):
        self.assert_no_alarm(training(model="nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 2)).bfloat16()",
                                      loss="model((x * 1e6).bfloat16()).float().pow(2).mean()", **SGD), "clean")

    def test_lowest_number_as_a_mask_in_half_precision(self):
        self.assert_no_alarm(with_layer("z = h.half()\nreturn z.masked_fill(torch.eye(4, 8).bool(), "
                                        "torch.finfo(z.dtype).min).softmax(-1).float()"), "clean")

    def test_mask_of_float32_cast_to_half(self):
        """finfo.min of the wide type does not fit the narrow one: -Inf, and still a mask that softmax takes away."""
        self.assert_no_alarm(with_layer("mask = torch.zeros(4, 8).masked_fill(torch.eye(4, 8).bool(), "
                                        "torch.finfo(torch.float32).min)\n"
                                        "return (h.half() + mask.half()).softmax(-1).float()"))


if __name__ == "__main__":
    main()
