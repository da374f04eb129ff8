# SPDX-License-Identifier: Apache-2.0
"""Derivatives of derivatives (gradient penalties), custom functions and hooks."""
from training import LENGTH, layer, training, with_layer
from watched_program import WatchedProgramTest, main

BACKWARD = {"kind": "op", "class": "produce", "phase": "backward"}

# In step 3 the critic's first row does not depend on its input.
CRITIC = """
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.body(x)


class Penalty(nn.Module):
    def forward(self, critic, x):
        x = x.clone().requires_grad_(True)
        g, = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        return (NORM - 1).square().mean()
"""
DEAD = """
if step == 3:
    model.body[0].bias.data.fill_(-0.1)
    x[0] = 0.0
"""


def critic(norm, penalty="penalty(model, x)", **more):
    return training(CRITIC.replace("NORM", norm), model="Critic()", before=DEAD, prepare="penalty = Penalty()",
                    loss=f"model(x).mean() - model(x + 1).mean() + 10 * {penalty}", **more)


class SecondDerivatives(WatchedProgramTest):
    def test_gradient_penalty_through_a_root(self):
        self.assert_anomaly(critic("g.pow(2).sum(1).sqrt()"), op="aten::div", autograd_node="SqrtBackward0", root="Penalty#0",
                            layer="", step=3, **BACKWARD)

    def test_gradient_penalty_through_a_power(self):
        self.assert_anomaly(critic("(g * g).sum(-1) ** 0.5", optimizer="torch.optim.RMSprop(model.parameters(), lr=1e-4)"),
                            op="aten::pow", autograd_node="PowBackward0", layer="", step=3, **BACKWARD)

    def test_gradient_penalty_through_a_norm_is_repaired_by_torch(self):
        self.assert_no_alarm(critic("g.norm(2, dim=1)"))

    def test_gradient_penalty_with_an_epsilon(self):
        self.assert_no_alarm(critic("(g.pow(2).sum(1) + 1e-12).sqrt()"), "clean")

    def test_penalty_written_in_the_loop_with_two_optimizers(self):
        self.assert_anomaly(training(CRITIC, model="Critic()", before=DEAD, prepare="""
            generator = nn.Linear(3, 6)
            opt_g = torch.optim.Adam(generator.parameters())""", forward="""
            fake = generator(torch.randn(4, 3))
            mixed = x.clone().requires_grad_(True)
            g = torch.autograd.grad(model(mixed).sum(), mixed, create_graph=True)[0]
            loss = model(fake.detach()).mean() - model(x).mean() + ((torch.sqrt((g ** 2).sum(1)) - 1) ** 2).mean()""",
                                     after="opt_g.zero_grad()\n"
                                           "(-model(generator(torch.randn(4, 3))).mean()).backward()\nopt_g.step()"),
                            op="aten::div", autograd_node="SqrtBackward0", layer="", step=3, **BACKWARD)

    def test_slope_of_the_inner_gradient(self):
        """The inner gradient of a root at zero is infinite already."""
        self.assert_anomaly(training(layer("return torch.sqrt(x.abs() * self.w).sum()", "self.w = nn.Parameter(torch.ones(6))",
                                           "Energy", "x"), model="Energy()", forward="""
            x = torch.rand(4, 6).masked_fill(torch.eye(4, 6).bool(), 0.0 if step == 2 else 0.5).requires_grad_(True)
            force, = torch.autograd.grad(model(x), x, create_graph=True)
            loss = force.pow(2).mean()"""), op="aten::div", autograd_node="SqrtBackward0", layer="", step=2, **BACKWARD)

    def test_healthy_second_order_optimisation(self):
        self.assert_no_alarm(training(model="nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))", backward="""
            loss.backward(create_graph=True)
            sum(p.grad.pow(2).sum() for p in model.parameters()).backward()
            opt.step()"""), "clean")


FUNCTION = LENGTH.format(divisor="length") + """

class Quotient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a / b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g / b, None

"""


def with_function(does, **more):
    return with_layer(does, **more).replace("\nclass Odd", FUNCTION + "\n\nclass Odd")


class CustomFunctions(WatchedProgramTest):
    def test_own_backward_divides_by_zero(self):
        self.assert_anomaly(with_function("return h * Length.apply(h * given[0])",
                                          given="torch.zeros(4, 1) if step == 2 else 1.0"), op="aten::div",
                            autograd_node="LengthBackward", layer="odd", step=2, **BACKWARD)

    def test_own_forward_divides_by_zero(self):
        self.assert_anomaly(with_function("return Quotient.apply(h, given[0])", given="torch.full((4, 8), float(step != 2))"),
                            kind="op", op="aten::div",
                            phase="forward", layer="odd", step=2, **{"class": "produce"})

    def test_hook_on_a_gradient(self):
        self.assert_anomaly(with_layer("h = h * 1.0\nh.register_hook(lambda g: g / (given[0] - 1))\nreturn h",
                                       given="1.0 if step == 2 else 3.0"),
                            op="aten::div", phase="backward", layer="odd", step=2)

    def test_hook_on_a_parameter(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))",
                                     prepare="divisor = [1.0]\nmodel[0].weight.register_hook(lambda g: g / divisor[0])",
                                     before="divisor[0] = 0.0 if step == 3 else 1.0"), op="aten::div", phase="backward", step=3)

    def test_full_backward_hook_of_a_module(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))",
                                     prepare="divisor = [1.0]\n"
                                             "model[1].register_full_backward_hook(lambda m, gi, go: "
                                             "(torch.log(gi[0] * 0 + divisor[0]),))",
                                     before="divisor[0] = 0.0 if step == 3 else 1.0"),
                            op="aten::log", phase="backward", step=3)


class SeveralRoots(WatchedProgramTest):
    """torch.autograd.backward([a, b]). The logarithm's slope is finite, so that no gradient shows that a loss is NaN."""

    def training(self, first, second):
        return training(model="nn.Linear(6, 2)", forward=f"""
            h = model(x)
            bad = (h.sum() * 0 + (-1 if step == 3 else 1)).log()
            first, second = {first}, {second}""", backward="torch.autograd.backward([first, second])\nopt.step()")

    def test_the_first_is_bad(self):
        self.assert_anomaly(self.training("h.pow(2).mean() + bad", "h.abs().mean()"), op="aten::log", step=3, exact=True, phase="forward",
                            reach=["activation", "loss"])

    def test_the_second_is_bad(self):
        self.assert_anomaly(self.training("h.pow(2).mean()", "h.abs().mean() + bad"), op="aten::log", step=3, exact=True, phase="forward",
                            reach=["activation", "loss"])

    def test_none_is_bad_and_a_value_beside_them_is(self):
        self.assert_no_alarm(self.training("h.pow(2).mean()", "h.abs().mean()"))


if __name__ == "__main__":
    main()
