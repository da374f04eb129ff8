# SPDX-License-Identifier: Apache-2.0
"""Tensors that are not plain rows of floats: sparse, complex, quantized, nested, float8, float64, without a dimension.

Healthy ones raise no alarm; a fault in one is found where it can be seen."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

FORWARD = {"kind": "op", "class": "produce", "phase": "forward"}


class UnusualTensors(WatchedProgramTest):
    def test_all_kinds_pass_through(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", steps=3, after="""
            with torch.no_grad():
                torch.randn(3, 3).to_sparse() @ torch.randn(3, 2)
                torch.randn(3, 3).to_sparse_csr() @ torch.randn(3, 2)
                torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8).dequantize()
                torch.ones(3, device="meta") / torch.zeros(3, device="meta")
                torch.view_as_complex(torch.randn(4, 2)).abs()
                torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(3, 3)]).to_padded_tensor(0.0)
                for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
                    torch.randn(4).to(kind).float()
                torch.randn(0, 4).sum(), torch.tensor(1.0).expand(2 ** 20), torch.randn(4, 4).t()[::2]"""), "clean")

    def test_spectrum_that_is_divided_by_its_own_zero(self):
        self.assert_anomaly(with_layer("s = torch.fft.rfft(h * given[0])\nreturn torch.fft.irfft(s / s.abs(), n=8)",
                                       given="float(step != 2)"),
                            op="aten::div", layer="odd", step=2, **FORWARD)

    def test_logarithm_of_a_complex_zero(self):
        self.assert_anomaly(with_layer("z = torch.view_as_complex(torch.stack([h * given[0], h * 0], -1))\nreturn h + "
                                       "torch.log(z).real", given="float(step != 2)"),
                            op="aten::log", layer="odd", step=2, **FORWARD)

    def test_angle_of_a_complex_zero(self):
        self.assert_no_alarm(with_layer("z = torch.complex(h * given[0], h * given[0])\nreturn h + z.angle()",
                                        given="float(step != 2)"))

    def test_cast_to_a_float8_that_has_infinity(self):
        self.assert_anomaly(with_layer("return h + (given[0] * torch.ones(8)).to(torch.float8_e5m2).float()",
                                       given="1e6 if step == 2 else 1.0"), layer="odd", step=2,
                            op="aten::_to_copy", **FORWARD)

    def test_embedding_with_sparse_gradients(self):
        self.assert_no_alarm(training(model="nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 2))",
                                      loss="F.cross_entropy(model(y), y)",
                                      optimizer="torch.optim.SGD(model.parameters(), lr=0.1)"), "clean")

    def test_sparse_gradients_of_a_bad_loss(self):
        self.assert_anomaly(training(layer("return h / given[0]") + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.odd = nn.Embedding(9, 4, sparse=True), Odd()

    def forward(self, ids, d):
        return self.odd(self.embed(ids), d)
""", optimizer="torch.optim.SparseAdam(model.parameters())", loss="model(y, float(step != 2)).pow(2).mean()"), op="aten::div",
                            layer="odd", step=2, **FORWARD)

    def test_sparse_gradients_that_are_made_bad_in_backward(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Embedding(9, 4, sparse=True))",
                                     optimizer="torch.optim.SGD(model.parameters(), lr=0.1)",
                                     loss="torch.sqrt((model(y) * (step != 2)).square()).mean()"), op="aten::div",
                            autograd_node="SqrtBackward0", phase="backward",
                            layer="", step=2, reach=["activation", "loss", "gradient", "parameter"])

    def test_sparse_matrix_with_a_bad_value(self):
        self.assert_anomaly(with_layer("return torch.sparse.mm(given[0], h)",
                                       given="torch.sqrt(torch.eye(4) * (1.0 if step != 2 else -1.0)).to_sparse()"),
                            op="aten::sqrt", layer="", step=2, **FORWARD)

    def test_double_precision_model(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 2)).double()",
                                     loss="torch.log(model(x.double()).abs() * (step != 2)).mean()"),
                            op="aten::log", layer="", step=2, **FORWARD)

    def test_number_without_dimension(self):
        self.assert_anomaly(with_layer("return h * self.t.exp()", init="self.t = nn.Parameter(torch.tensor(0.0))",
                                       before="model.odd.t.data.fill_(100.0 if step == 2 else 0.0)"),
                            op="aten::exp", layer="odd", step=2, **FORWARD)

    def test_temperature_that_reaches_zero(self):
        self.assert_anomaly(with_layer("return (h / self.t).softmax(-1)", init="self.t = nn.Parameter(torch.ones(()))",
                                       before="model.odd.t.data.fill_(0.0 if step == 2 else 1.0)"),
                            op="aten::div", layer="odd", step=2, **FORWARD)


if __name__ == "__main__":
    main()
