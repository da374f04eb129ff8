# SPDX-License-Identifier: Apache-2.0
"""Functions whose value is finite and whose slope is not: roots, norms, powers, inverse sines at the edge of
their domain; and what looks like them and is safe."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

BACKWARD = {"kind": "op", "class": "produce", "phase": "backward"}
ZERO_ROW = {"given": "torch.ones(4, 1).masked_fill(torch.eye(4, 1).bool(), 0.0 if step == 3 else 1.0)"}


class Slopes(WatchedProgramTest):
    def test_root_of_a_square_at_zero(self):
        self.assert_anomaly(with_layer("return torch.sqrt((h * given[0]) ** 2)", **ZERO_ROW), op="aten::div",
                            autograd_node="SqrtBackward0", layer="odd", step=3,
                            reach=["activation", "loss", "gradient", "parameter", "optimizer_state"], **BACKWARD)

    def test_length_of_a_zero_vector(self):
        self.assert_anomaly(with_layer("z = h * given[0]\nreturn z + torch.sqrt((z * z).sum(-1, keepdim=True))", **ZERO_ROW),
                            op="aten::div", autograd_node="SqrtBackward0", layer="odd", step=3, **BACKWARD)

    def test_length_of_a_zero_vector_in_float64(self):
        self.assert_anomaly(with_layer("z = (h * given[0]).double()\nreturn (z + z.square().sum(-1, keepdim=True) ** "
                                       "0.5).float()", **ZERO_ROW),
                            op="aten::pow", autograd_node="PowBackward0", layer="odd", step=3, **BACKWARD)

    def test_distances_between_points_that_coincide(self):
        self.assert_anomaly(training(layer("return ((h[:, None] - h[None]) ** 2).sum(-1).sqrt()", name="Pairs", given="h"),
                                     model="nn.Sequential(nn.Linear(6, 8), nn.ReLU(), Pairs())"),
                            op="aten::div", autograd_node="SqrtBackward0", layer="2", step=0, **BACKWARD)

    def test_root_mean_square_loss_of_a_perfect_answer(self):
        self.assert_anomaly(training(layer("return torch.sqrt(F.mse_loss(p, t))", name="RMSE", given="p, t"),
                                     model="nn.Linear(6, 2)",
                                     optimizer="torch.optim.SGD(model.parameters(), lr=0.1)", prepare="criterion = RMSE()",
                                     forward="p = model(x)\nloss = criterion(p, p.detach() if step == 2 else p.detach() + 1)"),
                            op="aten::div", autograd_node="SqrtBackward0", layer="", root="RMSE#0", step=2, **BACKWARD)

    def test_own_deviation_of_a_constant_feature(self):
        self.assert_anomaly(with_layer("z = h * given[0]\nreturn z * torch.sqrt(z.var(-1, keepdim=True))", **ZERO_ROW),
                            op="aten::div", autograd_node="SqrtBackward0", layer="odd", step=3, **BACKWARD)

    def test_power_of_one_half_at_zero(self):
        self.assert_anomaly(with_layer("z = h.abs() * given[0]\nreturn (z ** 0.5) * z",
                                       given="torch.zeros(4, 1) if step == 3 else 1.0"),
                            op="aten::pow", autograd_node="PowBackward0", layer="odd", step=3, **BACKWARD)

    def test_signed_square_root_of_bilinear_pooling(self):
        self.assert_anomaly(with_layer("z = h * given[0]\nreturn torch.sign(z) * torch.sqrt(torch.abs(z))", **ZERO_ROW),
                            op="aten::div", autograd_node="SqrtBackward0", layer="odd", step=3, **BACKWARD)

    def test_generalised_mean_pooling_of_zeros(self):
        self.assert_anomaly(with_layer("return h + torch.relu(h * given[0]).pow(self.p).mean(-1, keepdim=True).pow(1.0 / "
                                       "self.p)",
                                       init="self.p = nn.Parameter(torch.ones(1) * 3)",
                                       given="torch.zeros(4, 1) if step == 2 else 1.0"),
                            op="aten::pow", autograd_node="PowBackward1", layer="odd", step=2, **BACKWARD)

    def test_arc_cosine_at_one(self):
        self.assert_anomaly(with_layer("return torch.acos(h * 0 + given[0]) * h", given="1.0 if step == 1 else 0.5"),
                            op="aten::rsqrt", autograd_node="AcosBackward0", layer="odd", step=1, **BACKWARD)

    def test_angle_between_equal_vectors(self):
        self.assert_anomaly(training(layer("return torch.acos(F.cosine_similarity(a, b, dim=-1).clamp(-1, 1))", name="Angle",
                                           given="a, b"),
                                     model="nn.Linear(6, 3, bias=False)", prepare="angle = Angle()", forward="""
            axis = torch.tensor([[2.0, 0.0, 0.0]])
            a = model(x)
            loss = angle(a * 0 + axis if step == 2 else a, axis).mean()"""),
                            op="aten::rsqrt", autograd_node="AcosBackward0", root="Angle#0", step=2, **BACKWARD)

    def test_arc_sine_at_minus_one(self):
        self.assert_anomaly(with_layer("return torch.asin(h * 0 - given[0]) + h", given="1.0 if step == 1 else 0.5"),
                            op="aten::rsqrt", autograd_node="AsinBackward0", layer="odd", step=1, **BACKWARD)

    def test_eigenvectors_of_a_matrix_with_equal_eigenvalues(self):
        self.assert_anomaly(with_layer("values, vectors = torch.linalg.eigh(torch.eye(8) * h.square().mean())\nreturn h @ "
                                       "vectors", steps=1),
                            op="aten::div_", autograd_node="LinalgEighBackward0", layer="odd", step=0, **BACKWARD)

    def test_cube_root_through_the_exponential_of_a_logarithm(self):
        self.assert_anomaly(with_layer("return h * torch.exp(torch.log(h.abs() * given[0]) / 3)", **ZERO_ROW), op="aten::div",
                            autograd_node="LogBackward0", layer="odd", step=3, **BACKWARD)

    # Its gradient is added to the sum of the others', which were made after it.
    def test_the_first_of_some_roots_whose_gradients_are_added_up(self):
        self.assert_anomaly("""
import torch, torch.nn as nn
torch.manual_seed(0)
class Root(nn.Module):
    def forward(self, z):
        return z.sqrt()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.near, self.far = nn.Linear(4, 4), Root(), Root()
    def forward(self, x, factor):
        z = self.fc(x).square() * factor + (factor != 0)
        moved = z * 1
        return self.near(z) + self.near(z) + self.far(moved)
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    opt.zero_grad()
    model(torch.randn(3, 4), float(step != 2)).mean().backward()
    opt.step()
""", op="aten::div", layer="far", step=2, **BACKWARD)

    def test_arc_tangent_of_two_zeros_is_repaired_by_torch(self):
        self.assert_no_alarm(with_layer("z = h * given[0]\nreturn h + torch.atan2(z[:, :1], z[:, 1:2])", **ZERO_ROW))

    def test_norm_at_zero_is_repaired_by_torch(self):
        self.assert_no_alarm(with_layer("return h + (h * given[0]).norm(dim=-1, keepdim=True)", **ZERO_ROW))

    def test_vector_norm_and_normalize_at_zero_are_repaired_by_torch(self):
        self.assert_no_alarm(with_layer(
            "z = h * given[0]\nreturn F.normalize(z, dim=-1) + torch.linalg.vector_norm(z, dim=-1, keepdim=True)", **ZERO_ROW))

    def test_standard_deviation_of_a_constant_is_repaired_by_torch(self):
        self.assert_no_alarm(with_layer("return h + (h * given[0]).std(-1, keepdim=True)", **ZERO_ROW))

    def test_standard_deviation_and_mean_of_a_constant_are_repaired_by_torch(self):
        self.assert_no_alarm(with_layer("s, m = torch.std_mean(h * given[0], -1, keepdim=True)\nreturn (h - m) / (s + 1e-5)",
                                        **ZERO_ROW))

    def test_group_lasso_of_dead_units(self):
        self.assert_no_alarm(with_layer("return h",
                                        loss="model(x, 1).pow(2).mean() + 1e-3 * model.enc.weight.norm(dim=1).sum()",
                                        prepare="with torch.no_grad():\n    model.enc.weight[2:4] = 0"))

    def test_cosine_similarity_of_a_zero_vector(self):
        self.assert_no_alarm(with_layer("return h * F.cosine_similarity(h * given[0], h, dim=-1)[:, None]", **ZERO_ROW))

    def test_pairwise_distance_of_equal_points(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 3)", loss="F.pairwise_distance(model(x), model(x)).mean()"), "clean")

    def test_triplet_loss_of_equal_points(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 3)", loss="F.triplet_margin_loss(model(x), model(x), model(x))"),
                             "clean")


if __name__ == "__main__":
    main()
