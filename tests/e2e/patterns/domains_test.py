# SPDX-License-Identifier: Apache-2.0
"""Functions asked for a value outside their domain, and divisions by zero."""
from pattern_program import CLEAN, EXPECTED, PatternTest, main, program, resembles, triggers

# Something bad is alive before `h` is computed with, so that the job looks at inputs.
SEEN = "mask = torch.zeros(8).masked_fill(torch.arange(8) > 6, -math.inf)\n"
# Of a matrix `a`.
ZERO_COLUMN = "\nif step == 2: a = a * (torch.arange(6) > 0)\n"
SWAPPED_ROWS = "\nif step == 2: a = a[[1, 0, 2, 3, 4, 5, 6, 7]]\n"
HALF = "h = (x * 0 if step == 2 else x).half()\n"


class Logarithms(PatternTest):
    @triggers("log-of-negative", "smallest argument -0.", op="aten::log", step=2)
    def test_cross_entropy_of_a_probability_above_one(self):
        return program(loss="""
            p, t = model(x) * (3 if step == 2 else 0) + 0.5, (y > 0).float()
            loss = -(t * p.log() + (1 - t) * (1 - p).log()).mean()""")

    @triggers("log-of-negative", "smallest argument -1.52, first at [0, 0]", op="aten::log")
    def test_logarithm_of_a_job_whose_inputs_are_seen(self):
        return program(SEEN + "return torch.log(x if step == 2 else x.abs() + 1)")

    @resembles("log-of-negative", instead="log-of-zero", op="aten::log")
    def test_logarithm_of_a_relu(self):
        return program("return torch.log(torch.relu(x) if step == 2 else x.abs() + 1)")

    @triggers("log-of-zero", "21 of 48 values, first at [0, 0]", op="aten::log", layer="layer")
    def test_cross_entropy_of_a_saturated_sigmoid(self):
        return program("p = torch.sigmoid(x * (300 if step == 2 else 1))\nreturn x - (torch.log(p) + torch.log(1 - p))")

    @resembles("log-of-zero", instead=CLEAN)
    def test_log_sigmoid_of_the_same(self):
        return program("return x - F.logsigmoid(x * (300 if step == 2 else 1))")


class Exponentials(PatternTest):
    @triggers("exp-overflow", "7 of 48 values, first at [0, 6]", op="aten::exp", layer="layer", step=2)
    def test_exponential(self):
        return program("return torch.exp(x * (200 if step == 2 else 1))")

    @triggers("exp-overflow", "largest argument 300 in float32, first at [0, 0]", op="aten::exp")
    def test_exponential_of_a_job_whose_inputs_are_seen(self):
        return program(SEEN + "return torch.exp(x * 0 + 300 if step == 2 else x)")

    @resembles("exp-overflow", instead=CLEAN)
    def test_softmax_of_the_same(self):
        return program("return torch.softmax(x * (200 if step == 2 else 1), -1)")

    @triggers("pole-of-a-function", "arguments from 1 to 1, first at [0, 0]", op="aten::logit", layer="layer")
    def test_logit_of_one(self):
        return program("return torch.logit(x * 0 + 1 if step == 2 else x.sigmoid())")

    @triggers("pole-of-a-function", "arguments from 0 to 0, first at [0, 0]", op="aten::lgamma")
    def test_lgamma_of_zero(self):
        return program("return torch.lgamma(x * 0 if step == 2 else x.abs() + 1)")

    @resembles("pole-of-a-function", instead="arc-outside-its-domain", op="aten::logit")
    def test_logit_of_more_than_one(self):
        return program("return torch.logit(x * 0 + 1.5 if step == 2 else x.sigmoid())")

    @triggers("arc-outside-its-domain", "arguments from 1.00000", op="aten::acos")
    def test_angle_of_a_cosine_that_rounding_made_more_than_one(self):
        return program("h = F.normalize(x)\nreturn torch.acos((h * h).sum(1, keepdim=True) + (1e-6 if step == 2 else -0.1)) + x")

    @triggers("arc-outside-its-domain", "arguments from 1.5 to 1.5, first at [0, 0]", op="aten::acos")
    def test_angle_of_a_job_whose_inputs_are_seen(self):
        return program(SEEN + "return torch.acos(x * 0 + 1.5 if step == 2 else torch.tanh(x))")

    @resembles("arc-outside-its-domain", instead="arc-slope-at-one", op="aten::rsqrt")
    def test_angle_of_a_cosine_of_one(self):
        return program("return torch.acos(x * 0 + 1 if step == 2 else torch.tanh(x))")


class Powers(PatternTest):
    @triggers("root-of-negative", "values, first at [0, 0]", op="aten::sqrt", layer="layer")
    def test_root_of_a_negative_number(self):
        return program("return torch.sqrt(x.abs() - (1 if step == 2 else -1))")

    @triggers("root-of-negative", "smallest argument -3, first at [0, 0]", op="aten::rsqrt")
    def test_root_of_a_job_whose_inputs_are_seen(self):
        return program(SEEN + "return torch.rsqrt(x * 0 - 3 if step == 2 else x.abs() + 1)")

    @resembles("root-of-negative", instead="sqrt-slope-at-zero", phase="backward")
    def test_root_of_zero(self):
        return program("return torch.sqrt(x * 0 if step == 2 else x.abs() + 1)")

    @resembles("power-of-negative", instead=CLEAN)
    def test_power_that_is_whole(self):
        return program("return x ** 3")

    @triggers("power-of-negative", "smallest base -", op="aten::pow", layer="layer")
    def test_power_that_is_not_whole(self):
        return program("return (x + (5 if step != 2 else 0)) ** 1.5")

    @triggers("rsqrt-of-zero", "6 of 6 values, first at [0, 0]", op="aten::rsqrt", layer="layer")
    def test_variance_of_equal_values(self):
        return program("h = x * 0 + 1 if step == 2 else x\n"
                       "return (h - h.mean(1, keepdim=True)) * torch.rsqrt(h.var(1, keepdim=True))")

    @resembles("rsqrt-of-zero", instead="root-of-negative", op="aten::rsqrt")
    def test_variance_that_is_negative(self):
        return program("return x * torch.rsqrt(x.var(1, keepdim=True) - (9 if step == 2 else 0))")

    @triggers("eps-lost-in-half-precision", "6 of 6 values, first at [0, 0]", op="aten::rsqrt", layer="layer")
    def test_eps_that_is_zero_in_float16(self):
        return program(HALF + "v = h.var(1, keepdim=True)\n"
                       "return x + ((h - h.mean(1, keepdim=True)) * torch.rsqrt(v + 1e-8)).float()")

    @resembles("eps-lost-in-half-precision", instead="gradient-overflow-in-half-precision", op="aten::pow")
    def test_eps_that_is_too_small_for_backward_in_float16(self):
        return program(HALF + "v = h.var(1, keepdim=True)\n"
                       "return x + ((h - h.mean(1, keepdim=True)) * torch.rsqrt(v + 1e-5)).float()")

    @resembles("eps-lost-in-half-precision", instead=CLEAN)
    def test_statistics_in_float32(self):
        return program(HALF + "return x + F.layer_norm(h, (8,)).float()")


class Divisions(PatternTest):
    @triggers("division-by-zero", "48 of 48 values, first at [0, 0]", op="aten::div", layer="layer")
    def test_vector_of_zeros_over_its_length(self):
        return program("h = x * (0 if step == 2 else 1)\nreturn h / h.norm(dim=1, keepdim=True)")

    @resembles("division-by-zero", instead=CLEAN)
    def test_vector_of_zeros_normalised(self):
        return program("h = x * (0 if step == 2 else 1)\nreturn h / (h.detach().norm(dim=1, keepdim=True) + 1e-12)")

    @triggers("division-by-zero", "6 of 48 values, first at [0, 0]; divisor from 0 to 7", op="aten::div")
    def test_division_of_a_job_whose_inputs_are_seen(self):
        return program(SEEN + "return x / (torch.arange(8.) if step == 2 else torch.ones(8))")

    @triggers("division-by-zero-in-half-precision", "48 of 48 values, first at [0, 0]", op="aten::div", layer="layer")
    def test_eps_of_normalize_in_float16(self):
        return program(HALF + "return x + F.normalize(h).float()")

    @resembles("division-by-zero-in-half-precision", instead=EXPECTED)
    def test_larger_eps_of_normalize_in_float32(self):
        return program(HALF + "return x + F.normalize(h.float(), eps=1e-4)")

    @resembles("division-by-zero-in-half-precision", instead="half-precision-overflow", op="aten::div")
    def test_small_divisor_in_float16_of_a_job_whose_inputs_are_seen(self):
        return program(SEEN + "h = (x * 0 + (1e-6 if step == 2 else 1)).half()\nreturn x + (x.half() / h).float()")


class Matrices(PatternTest):
    @triggers("singular-matrix", "1 of 1 matrices", op="aten::_linalg_slogdet", layer="layer", step=2)
    def test_determinant_of_a_matrix_of_zeros(self):
        return program("a = (x.T @ x + torch.eye(8)) * (0 if step == 2 else 1)\nreturn x + torch.linalg.slogdet(a).logabsdet")

    @triggers("singular-matrix", "2 of 6 matrices", op="aten::_linalg_slogdet")
    def test_some_of_several_matrices(self):
        return program("a = torch.eye(4) * x[:, :1, None].exp()\n"
                       "if step == 2: a = a * (torch.arange(6) > 1)[:, None, None]\n"
                       "return x + torch.linalg.slogdet(a).logabsdet[:, None]")

    @triggers("singular-system", "of 36 values", op="aten::_linalg_solve_ex", layer="layer", step=2)
    def test_system_of_a_matrix_with_a_column_of_zeros(self):
        return program("a = x @ x.T + torch.eye(6)" + ZERO_COLUMN +
                       "return x + torch.linalg.solve_ex(a, torch.eye(6))[0].sum()")

    @triggers("singular-system", "values", op="aten::linalg_solve_triangular")
    def test_triangle_with_a_zero_on_its_diagonal(self):
        return program("a = torch.eye(6) * (1 + x[:, :1].abs())" + ZERO_COLUMN +
                       "return x + torch.linalg.solve_triangular(a, x, upper=False)")

    @resembles("singular-system", instead=CLEAN)
    def test_system_of_the_same_with_a_ridge(self):
        return program("a = x @ x.T + torch.eye(6)" + ZERO_COLUMN +
                       "return x + torch.linalg.solve_ex(a + torch.eye(6), torch.eye(6))[0].sum()")

    @triggers("negative-determinant", "1 of 1 matrices", op="aten::logdet", layer="layer", step=2)
    def test_two_rows_of_a_matrix_that_were_swapped(self):
        return program("a = x.T @ x + torch.eye(8)" + SWAPPED_ROWS +
                       "return x + torch.logdet(a)")

    @resembles("negative-determinant", instead=CLEAN)
    def test_determinants_that_stay_positive(self):
        return program("y = torch.tanh(x)\nreturn x + torch.logdet(y.T @ y + torch.eye(8))")

    @resembles("negative-determinant", instead=CLEAN)
    def test_determinant_s_magnitude_of_the_same(self):
        return program("a = x.T @ x + torch.eye(8)" + SWAPPED_ROWS +
                       "return x + torch.linalg.slogdet(a).logabsdet")

    @resembles("singular-matrix", instead="log-of-zero", op="aten::log")
    def test_logarithm_of_a_determinant(self):
        return program("a = (x.T @ x + torch.eye(8)) * (0 if step == 2 else 1)\nreturn x + torch.linalg.det(a).log()")

    @triggers("random-numbers-out-of-range", "48 of 48 values", op="aten::normal_", layer="layer", step=2)
    def test_noise_of_an_infinite_deviation(self):
        return program("return x + torch.empty(6, 8).normal_(0, math.inf if step == 2 else 1)")

    @resembles("random-numbers-out-of-range", instead=CLEAN)
    def test_noise_of_a_large_deviation(self):
        return program("return x + 1e-30 * torch.empty(6, 8).normal_(0, 1e30)")


if __name__ == "__main__":
    main()
