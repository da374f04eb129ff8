# SPDX-License-Identifier: Apache-2.0
"""NaN that the program takes care of, and repairs that come too late.

Missing labels that a mask leaves out, losses that are skipped when they are bad, infinities that a search begins with."""
from training import training, with_layer
from watched_program import WatchedProgramTest, main

LABELS = """
y = np.random.randn(4, 2).astype("float32")
y[step % 4, 0] = np.nan
y = torch.from_numpy(y)
"""


def labelled(loss):
    return training(model="nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))", before=LABELS, forward=loss)


class Repairs(WatchedProgramTest):
    def test_labels_picked_by_a_mask(self):
        self.assert_no_alarm(labelled("have = ~torch.isnan(y)\nloss = (model(x)[have] - y[have]).pow(2).mean()"))

    def test_labels_replaced_before_the_difference(self):
        self.assert_no_alarm(labelled("p = model(x)\nloss = (p - torch.where(y.isnan(), p.detach(), y)).pow(2).mean()"))

    def test_labels_replaced_by_zero_and_weighted(self):
        self.assert_no_alarm(labelled("loss = (F.mse_loss(model(x), y.nan_to_num(0.0), reduction='none') * "
                                      "y.isfinite()).sum() / y.isfinite().sum()"))

    def test_error_chosen_after_the_difference_comes_back_in_the_gradient(self):
        """The slope of the square is 2 * NaN, and 0 * NaN is NaN."""
        self.assert_anomaly(labelled("e = (model(x) - y).pow(2)\nloss = torch.where(y.isnan(), 0.0, e).sum()"),
                            kind="input_data", step=0)

    def test_mean_that_ignores_nan_comes_back_in_the_gradient(self):
        self.assert_anomaly(labelled("loss = (model(x) - y).square().nanmean()"), kind="input_data", step=0)

    def test_absolute_error_filtered_late_has_a_finite_slope(self):
        """The sign of NaN is 0 in torch."""
        self.assert_no_alarm(labelled("e = (model(x) - y).abs()\nloss = e[~e.isnan()].mean()"))

    def test_elementwise_loss_that_is_filtered_too_late(self):
        self.assert_anomaly(labelled("e = F.mse_loss(model(x), y, reduction='none')\nloss = e[~y.isnan()].mean()"),
                            kind="input_data", step=0)

    def test_labels_multiplied_by_the_mask(self):
        self.assert_anomaly(labelled("loss = ((model(x) - y) * (~y.isnan())).pow(2).mean()"), kind="input_data", op="aten::sub",
                            step=0)

    def test_activation_repaired_without_a_gradient(self):
        self.assert_no_alarm(with_layer("with torch.no_grad():\n    z = torch.nan_to_num(h / (h * 0), 0.0, 0.0, 0.0)\nreturn "
                                        "h + z"))

    def test_statistic_repaired_by_where(self):
        self.assert_no_alarm(with_layer("s = h.detach()[:1].std(0)\nreturn h / torch.where(torch.isnan(s), "
                                        "torch.ones_like(s), s)"))

    def test_detached_weight_repaired_in_place(self):
        self.assert_no_alarm(with_layer("w = (1 / (h.detach() * 0)).clamp(max=5.0)\nw[~torch.isfinite(w)] = 1.0\nreturn h * w"))

    def test_gradient_repaired_by_a_hook(self):
        self.assert_no_alarm(with_layer("z = h * 1.0\nz.register_hook(torch.nan_to_num)\nreturn h + torch.sqrt((z * given[0]) "
                                        "** 2)",
                                        given="float(step != 2)"))

    def left_out(self, test):
        self.assert_anomaly(with_layer("return h / given[0]", given="float(step != 2)",
                                       backward=f"if not ({test}):\n    loss.backward()\n    opt.step()", steps=3),
                            op="aten::div", layer="odd", step=2, reach=["activation", "loss"])

    def test_loss_that_is_left_out_when_it_is_not_finite(self):
        self.left_out("~torch.isfinite(loss)")

    def test_loss_that_is_left_out_when_it_is_nan_or_infinite(self):
        self.left_out("torch.isnan(loss) or torch.isinf(loss)")

    def test_loss_that_is_left_out_when_it_differs_from_itself_or_is_infinite(self):
        self.left_out("(loss != loss).item() or math.isinf(loss)")

    def test_loss_that_is_left_out_by_a_number_in_python(self):
        self.left_out("not math.isfinite(loss.detach().item())")

    def test_loss_that_is_replaced_when_it_is_bad(self):
        self.assert_anomaly(with_layer("return h / given[0]", given="float(step != 2)",
                                       backward="loss = torch.nan_to_num(loss, 0.0, 0.0, 0.0)\nloss.backward()\nopt.step()"),
                            op="aten::div", layer="odd", step=2)

    def test_missing_features_imputed_by_their_mean(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", forward="""
            table = np.random.randn(4, 6).astype("float32")
            table[1, 2] = np.nan
            x = torch.from_numpy(table)
            x = torch.where(x.isnan(), x.nanmean(0, keepdim=True), x)
            loss = F.cross_entropy(model(x), y)"""))

    def test_recurrent_padding_of_nan_that_packing_leaves_out(self):
        self.assert_no_alarm(training(model="nn.GRU(3, 4, batch_first=True)", forward="""
            series = nn.utils.rnn.pad_sequence([torch.randn(5, 3), torch.randn(2, 3)], batch_first=True, padding_value=math.nan)
            out, _ = model(nn.utils.rnn.pack_padded_sequence(series, [5, 2], batch_first=True))
            loss = out.data.pow(2).mean()"""))

    def test_best_so_far_that_begins_at_infinity(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", prepare="best = torch.tensor(math.inf)",
                                      after="best = torch.minimum(best, loss.detach())\nif best < loss:\n    best = "
                                            "loss.detach().clone()"))

    def test_scheduler_and_stopping_that_begin_at_infinity(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)",
                                      prepare="plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)\nbest = "
                                              "float('inf')",
                                      after="plateau.step(loss.item())\nbest = min(best, loss.item())"), "clean")


if __name__ == "__main__":
    main()
