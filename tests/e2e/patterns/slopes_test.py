# SPDX-License-Identifier: Apache-2.0
"""Slopes that are infinite where the value is fine."""
from pattern_program import CLEAN, EXPECTED, PatternTest, main, program, resembles, triggers
from training import LENGTH  # its folder is known by pattern_program

AT_ZERO = "h = x * 0 if step == 2 else x.abs()\n"
DEAD_UNITS = "if step == 2: x[0] = 0\nmodel.first.bias.data.fill_(-0.1)"
PENALTY = """
    x.requires_grad_()
    score = model(x).sum(1)
    slope, = torch.autograd.grad(score.sum(), x, create_graph=True)
    loss = score.mean() + (({norm} - 1) ** 2).mean()"""


class Roots(PatternTest):
    @triggers("sqrt-slope-at-zero", "48 of 48 values, first at [0, 0], in SqrtBackward0", phase="backward", layer="layer", step=2)
    def test_root_of_zero(self):
        return program(AT_ZERO + "return torch.sqrt(h)")

    @triggers("sqrt-slope-at-zero", "1 of 6 values, first at [0], in SqrtBackward0", phase="backward")
    def test_gradient_penalty_of_a_gradient_of_zero(self):
        return program("return torch.relu(x)", before=DEAD_UNITS, loss=PENALTY.format(norm="slope.pow(2).sum(1).sqrt()"))

    @resembles("sqrt-slope-at-zero", instead=EXPECTED)
    def test_gradient_penalty_with_a_norm_that_knows_zero(self):
        return program("return torch.relu(x)", before=DEAD_UNITS, loss=PENALTY.format(norm="slope.norm(dim=1)"))

    @resembles("sqrt-slope-at-zero", instead="division-by-zero-in-backward", op="aten::div")
    def test_quotient_in_backward(self):
        return program("d = torch.arange(8.) if step == 2 else torch.ones(8)\nr = x / d\nreturn torch.where(d > 0, r, x)")

    @triggers("power-slope-at-zero", "48 of 48 values, first at [0, 0], in PowBackward0", phase="backward", op="aten::pow")
    def test_power_below_one_of_zero(self):
        return program(AT_ZERO + "return h ** 0.3")

    @resembles("power-slope-at-zero", instead=CLEAN)
    def test_power_above_one_of_zero(self):
        return program(AT_ZERO + "return h ** 1.3")

    @resembles("power-slope-at-zero", instead="power-of-negative", phase="forward")
    def test_power_of_a_negative_number(self):
        return program("return (x + (5 if step != 2 else 0)) ** 0.3")


class Arcs(PatternTest):
    @triggers("arc-slope-at-one", "48 of 48 values, first at [0, 0], in AcosBackward0", phase="backward", layer="layer")
    def test_angle_between_equal_directions(self):
        return program("return torch.acos(x * 0 + 1 if step == 2 else torch.tanh(x))")

    @resembles("arc-slope-at-one", instead="arc-outside-its-domain", phase="forward", op="aten::acos")
    def test_cosine_above_one(self):
        return program("return torch.acos(x * 0 + 1.0000002 if step == 2 else torch.tanh(x))")


    @triggers("acosh-slope-at-one", "48 of 48 values, first at [0, 0], in AcoshBackward0", phase="backward", layer="layer")
    def test_hyperbolic_distance_of_zero(self):
        return program("return torch.acosh(x * 0 + 1 if step == 2 else x.abs() + 2)")

    @resembles("acosh-slope-at-one", instead="arc-outside-its-domain", phase="forward", op="aten::acosh")
    def test_hyperbolic_distance_of_less_than_zero(self):
        return program("return torch.acosh(x * 0 + 0.9999 if step == 2 else x.abs() + 2)")

    @resembles("acosh-slope-at-one", instead=CLEAN)
    def test_slope_of_asinh(self):
        return program("return torch.asinh(x * 0 + 1 if step == 2 else x)")


class Eigenvectors(PatternTest):
    @triggers("repeated-eigenvalues", "in LinalgEighBackward0", op="aten::div_", layer="layer", phase="backward")
    def test_vectors_of_equal_eigenvalues(self):
        return program("m = torch.eye(8) + (x.T @ x) * (0 if step == 2 else 1)\nreturn x @ torch.linalg.eigh(m)[1]", steps=3)

    @triggers("repeated-eigenvalues", "in LinalgSvdBackward0", layer="layer", phase="backward")
    def test_vectors_of_equal_singular_values(self):
        return program("m = torch.eye(8) + (x.T @ x) * (0 if step == 2 else 1)\nu, s, v = torch.linalg.svd(m)\nreturn x @ u @ v", steps=3)

    @resembles("repeated-eigenvalues", instead=CLEAN)
    def test_equal_eigenvalues_without_their_vectors(self):
        return program("m = torch.eye(8) + (x.T @ x) * (0 if step == 2 else 1)\nreturn x * torch.linalg.eigvalsh(m)")


class HandWritten(PatternTest):
    @triggers("custom-function-backward", "48 of 48 values, first at [0, 0], in LengthBackward", op="aten::div", layer="layer")
    def test_length_of_zero_in_an_autograd_function(self):
        return program("return Length.apply(x * 0 if step == 2 else x) + x", top=LENGTH.format(divisor="length"))

    @resembles("custom-function-backward", instead=CLEAN)
    def test_guarded_length_in_an_autograd_function(self):
        return program("return Length.apply(x * 0 if step == 2 else x) + x", top=LENGTH.format(divisor="(length + 1e-12)"))

    @resembles("custom-function-backward", instead="division-by-zero", phase="forward", layer="layer")
    def test_forward_of_an_autograd_function(self):
        return program("h = Length.apply(x * 0 if step == 2 else x)\nreturn x / h", top=LENGTH.format(divisor="(length + 1e-12)"))


class Branches(PatternTest):
    @triggers("dead-branch-in-backward", "values, first at [0, 0]", op="aten::sqrt", layer="layer", phase="forward")
    def test_root_that_where_does_not_select(self):
        return program("h = x + (0 if step == 2 else 9)\nreturn torch.where(h > 0, torch.sqrt(h), 0 * x)")

    @triggers("exp-overflow-in-backward", "values, first at [0, 6]", op="aten::exp", layer="layer")
    def test_exponential_that_where_does_not_select(self):
        return program("h = x * (200 if step == 2 else 1)\nreturn torch.where(h < 50, torch.exp(h), 1 + x)")

    @triggers("exp-overflow-in-backward", "values, first at [", op="aten::exp", layer="layer", phase="forward")
    def test_sigmoid_by_hand(self):
        return program("return 1 / (1 + torch.exp(-x * (200 if step == 2 else 1)))")

    @resembles("exp-overflow-in-backward", instead=CLEAN)
    def test_sigmoid(self):
        return program("return torch.sigmoid(x * (200 if step == 2 else 1))")

    @triggers("dead-branch-in-backward", "values, first at [0, 0]", op="aten::log", layer="layer", phase="forward")
    def test_infinity_that_a_tanh_takes_in(self):
        return program("self.h = torch.log(x * 0 if step == 2 else x * 0 + 2)\nreturn torch.tanh(F.linear(self.h, torch.ones(8, 8) * self.scale))",
                       init="self.scale = nn.Parameter(torch.ones(()))")

    @resembles("dead-branch-in-backward", instead="exp-overflow-in-backward", op="aten::exp")
    def test_softplus_by_hand_behind_a_quotient(self):
        return program("return x + 1 / (1 + torch.exp(x * 0 + (200 if step == 2 else 1)))")

    @resembles("dead-branch-in-backward", instead=EXPECTED)
    def test_argument_that_is_made_safe_first(self):
        return program("mask = torch.zeros(8).masked_fill(torch.arange(8) > 6, -math.inf)\n"
                       "h = x + (0 if step == 2 else 9)\nreturn torch.where(h > 0, torch.sqrt(torch.where(h > 0, h, 1)), 0 * x)")

    @resembles("dead-branch-in-backward", instead="division-by-zero", op="aten::div_")
    def test_division_of_gradients_by_hand(self):
        return program(update="""
            loss.backward()
            gradients = [p.grad for p in model.parameters()]
            norm = sum(g.pow(2).sum() for g in gradients).sqrt() * (0 if step == 2 else 1)
            for g in gradients: g.div_(norm)
            optimizer.step()""")

    @resembles("dead-branch-in-backward", instead="division-by-zero", op="aten::div", reach=["activation", "gradient", "loss", "parameter"])
    def test_gradients_that_the_program_sets(self):
        return program(update="""
            loss.backward()
            for p in model.parameters(): p.grad = p.grad / (p.grad.norm() * (0 if step == 2 else 1))
            optimizer.step()""")

    @triggers("division-by-zero-in-backward", "6 of 48 values, first at [0, 0], in DivBackward0", layer="layer", phase="backward")
    def test_quotient_that_where_does_not_select(self):
        return program("d = torch.arange(8.) if step == 2 else torch.ones(8)\nr = x / d\nreturn torch.where(d > 0, r, x)")

    @triggers("division-by-zero-in-hook", "48 of 48 values, first at [0, 0], in ", phase="backward", op="aten::div")
    def test_gradient_divided_by_its_norm_in_a_hook(self):
        return program("x.register_hook(lambda g: g / (g.norm() * (0 if step == 2 else 1)))\nreturn x")

    @resembles("division-by-zero-in-hook", instead="division-by-zero-in-backward", op="aten::div")
    def test_gradient_divided_in_the_backward_of_an_op(self):
        return program("d = torch.arange(8.) if step == 2 else torch.ones(8)\nr = x / d\nreturn torch.where(d > 0, r, x)")

    @resembles("division-by-zero-in-backward", instead="division-by-zero", phase="forward", layer="layer")
    def test_quotient_that_is_used(self):
        return program("return x / (torch.arange(8.) if step == 2 else torch.ones(8))")


if __name__ == "__main__":
    main()
