# SPDX-License-Identifier: Apache-2.0
"""Branches that torch.where, an index or a repair throws away, whose NaN comes back in the gradient."""
from training import with_layer
from watched_program import WatchedProgramTest, main

FORWARD = {"kind": "op", "class": "produce", "phase": "forward", "layer": "odd"}
BACKWARD = {"kind": "op", "class": "produce", "phase": "backward", "layer": "odd"}
# Positive everywhere, but in step 2 the given tensor has an element that only the dead branch cannot take.
ZERO = {"given": "torch.rand(4, 8).masked_fill(torch.eye(4, 8).bool(), 0.0 if step == 2 else 0.5)"}
NEGATIVE = {"given": "torch.rand(4, 8).masked_fill(torch.eye(4, 8).bool(), -0.5 if step == 2 else 0.5)"}
SIZE = "z = h * 0 + given[0]\n"


class DeadBranches(WatchedProgramTest):
    def test_root_of_a_negative_is_saved_for_backward(self):
        self.assert_anomaly(with_layer(SIZE + "return h + torch.where(z > 0, torch.sqrt(z), z)", **NEGATIVE), op="aten::sqrt",
                            step=2, **FORWARD)

    def test_root_of_zero_is_finite_but_its_slope_is_not(self):
        self.assert_anomaly(with_layer(SIZE + "return h + torch.where(z > 0, z.sqrt(), torch.zeros_like(z))", **ZERO),
                            op="aten::div", autograd_node="SqrtBackward0", step=2, **BACKWARD)

    def test_logarithm_of_zero(self):
        """-Inf is not saved: what comes back is 0 / 0 in the division of its slope."""
        self.assert_anomaly(with_layer(SIZE + "return h + torch.where(z > 0, z.log(), 0.0)", **ZERO), op="aten::div",
                            autograd_node="LogBackward0", step=2, **BACKWARD)

    def test_logarithm_of_a_negative_has_a_finite_slope(self):
        self.assert_no_alarm(with_layer(SIZE + "return h + torch.where(z > 0, z.log(), 0.0)", **NEGATIVE))

    def test_exponential_that_overflows(self):
        self.assert_anomaly(with_layer("z = h * given[0]\nreturn torch.where(z <= 0, torch.exp(z), 1 + h)",
                                       given="1000.0 if step == 2 else 1.0"), op="aten::exp", step=2, **FORWARD)

    def test_softplus_written_by_hand(self):
        self.assert_anomaly(with_layer("z = h * given[0]\nreturn torch.where(z > 20, h, torch.log1p(torch.exp(z)))",
                                       given="1000.0 if step == 1 else 1.0"), op="aten::exp", step=1, **FORWARD)

    def test_elu_through_expm1(self):
        self.assert_anomaly(with_layer("z = h * given[0]\nreturn torch.where(z > 0, h, torch.expm1(z))",
                                       given="1000.0 if step == 2 else 1.0"), op="aten::expm1", step=2, **FORWARD)

    def test_quotient_by_zero(self):
        self.assert_anomaly(with_layer(SIZE + "return torch.where(z != 0, h / z, torch.zeros_like(h))", **ZERO), op="aten::div",
                            autograd_node="DivBackward0", step=2, **BACKWARD)

    def test_reciprocal_that_is_saved(self):
        self.assert_anomaly(with_layer(SIZE + "return h + torch.where(z > 0, z.reciprocal(), z)", **ZERO),
                            op="aten::reciprocal", step=2, **FORWARD)

    def test_inverse_root_that_is_saved(self):
        self.assert_anomaly(with_layer(SIZE + "return h * torch.where(z > 0, torch.rsqrt(z), 1.0)", **ZERO), op="aten::rsqrt",
                            step=2, **FORWARD)

    def test_fractional_power_of_a_negative_is_taken_again_in_backward(self):
        self.assert_anomaly(with_layer(SIZE + "return h + torch.where(z > 0, z ** 0.5, z)", **NEGATIVE), op="aten::pow",
                            autograd_node="PowBackward0", step=2, **BACKWARD)

    def test_arc_cosine_outside_of_its_domain(self):
        self.assert_anomaly(with_layer("z = h * given[0]\nreturn torch.where(z.abs() < 1, torch.acos(z), h)",
                                       given="30.0 if step == 2 else 0.5"), op="aten::rsqrt", autograd_node="AcosBackward0",
                            step=2, **BACKWARD)

    def test_arc_hyperbolic_tangent_at_one(self):
        self.assert_anomaly(with_layer(SIZE + "return h + torch.where(z < 1, torch.atanh(z), z)",
                                       given="torch.rand(4, 8).masked_fill(torch.eye(4, 8).bool(), 1.0 if step == 2 else 0.5)"),
                            phase="backward", autograd_node="AtanhBackward0", layer="odd", step=2)

    def test_rows_that_an_index_drops(self):
        self.assert_anomaly(with_layer("y = torch.sqrt(h * 0 + given[0])\nreturn h + y[given[0].min(-1).values > 0].sum()",
                                       **NEGATIVE),
                            op="aten::sqrt", step=2, **FORWARD)

    def test_elements_that_masked_select_drops(self):
        self.assert_anomaly(with_layer(SIZE + "return h + torch.masked_select(z.sqrt(), z > 0).mean()", **NEGATIVE),
                            op="aten::sqrt", step=2, **FORWARD)

    def test_repair_by_nan_to_num_repairs_the_forward_only(self):
        self.assert_anomaly(with_layer(SIZE + "return h + torch.nan_to_num(torch.sqrt(z))", **NEGATIVE),
                            op="aten::sqrt", step=2, **FORWARD)

    def test_repair_by_where_isnan(self):
        self.assert_anomaly(with_layer(SIZE + "r = z.sqrt()\nreturn h + torch.where(r.isnan(), torch.zeros_like(r), r)",
                                       **NEGATIVE),
                            op="aten::sqrt", step=2, **FORWARD)

    def test_repair_by_masked_fill_in_place(self):
        self.assert_anomaly(with_layer(SIZE + "r = torch.sqrt(z) * 1.0\nr[torch.isnan(r)] = 0.0\nreturn h + r", **NEGATIVE),
                            op="aten::sqrt", step=2, **FORWARD)

    def test_repair_by_clamp_after_the_logarithm(self):
        self.assert_anomaly(with_layer(SIZE + "return h + torch.log(z).clamp(min=-10.0)", **ZERO), op="aten::div",
                            autograd_node="LogBackward0", step=2, **BACKWARD)

    def test_repair_that_multiplies_by_the_mask(self):
        """0 * -Inf is NaN at once: it never was a branch."""
        self.assert_anomaly(with_layer(SIZE + "return h + z.log() * (z > 0)", **ZERO), op="aten::log", step=2, **FORWARD)

    def test_input_made_safe_before_the_branch(self):
        self.assert_no_alarm(with_layer(SIZE + "return h + torch.where(z > 0, torch.sqrt(z.clamp(min=1e-8)), z)", **NEGATIVE),
                             "clean")

    def test_dead_logarithm_without_gradients(self):
        self.assert_no_alarm(with_layer("with torch.no_grad():\n    z = torch.where(given[0] > 0, given[0].log(), "
                                        "0.0)\nreturn h + z", **ZERO))

    def test_dead_branch_of_data_that_needs_no_gradient(self):
        self.assert_no_alarm(with_layer("return h + torch.where(given[0] > 0, torch.sqrt(given[0]), 0.0)", **NEGATIVE))

    def test_dead_branch_in_evaluation(self):
        self.assert_no_alarm(with_layer(
            "if self.training:\n    return h\nreturn torch.where(h > 0, h.log(), h)",
            after="model.eval()\nwith torch.inference_mode():\n    model(x)\nmodel.train()"))


if __name__ == "__main__":
    main()
