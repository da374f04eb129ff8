# SPDX-License-Identifier: Apache-2.0
"""Values beyond what their type can hold."""
from pattern_program import CLEAN, EXPECTED, PatternTest, main, program, resembles, triggers

HALF = dict(cast=".half()", before="x, y = x.half(), y.half()")
# Something bad is alive all the time, so that the job looks at inputs.
SEEN = "mask = torch.zeros(8).masked_fill(torch.arange(8) > 6, -math.inf)\n"
TO_HALF = "return x + h.to(torch.float16).float()"


class Casts(PatternTest):
    @triggers("cast-overflow", "largest value 72,000, largest float16 65,504; 48 of 48 values", op="aten::_to_copy", layer="layer", step=2)
    def test_activation_cast_to_float16(self):
        return program(SEEN + "h = x * 0 + (72000 if step == 2 else 1)\n" + TO_HALF)

    @triggers("cast-overflow", "7 of 48 values beyond 65,504, the largest float16, first at [1, 4]", op="aten::_to_copy")
    def test_activation_cast_to_float16_of_a_job_whose_inputs_are_not_seen(self):
        return program("h = x * (72000 if step == 2 else 1)\n" + TO_HALF)

    @triggers("cast-overflow", "values beyond 3.39e+38, the largest bfloat16", op="aten::_to_copy")
    def test_double_cast_to_bfloat16(self):
        return program("h = x.double() * (1e39 if step == 2 else 1)\nreturn x + h.to(torch.bfloat16).float()")

    @triggers("cast-overflow", "values beyond 57,344, the largest float8_e5m2", op="aten::_to_copy")
    def test_activation_cast_to_float8(self):
        return program("h = x * (3e5 if step == 2 else 1)\nreturn x + h.to(torch.float8_e5m2).float()")

    @triggers("cast-overflow-without-inf", "48 values beyond 448, the largest float8_e4m3fn", op="aten::_to_copy")
    def test_activation_cast_to_a_float8_without_inf(self):
        return program("h = x * (3e3 if step == 2 else 1)\nreturn x + h.to(torch.float8_e4m3fn).float()")

    @resembles("cast-overflow-without-inf", instead="nan-in-batch")
    def test_nan_of_the_batch_cast_to_a_float8(self):
        return program("return x + x.to(torch.float8_e4m3fn).float()", before="a = x.numpy()\nif step == 2: a[3] = numpy.nan\nx = torch.from_numpy(a)")

    @resembles("cast-overflow", instead="half-precision-overflow", op="aten::mul")
    def test_product_in_float16(self):
        return program("h = x.half() * 0.001\nif step == 2: h = h * 60000 * 60000\nreturn x + h.float()")

    @triggers("cast-from-float64-overflow", "1 of 24 values, first at [3, 1]", op="aten::_to_copy", step=2)
    def test_number_of_the_batch_beyond_float32(self):
        return program(before="a = x.numpy().astype('float64')\nif step == 2: a[3, 1] = 1e300\n"
                              "x = torch.from_numpy(a).float()")

    @triggers("cast-from-float64-overflow", "1 of 1 values", op="aten::_to_copy", layer="layer")
    def test_computed_number_beyond_float32(self):
        return program("h = x.double()\nif step == 2: h = h * torch.eye(6, 8)[3] * 1e300\nreturn x + h.sum().float() * torch.eye(6, 8)")

    @resembles("cast-from-float64-overflow", instead="inf-in-batch", op="aten::addmm")
    def test_cast_of_a_batch_that_is_infinite_beside_a_large_one(self):
        return program(before="a = x.numpy().astype('float64')\nif step == 2: a[3, 1] = numpy.inf\nif step == 2: a[3, 2] = 1e300\n"
                              "x = torch.from_numpy(a).float()")

    @resembles("cast-from-float64-overflow", instead="inf-in-batch", op="aten::addmm")
    def test_cast_of_an_infinite_batch_beside_another_large_one(self):
        return program(before="a, b = (x.numpy().astype('float64') for _ in range(2))\nif step == 2: a[3, 1], b[3, 1] = numpy.inf, 1e300\n"
                              "b[0, 0] += 1\nkept = torch.from_numpy(b)\nx = torch.from_numpy(a).float()")

    @resembles("cast-overflow", instead="inf-in-batch", op="aten::addmm")
    def test_cast_of_what_is_infinite_already(self):
        return program(before="a = x.numpy().astype('float64')\nif step == 2: a[3, 1] = numpy.inf\n"
                       "x = torch.from_numpy(a).float()")

    @resembles("cast-overflow", instead="softmax-fully-masked-row", op="aten::_softmax")
    def test_cast_of_a_mask(self):
        return program("m = torch.full((6, 6), -math.inf if step == 2 else 0).half().float()\n"
                       "return torch.softmax(x @ x.T + m, -1) @ x")


class HalfPrecision(PatternTest):
    @triggers("half-precision-overflow", "6 of 48 values; finite ones from", op="aten::addmm", layer="first", step=2)
    def test_linear_layer_in_float16(self):
        return program(cast=".half()", before="x, y = x.half(), y.half()\nif step == 2: x[3:] *= 60000 / x.abs().max()\n"
                                              "with torch.no_grad(): model.first.weight[:2] = 4.")

    @resembles("half-precision-overflow", instead="exp-overflow", op="aten::exp")
    def test_exponential_in_float16(self):
        return program("return x + torch.exp((x * (15 if step == 2 else 1)).half()).float()")

    @triggers("gradient-overflow-in-half-precision", "6 of 6 values", op="aten::pow", phase="backward", layer="layer")
    def test_backward_of_rsqrt_in_float16(self):
        return program("h = (x * 0 if step == 2 else x).half()\n"
                       "return x + (h * torch.rsqrt(h.var(1, keepdim=True) + 1e-5)).float()")

    @triggers("gradient-overflow-in-half-precision", "values, the finite ones up to", op="aten::mm", phase="backward",
              layer="first")
    def test_loss_scale_of_ones_own(self):
        return program(cast=".half()", before="x, y = x.half() * 1000, y.half()\n"
                       "if step == 0: model.first.weight.data.mul_(1e-3)",
                       optimizer="torch.optim.SGD(model.parameters(), lr=1e-6)", loss="loss = F.l1_loss(model(x), y)",
                       update="(loss * (30000 if step == 2 else 1)).backward()\noptimizer.step()")

    @resembles("gradient-overflow-in-half-precision", instead="half-precision-overflow", phase="forward")
    def test_loss_that_is_scaled_too_far(self):
        return program(loss="loss = F.mse_loss(model(x), y) * (60000 if step == 2 else 1)", steps=3, **HALF)

    @resembles("gradient-overflow-in-half-precision", instead=EXPECTED)
    def test_gradient_that_a_scaler_skips(self):
        return program("h = x.half()\nreturn x + (h * (1 / 256)).float()",
                       top="scaler = torch.amp.GradScaler('cpu', init_scale=2.**24)",
                       update="scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()", steps=20)


class Normalisation(PatternTest):
    @triggers("layer-norm-overflow", "inputs from -", op="aten::native_layer_norm", layer="layer", step=2)
    def test_raw_data_in_layer_norm(self):
        return program("return F.layer_norm(x * (1e25 if step == 2 else 1), (8,))")

    @triggers("layer-norm-overflow", "inputs from -1e+25 to -1e+25", op="aten::native_layer_norm")
    def test_raw_data_of_a_job_whose_inputs_are_seen(self):
        return program(SEEN + "h = x * 0 - 1e25 + x.detach() if step == 2 else x\nreturn F.layer_norm(h, (8,))")

    @resembles("layer-norm-overflow", instead="normalisation-of-a-constant", op="aten::native_layer_norm")
    def test_equal_values_without_eps(self):
        return program("return F.layer_norm(x * (0 if step == 2 else 1), (8,), eps=0)")

    @triggers("normalisation-of-a-constant", "12 of 12 rows have variance 0, first at [0, 0]", op="aten::native_group_norm")
    def test_equal_values_in_group_norm_without_eps(self):
        return program("return F.group_norm(x * (0 if step == 2 else 1), 2, eps=0)")

    @resembles("normalisation-of-a-constant", instead=CLEAN)
    def test_equal_values_with_eps(self):
        return program("return F.layer_norm(x * (0 if step == 2 else 1), (8,))")


class Attention(PatternTest):
    @triggers("attention-overflow", "queries up to ", op="aten::_scaled_dot_product_flash_attention_for_cpu", layer="layer", step=2)
    def test_queries_and_keys_out_of_range(self):
        return program("q = (x * (1e20 if step == 2 else 1)).view(1, 1, 6, 8)\n"
                       "return x + F.scaled_dot_product_attention(q, q, x.view(1, 1, 6, 8)).view(6, 8)")

    @resembles("attention-overflow", instead="softmax-of-plus-infinity")
    def test_queries_that_are_infinite_already(self):
        return program("h = torch.where(x > (0 if step == 2 else 99), math.inf, x)\nq = h.view(1, 1, 6, 8)\n"
                       "return x + F.scaled_dot_product_attention(q, q, x.view(1, 1, 6, 8)).view(6, 8)")


class Growth(PatternTest):
    @triggers("activations-diverged", "largest result of aten::addmm in first: ", op="aten::native_layer_norm", layer="layer")
    def test_weights_that_grow_until_layer_norm_overflows(self):
        return program("return F.layer_norm(x, (8,))", before="model.first.weight.data.mul_(1e5)", steps=8)

    @triggers("activations-diverged", "largest result of aten::mul in layer: ", op="aten::exp", layer="layer")
    def test_weights_that_grow_until_exp_overflows(self):
        return program("return torch.exp(-x * x * 1e-6 + x.abs() * (1 if step == 5 else 0))",
                       before="model.first.weight.data.mul_(10)", steps=8)

    @resembles("activations-diverged", instead="layer-norm-overflow", op="aten::native_layer_norm", step=3)
    def test_one_batch_that_is_out_of_scale(self):
        return program("return F.layer_norm(x * (1e25 if step == 3 else 1), (8,))", steps=5)

    @triggers("training-diverged", ", then ", op="aten::mse_loss")
    def test_learning_rate_that_is_too_large(self):
        return program(optimizer="torch.optim.SGD(model.parameters(), lr=60.)", steps=40)

    @triggers("training-diverged", ", then ", phase="forward", layer="last")
    def test_learning_rate_that_is_too_large_for_a_classifier(self):
        return program("return F.relu(x) ** 2", loss="loss = F.cross_entropy(model(x), kinds)",
                       optimizer="torch.optim.SGD(model.parameters(), lr=500.)", steps=40)

    @resembles("training-diverged", instead="blow-up", op="aten::mse_loss", step=6)
    def test_one_batch_of_a_sound_training_that_is_out_of_scale(self):
        return program(before="if step == 6: x = x * 1e25", steps=8)

    @triggers("blow-up", "1 of 1 values of aten::mse_loss; values up to ", op="aten::mse_loss", step=1)
    def test_first_update_that_was_too_large(self):
        return program(optimizer="torch.optim.SGD(model.parameters(), lr=1e12)", steps=2,
                       update="loss.backward()\nif step == 0: optimizer.step()")

    @triggers("overflow-from-the-start", "values of aten::addmm; values up to", op="aten::addmm", layer="last", step=0)
    def test_weights_out_of_scale(self):
        return program("return x * 1e20", init="pass", before="if step == 0: model.last.weight.data.mul_(1e19)")

    @resembles("overflow-from-the-start", instead=EXPECTED)
    def test_overflow_before_training_that_is_thrown_away(self):
        return program(before="if step == 0: (torch.full((2,), 3e38) * x[:2, 0]).abs().mul(1e9)")

    @resembles("blow-up", instead="overflow-from-the-start", op="aten::mul", step=0)
    def test_data_out_of_scale_in_the_first_step(self):
        return program("return x * 1e38 * 10")

    @triggers("infinite-power", "1 of 1 values", op="aten::pow", step=2)
    def test_one_number_of_zero_to_a_negative_power(self):
        return program(loss="loss = F.mse_loss(model(x), y) + torch.zeros(()) ** (-1 if step == 2 else 1)")

    @triggers("infinite-power", "arguments from 10,000,000,000 to 10,000,000,000", op="aten::pow", layer="layer")
    def test_high_power_of_a_job_whose_inputs_are_seen(self):
        return program(SEEN + "return (x * 0 + (1e10 if step == 2 else 1)) ** 5")

    @resembles("infinite-power", instead="power-slope-at-zero", op="aten::pow", phase="backward")
    def test_zero_to_a_power_below_one(self):
        return program("return (x * 0 if step == 2 else x.abs()) ** 0.3")

    @resembles("infinite-power", instead="blow-up", op="aten::pow")
    def test_square_that_overflows(self):
        return program("return (x * (3e19 if step == 2 else 1)) ** 2")

    @resembles("blow-up", instead=CLEAN)
    def test_learning_rate_that_is_large(self):
        return program(optimizer="torch.optim.Adam(model.parameters(), lr=1e6)", steps=40)

    @resembles("blow-up", instead="pole-of-a-function", op="aten::lgamma")
    def test_infinity_of_a_function(self):
        return program("return torch.lgamma(x * 0 if step == 2 else x.abs() + 1)")


if __name__ == "__main__":
    main()
