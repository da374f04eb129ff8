# SPDX-License-Identifier: Apache-2.0
"""When it happened.

Gradient accumulation, several optimizers and models, schedules, passes that are no step; and training that diverges until
a number is too large."""
from training import BEGIN, layer, training, with_layer
from watched_program import WatchedProgramTest, main

DIV = {"kind": "op", "op": "aten::div", "class": "produce", "phase": "forward"}

ADVERSARIES = BEGIN + """
class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, z):
        return self.net(z)


class Ratio(nn.Module):
    def forward(self, h, d):
        return h / d


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.ratio, self.out = nn.Linear(6, 8), Ratio(), nn.Linear(8, 1)

    def forward(self, x, d=1.0):
        return self.out(self.ratio(torch.relu(self.fc(x)), d))


G, D = Generator(), Discriminator()
opt_d, opt_g = torch.optim.Adam(D.parameters(), lr=1e-3), torch.optim.Adam(G.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for step in range(6):
    for inner in range(CRITIC_STEPS):
        real, fake = torch.randn(4, 6), G(torch.randn(4, 3)).detach()
        opt_d.zero_grad()
        (bce(D(real, 0.0 if step == BAD_D else 1.0), torch.ones(4, 1)) + bce(D(fake), torch.zeros(4, 1))).backward()
        opt_d.step()
    opt_g.zero_grad()
    bce(D(G(torch.randn(4, 3)), 0.0 if step == BAD_G else 1.0), torch.ones(4, 1)).backward()
    opt_g.step()
"""


def adversaries(critic_steps=1, bad_d=-1, bad_g=-1):
    return ADVERSARIES.replace("CRITIC_STEPS", str(critic_steps)).replace("BAD_D", str(bad_d)).replace("BAD_G", str(bad_g))


class Steps(WatchedProgramTest):
    def test_third_micro_batch_of_the_second_update(self):
        self.assert_anomaly(with_layer("return h / given[0]", backward="""
            (loss / 4).backward()
            for m in range(1, 4):
                (model(torch.randn(4, 6), float(not (step == 1 and m == 2))).pow(2).mean() / 4).backward()
            opt.step()""", given="1.0"), layer="odd", step=1, micro_step=2, **DIV)

    def test_accumulation_counted_by_the_loop(self):
        text = with_layer("return h / given[0]", given="float(step != 7)", steps=10,
                          backward="loss.backward()\nif step % 3 == 2:\n    opt.step()\n    opt.zero_grad()")
        self.assert_anomaly(text.replace("    opt.zero_grad()\n    loss =", "    loss ="), layer="odd", step=2, micro_step=1,
                            **DIV)

    def test_two_losses_with_a_pass_each(self):
        self.assert_anomaly(with_layer("return h / given[0]", given="1.0",
                                       backward="loss.backward()\nmodel(x, float(step != 3)).mean().backward()\nopt.step()"),
                            layer="odd", step=3, micro_step=1, **DIV)

    def test_first_step(self):
        self.assert_anomaly(with_layer("return h / given[0]", given="0.0"), layer="odd", step=0, **DIV)

    def test_evaluation_between_two_epochs_is_no_step(self):
        self.assert_anomaly(with_layer("return h / given[0]", given="float(step != 3)", after="""
            model.eval()
            with torch.no_grad():
                for _ in range(3):
                    F.cross_entropy(model(x, 1.0), y).item()
            model.train()"""), layer="odd", step=3, **DIV)

    def test_division_in_evaluation_only_matters_to_no_parameter(self):
        self.assert_no_alarm(with_layer("return h / given[0]", given="1.0", after="with torch.no_grad():\n    model(x, 0.0)"))

    def test_optimizers_for_two_halves_of_one_model(self):
        self.assert_anomaly(with_layer("return h / given[0]", given="float(step != 3)",
                                       optimizer="torch.optim.SGD(model.enc.parameters(), lr=1e-2)",
                                       prepare="other = torch.optim.Adam(model.out.parameters())",
                                       after="other.step()\nother.zero_grad()"),
                            layer="odd", step=3, **DIV)

    def test_one_optimizer_made_anew_for_each_epoch(self):
        self.assert_anomaly(with_layer("return h / given[0]", given="float(step != 3)",
                                       before="if step == 2:\n    opt = torch.optim.Adam(model.parameters())"),
                            layer="odd", **DIV)

    def test_discriminator_of_a_pair(self):
        self.assert_anomaly(adversaries(bad_d=3), layer="ratio", root="Discriminator#0", step=3, **DIV)

    def test_generator_of_a_pair_in_whose_loss_the_discriminator_divides(self):
        self.assert_anomaly(adversaries(bad_g=2), layer="ratio", root="Discriminator#0", step=2, **DIV)

    def test_critic_that_is_trained_three_times_as_often(self):
        self.assert_anomaly(adversaries(3, bad_g=2), layer="ratio", root="Discriminator#0", step=2, **DIV)

    def test_healthy_pair(self):
        self.assert_no_alarm(adversaries(), "clean")

    def test_teacher_and_student(self):
        self.assert_anomaly(with_layer("return h / given[0]",
                                       prepare="import copy\nteacher = copy.deepcopy(model).requires_grad_(False).eval()",
                                       loss="F.mse_loss(model(x, 1.0), teacher(x, float(step != 2)).detach())", after="""
            for p, q in zip(teacher.parameters(), model.parameters()):
                p.data.lerp_(q.data, 0.1)"""), layer="odd", root="Net#1", step=2, **DIV)

    def test_layer_that_is_shared(self):
        incident = self.assert_anomaly(training(layer("return h / given[0]") + """
class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8)
        self.left = Odd()
        self.right = self.left

    def forward(self, x, d):
        return self.left(self.fc(x), 1.0) + self.right(self.fc(x), d)


class Net(Twin):
    pass
""", loss="model(x, float(step != 2)).pow(2).mean()"), step=2, **DIV)
        self.assertIn(incident["origin"]["layer"], ("left", "right"))

    def test_model_in_a_wrapper(self):
        self.assert_anomaly(training(layer("return h / given[0]") + """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.odd = nn.Linear(6, 8), Odd()

    def forward(self, x, d):
        return self.odd(self.fc(x), d)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = nn.ModuleDict({"a": nn.ModuleList([Inner()])})

    def forward(self, x, d):
        return self.module["a"][0](x, d)
""", loss="model(x, float(step != 2)).pow(2).mean()"), layer="module.a.0.odd", root="Net#0", step=2, **DIV)


class BlowUps(WatchedProgramTest):
    def blow_up(self, **more):
        incident = self.assert_anomaly(training(**{"model": "nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))",
                                                   "steps": 25, **more}), kind="op")
        self.assertIn(incident["origin"]["class"], ("produce", "inf_to_nan"))
        self.assertIn(incident["origin"]["phase"], ("forward", "backward"))
        self.assertGreater(incident["origin"]["step"], 0)
        self.assertIn("parameter", incident["reach"])

    def test_gradient_descent_with_a_rate_that_is_too_large(self):
        self.blow_up(optimizer="torch.optim.SGD(model.parameters(), lr=1e3)")

    def test_momentum_with_a_rate_that_is_too_large(self):
        self.blow_up(optimizer="torch.optim.SGD(model.parameters(), lr=50.0, momentum=0.9)")

    def test_recurrent_weights_that_grow(self):
        self.blow_up(model="nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1))",
                     optimizer="torch.optim.SGD(model.parameters(), lr=20.0)")

    def test_half_precision(self):
        self.blow_up(model="nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).half()",
                     loss="model(x.half()).float().pow(2).mean()", optimizer="torch.optim.SGD(model.parameters(), lr=30.0)")

    def test_update_by_hand_of_a_leaf_that_no_module_holds(self):
        for update in ("w.data.add_(w.grad, alpha=-0.01)", "w.data -= 0.01 * w.grad",
                       "with torch.no_grad(): w -= 0.01 * w.grad", "w.detach().sub_(0.01 * w.grad)",
                       "w.data = w.data - 0.01 * w.grad"):
            with self.subTest(update):
                # The healthy step before the program is one by hand, too.
                incident = self.assert_anomaly(f"""
import torch
torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
for step in range(4):
    x = torch.rand(5, 3) * (0.0 if step == 2 else 1.0)
    loss = torch.log((x * w.abs()).sum(1)).mean()
    w.grad = None
    loss.backward()
    {update}
""", op="aten::log", step=3)
                self.assertIn("parameter", incident["reach"])

    # Without an optimizer ops tell the steps, also of parameters that are NaN, and what they say of the loss is not recorded.
    def test_loss_of_weights_that_an_update_by_hand_has_ruined(self):
        for update in ("p.data -= 0.1 * p.grad / p.grad.norm() * scale", "p.data = p.data - 0.1 * p.grad / (p.grad.norm() * scale)"):
            with self.subTest(update):
                self.assert_anomaly(f"""
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
for step in range(6):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    model.zero_grad()
    loss.backward()
    scale = torch.tensor(float(step != 2))
    for p in model.parameters():
        p.grad *= scale
        {update}
""", reach=["activation", "loss", "parameter"], op="aten::div", step=3)

    def test_steps_that_no_op_announces_leave_the_step_in_doubt(self):
        incident = self.assert_anomaly("""
import torch
torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
for step in range(4):
    loss = torch.log((torch.rand(5, 3) * (0.0 if step == 2 else 1.0) * w.abs()).sum(1)).mean()
    w.grad = None
    loss.backward()
    w.data.numpy()[:] -= 0.01 * w.grad.numpy()
""", op="aten::log")
        # The healthy step before the program is known for one, by chance.
        self.assertIn(incident["origin"]["step"], (1, 3))

    def test_leaf_of_a_pass_can_be_exchanged(self):
        self.assert_no_alarm("""
import torch
torch.__future__.set_swap_module_params_on_conversion(True)
model = torch.nn.Linear(2, 2)
model(torch.ones(1, 2)).sum().backward()
model.half()
""", verdict="clean")


if __name__ == "__main__":
    main()
