# SPDX-License-Identifier: Apache-2.0
"""Normalisation by a spread of zero or of one value, and statistics that overflow or divide by zero."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

FORWARD = {"kind": "op", "class": "produce", "phase": "forward"}

OWN_BATCH_NORM = """
class ABN(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_var", torch.ones(c))

    def forward(self, x):
        return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training, 0.1, 1e-5, False)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.body = nn.AdaptiveAvgPool2d(1), nn.Sequential(nn.Conv2d(3, 4, 1), ABN(4), nn.ReLU())
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.body(self.pool(x)).flatten(1))
"""


class Normalisation(WatchedProgramTest):
    def test_one_value_per_channel_spoils_the_running_variance_alone(self):
        self.assert_anomaly(training(OWN_BATCH_NORM, model="Head()", before="n = 1 if step == 3 else 4",
                                     loss="F.cross_entropy(model(torch.randn(n, 3, 4, 4)), y[:n])"), kind="op",
                            op="aten::native_batch_norm", **{"class": "produce"},
                            layer="body.1", param="body.1.running_var", step=3, phase="forward", reach=["activation", "buffer"])

    def test_running_variance_is_told_though_only_the_evaluation_shows_it(self):
        self.assert_anomaly(training(OWN_BATCH_NORM, model="Head()", before="n = 1 if step == 1 else 4",
                                     loss="F.cross_entropy(model(torch.randn(n, 3, 4, 4)), y[:n])", after="""
            model.eval()
            with torch.no_grad():
                model(torch.randn(2, 3, 4, 4)).sum().item()
            model.train()"""), kind="op", param="body.1.running_var", layer="body.1", step=1,
                            reach=["activation", "buffer", "metric"])

    # What the schedule of a momentum ruins was finite before: nobody loaded it so.
    def test_momentum_of_nan(self):
        model = "nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))"
        self.assert_anomaly(training(model=model, before="model[1].momentum = float('nan') if step == 2 else 0.1"), "number-is-nan",
                            kind="op", op="aten::native_batch_norm", layer="1", param="1.running_mean", step=2, exact=False,
                            reach=["activation", "buffer"], **{"class": "scalar"})

    # In the first call nobody can tell.
    def test_statistics_without_a_number_are_not_known_for_certain(self):
        model = "nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=float('nan')), nn.Linear(4, 2))"
        self.assert_anomaly(training(model=model), layer="1", step=0, exact=False)

    def test_running_variance_that_overflows(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))",
                                     before="if step == 2:\n    x[1] *= 1e25"),
                            layer="1", step=2, phase="forward")

    def test_layer_norm_of_large_activations(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 2))",
                                     before="if step == 3:\n    x[2] *= 1e25"),
                            op="aten::native_layer_norm", layer="1", layer_type="LayerNorm", step=3, **FORWARD)

    def test_layer_norm_of_a_constant_row_without_epsilon(self):
        self.assert_anomaly(with_layer("return F.layer_norm(h * given[0], (8,), eps=0.0)",
                                       given="torch.zeros(4, 1) if step == 2 else 1.0"),
                            op="aten::native_layer_norm", layer="odd", step=2, **FORWARD)

    def test_square_that_overflows_and_is_divided_away(self):
        self.assert_no_alarm(training(layer("return self.g * h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)",
                                            "self.g = nn.Parameter(torch.ones(8))",
                                            "RMSNorm", "h"), model="nn.Sequential(nn.Linear(6, 8), RMSNorm(), nn.Linear(8, "
                                                                   "2)).half()",
                                      optimizer="torch.optim.SGD(model.parameters(), lr=1e-3)",
                                      loss="(model((x * (1e3 if step == 2 else 1)).half()).float()).pow(2).mean()"))

    def test_root_mean_square_norm_of_torch(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8, bias=False), nn.RMSNorm(8, eps=0.0), nn.Linear(8, 2))",
                                     before="if step == 2:\n    x[1] = 0"), layer="1", step=2, phase="forward",
                            **{"class": "produce"})

    def test_instance_norm_keeps_its_constant_channels(self):
        self.assert_no_alarm(training(model="nn.Sequential(nn.Conv1d(2, 4, 1), nn.InstanceNorm1d(4, affine=True))",
                                      loss="model(torch.ones(2, 2, 5)).pow(2).mean()"), "clean")

    def test_weight_norm_of_a_direction_that_was_pruned(self):
        self.assert_anomaly(training("from torch.nn.utils.parametrizations import weight_norm",
                                     model="nn.Sequential(nn.Linear(6, 8), nn.Tanh(), weight_norm(nn.Linear(8, 2)))", before="""
            if step == 2:
                with torch.no_grad():
                    model[2].parametrizations.weight.original1[1] = 0"""),
                            op="aten::_weight_norm_interface", layer="2.parametrizations.weight.0", step=2, **FORWARD)

    def test_weight_norm_of_old_on_a_convolution(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.utils.weight_norm(nn.Conv1d(2, 4, 3)), nn.ReLU())", forward="""
            if step == 3:
                model[0].weight_v.data[0].zero_()
            loss = model(torch.randn(2, 2, 6)).pow(2).mean()"""),
                            op="aten::_weight_norm_interface", layer="0", step=3, **FORWARD)

    def test_spectral_norm_of_a_weight_of_zeros(self):
        self.assert_anomaly(training("from torch.nn.utils.parametrizations import spectral_norm",
                                     model="nn.Sequential(nn.Linear(6, 8), spectral_norm(nn.Linear(8, 2)))", before="""
            if step == 2:
                model[1].parametrizations.weight.original.data.zero_()"""),
                            op="aten::div", layer="1.parametrizations.weight.0", step=2, **FORWARD)

    def test_weight_standardisation_of_a_constant_filter(self):
        self.assert_anomaly(training(layer("""
            w = self.weight
            w = (w - w.mean((1, 2), keepdim=True)) / w.std((1, 2), keepdim=True)
            return F.conv1d(x, w, self.bias)""", name="WSConv", given="x").replace("WSConv(nn.Module)", "WSConv(nn.Conv1d)")
                                     .replace("super().__init__()", "super().__init__(2, 4, 3)"),
                                     model="nn.Sequential(nn.Identity(), WSConv())", forward="""
            if step == 2:
                model[1].weight.data[1] = 0.25
            loss = model(torch.randn(2, 2, 6)).pow(2).mean()"""), op="aten::div", layer="1", step=2, **FORWARD)

    def test_standardisation_of_a_feature_that_is_constant_in_a_batch(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", forward="""
            if step == 3:
                x[:, 2] = 1.0
            x = (x - x.mean(0)) / x.std(0)
            loss = F.cross_entropy(model(x), y)"""), op="aten::div", layer="", step=3, **FORWARD)

    def test_statistics_of_a_data_set_with_a_constant_feature(self):
        """The buffer that the model divides by is finite: the division is to blame."""
        self.assert_anomaly(training(layer("return (x - self.mean) / self.std",
                                           "table = torch.randn(20, 6)\ntable[:, 3] = 7.0\n"
                                           "self.register_buffer('mean', table.mean(0))\nself.register_buffer('std', "
                                           "table.std(0))", "Standardise", "x"),
                                     model="nn.Sequential(Standardise(), nn.Linear(6, 2))"),
                            op="aten::div", layer="0", step=0, **FORWARD)

    def test_scaling_to_the_range_of_a_constant_row(self):
        self.assert_anomaly(with_layer("h = h * given[0]\nlow, high = h.amin(-1, keepdim=True), h.amax(-1, "
                                       "keepdim=True)\nreturn (h - low) / (high - low)",
                                       given="torch.zeros(4, 1) if step == 1 else 1.0"),
                            op="aten::div", layer="odd", step=1, **FORWARD)

    # Training only writes them, and saves them again.
    def test_running_statistics_that_were_loaded_bad_are_ruined(self):
        model = "nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))"
        for way in ("model[1].running_var = torch.from_numpy(saved)",
                    "model.load_state_dict({**model.state_dict(), '1.running_var': torch.from_numpy(saved)})"):
            with self.subTest(way):
                text = training(model=model, before=f"""
            if step == 0:
                saved = np.ones(4, dtype='f4')
                saved[2] = np.nan
                {way}""")
                self.assert_anomaly(text, kind="buffer", layer="1", param="1.running_var", step=0, reach=["activation", "buffer"])
                self.assertEqual(len(self.verdict_of(text)["incidents"]), 1)


if __name__ == "__main__":
    main()
