# SPDX-License-Identifier: Apache-2.0
"""Inside the optimizer, and what a GradScaler makes of it."""
from pattern_program import CLEAN, EXPECTED, PatternTest, main, program, resembles, triggers

HALF = dict(cast=".half()", before="x, y = x.half(), y.half()")
SCALER = "scaler = torch.amp.GradScaler('cpu', init_scale={scale})"
BY_HAND = """loss.backward()
rate = math.nan if step == 2 else 0.01
with torch.no_grad():
    for p in model.parameters(): {write}.add_(p.grad, alpha=-rate)
model.zero_grad()"""
SCALED = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"


def adam(options="", **further):
    return program(optimizer=f"torch.optim.Adam(model.parameters(){options})", **further)


class Numbers(PatternTest):
    @triggers("update-with-bad-number", "32 of 32 values of first.weight, by aten::add_", param="first.weight", kind="optimizer")
    def test_infinite_learning_rate(self):
        return program(optimizer="torch.optim.SGD(model.parameters(), lr=float('inf'))")

    @resembles("update-with-bad-number", instead=CLEAN)
    def test_infinite_learning_rate_of_no_gradient(self):
        return program(optimizer="torch.optim.SGD(model.parameters(), lr=float('inf'))", update="optimizer.step()")

    @triggers("update-with-bad-number", "32 of 32 values of first.weight, by aten::addcdiv_", param="first.weight", kind="optimizer", step=2)
    def test_learning_rate_of_a_broken_schedule(self):
        return adam(before="if step == 2: optimizer.param_groups[0]['lr'] = float('nan')")

    # No optimizer: a leaf that the backward pass has reached is written by hand. (The child's warm-up was such a step, too.)
    @triggers("number-is-nan", "32 of 32 values", op="aten::add_", param="first.weight", step=3, **{"class": "scalar"})
    def test_rate_of_nan_of_an_update_by_hand(self):
        return program(update=BY_HAND.format(write="p"))

    @triggers("number-is-nan", "32 of 32 values", op="aten::add_", param="first.weight", step=3, **{"class": "scalar"})
    def test_rate_of_nan_of_an_update_by_hand_of_data(self):
        return program(update=BY_HAND.format(write="p.data"))

    @triggers("update-bad-everywhere", "all 32 values of first.weight, by aten::addcdiv_", param="first.weight", step=0)
    def test_no_gradient_and_no_eps(self):
        return adam(", eps=0", loss="loss = F.mse_loss(model(x), y) * 0")

    @resembles("update-bad-everywhere", instead="adam-zero-over-zero", param="first.weight")
    def test_one_dead_unit(self):
        return adam(", eps=0", layer="return torch.relu(x)", before="model.first.bias.data[3] = -100.")


class Adam(PatternTest):
    @triggers("adam-zero-over-zero", "float32 parameter first.weight, 4 of 32 values", op="aten::addcdiv_", phase="optimizer")
    def test_dead_unit_without_eps(self):
        return adam(", eps=0", layer="return torch.relu(x)", before="model.first.bias.data[3] = -100.")

    @triggers("adam-eps-lost-in-half-precision", "float16 parameter first.weight, 2 of 32 values")
    def test_eps_that_rounds_to_zero_in_float16(self):
        return adam(**HALF)

    @triggers("adam-eps-lost-in-half-precision", "float16 parameter first.weight, 32 of 32 values", step=2)
    def test_gradient_of_zero_in_float16(self):
        return adam(layer="return x", cast=".half()", before="x, y = x.half(), y.half()\nif step == 2: x.zero_()\n"
                                                             "for p in model.parameters(): p.requires_grad_(step == 2)",
                    loss="loss = F.mse_loss(model(x) * 0 if step == 2 else model(x.requires_grad_()), y)")

    @triggers("adam-zero-over-zero", "float32 parameter first.weight, 4 of 32 values")
    def test_rms_prop_without_eps(self):
        return program("return torch.relu(x)", before="model.first.bias.data[3] = -100.",
                       optimizer="torch.optim.RMSprop(model.parameters(), lr=1e-3, eps=0)")

    @resembles("adam-eps-lost-in-half-precision", instead=CLEAN)
    def test_eps_that_float16_can_hold(self):
        return adam(", eps=1e-4", **HALF)

    @resembles("adam-zero-over-zero", instead=CLEAN)
    def test_dead_unit_with_eps(self):
        return adam(layer="return torch.relu(x)", before="model.first.bias.data[3] = -100.")

    @resembles("adam-zero-over-zero", instead="second-moment-overflow", op="aten::_fused_adamw_")
    def test_fused_update_whose_second_moment_overflows(self):
        return program(loss="loss = F.mse_loss(model(x), y) * (1e25 if step == 2 else 1)",
                       optimizer="torch.optim.AdamW(model.parameters(), fused=True)")

    @triggers("second-moment-overflow", "32 of 32 values of the second moment in float32", op="aten::addcmul_", step=2,
              param="first.weight")
    def test_square_of_a_gradient_beyond_float32(self):
        return adam(loss="loss = F.mse_loss(model(x), y) * (1e25 if step == 2 else 1)")

    @triggers("second-moment-overflow", "1 of 24 values of the second moment in float16", op="aten::addcmul_", param="last.weight")
    def test_square_of_a_gradient_beyond_float16(self):
        return adam(", eps=1e-4", loss="loss = F.mse_loss(model(x), y) * (20000 if step == 2 else 1)", **HALF)

    @resembles("second-moment-overflow", instead="blow-up", phase="forward", op="aten::mul")
    def test_product_beyond_float32_in_the_model(self):
        return adam(layer="return x * (1e38 if step == 2 else 1) * 10")


# Preconditions gradients by a root of their products, as Shampoo does, without an eps.
SHAMPOO = """
    class Shampoo(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                if p.dim() != 2: continue
                values, vectors = torch.linalg.eigh(p.grad @ p.grad.T)
                p.sub_(0.01 * vectors @ torch.diag(values.clamp(min=EPS) ** -0.25) @ vectors.T @ p.grad)"""


def shampoo(eps, steps):
    return program(top=SHAMPOO.replace("EPS", str(eps)), optimizer="Shampoo(model.parameters(), {})", steps=steps)


NORMED = """
class Normed(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            norm = torch.stack([p.grad.norm() for p in group["params"]]).norm() + EPS
            for p in group["params"]: p.add_(p.grad * (-0.01 / norm))"""
NO_LOSS = "loss = F.mse_loss(model(x), y) * (0 if step == 2 else 1)"


class Update(PatternTest):
    @triggers("infinite-power", "arguments from 0 to ", op="aten::pow", phase="optimizer", step=0)
    def test_root_of_products_that_are_zero(self):
        return shampoo(0, steps=1)

    @resembles("infinite-power", instead=CLEAN)
    def test_root_of_products_with_an_eps(self):
        return shampoo(1e-6, steps=4)

    @triggers("division-by-zero-in-update", "aten::reciprocal made Inf of finite numbers", op="aten::reciprocal", phase="optimizer")
    def test_step_that_divides_by_the_norm_of_no_gradient(self):
        return program(top=NORMED.replace("EPS", "0"), optimizer="Normed(model.parameters(), {})", loss=NO_LOSS)

    @triggers("division-by-zero-in-update", "aten::div made Inf of finite numbers", op="aten::div", phase="optimizer")
    def test_step_that_divides_the_norm_of_the_weights_by_it(self):
        return program(top=NORMED.replace("-0.01", "-p.norm()").replace("EPS", "0"), optimizer="Normed(model.parameters(), {})", loss=NO_LOSS)

    @resembles("division-by-zero-in-update", instead=CLEAN)
    def test_step_that_divides_by_a_norm_and_an_eps(self):
        return program(top=NORMED.replace("EPS", "1e-12"), optimizer="Normed(model.parameters(), {})", loss=NO_LOSS)

    @triggers("update-overflow", "values of first.weight, by aten::add_", param="first.weight", step=2, kind="optimizer")
    def test_learning_rate_that_overflows(self):
        return program(before="if step == 2: optimizer.param_groups[0]['lr'] = 3e38", loss="loss = 20 * F.mse_loss(model(x), y)")

    @resembles("update-overflow", instead="blow-up", phase="forward", step=3)
    def test_learning_rate_that_makes_the_next_step_overflow(self):
        return program(before="if step == 2: optimizer.param_groups[0]['lr'] = 1e30")


class Scaler(PatternTest):
    @triggers("scaler-keeps-skipping", "10 updates skipped before this one", phase="backward", layer="layer")
    def test_gradient_that_is_bad_at_any_scale(self):
        return program("return x * (1e-30 if step > 2 else 1) * (1e30 if step > 2 else 1)", top=SCALER.format(scale="2.**16"),
                       update="scaler.scale(loss * (1e30 if step > 2 else 1)).backward()\nscaler.step(optimizer)\n"
                       "scaler.update()", steps=30)

    @triggers("scaler-keeps-skipping", "10 updates skipped before this one", phase="backward", layer="layer")
    def test_gradient_in_float16_that_is_bad_at_any_scale(self):
        return program("h = (x * 0 if step > 2 else x).half()\n"
                       "return x + (h * torch.rsqrt(h.var(1, keepdim=True) + 1e-5)).float()", top=SCALER.format(scale="2.**16"),
                       update=SCALED, steps=30)

    @resembles("scaler-keeps-skipping", instead=EXPECTED)
    def test_scaler_that_finds_its_scale(self):
        return program(top=SCALER.format(scale="2.**127"), loss="loss = 100 * F.mse_loss(model(x), y)", update=SCALED, steps=20)

    @resembles("scaler-keeps-skipping", instead="sqrt-slope-at-zero", layer="layer")
    def test_fault_that_a_scaler_hides(self):
        return program("return torch.sqrt(x * 0 if step > 2 else x * 0 + 9)", top=SCALER.format(scale="2.**16"), update=SCALED,
                       steps=30)

    @triggers("unscale-below-one", "multiplied by 8", op="aten::_amp_foreach_non_finite_check_and_unscale_")
    def test_scale_that_sank(self):
        return program(top=SCALER.format(scale="2."), update=SCALED, steps=12,
                       loss="loss = (model(x) * 1e20).pow(2).mean() if step % 2 else F.mse_loss(model(x), y)")

    @resembles("unscale-below-one", instead=EXPECTED)
    def test_unscaling_of_gradients_that_are_bad_already(self):
        return program(top=SCALER.format(scale="2.**127"), loss="loss = 100 * F.mse_loss(model(x), y)", update=SCALED, steps=20)


if __name__ == "__main__":
    main()
