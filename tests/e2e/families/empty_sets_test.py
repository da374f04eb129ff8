# SPDX-License-Identifier: Apache-2.0
"""Averages over nothing, sums divided by a count of zero, and spreads of one element."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

FORWARD = {"kind": "op", "class": "produce", "phase": "forward"}
LOSS = ["activation", "loss"]


class EmptySets(WatchedProgramTest):
    def test_cross_entropy_with_every_target_ignored(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", before="y[:] = -100 if step == 3 else 1",
                                     loss="F.cross_entropy(model(x), y)"),
                            op="aten::nll_loss_forward", layer="", step=3, reach=LOSS, **FORWARD)

    def test_loss_module_with_a_padding_index(self):
        self.assert_anomaly(training(layer("return self.ce(self.fc(x), y)",
                                           "self.fc = nn.Linear(6, 2)\nself.ce = nn.CrossEntropyLoss(ignore_index=0)",
                                           name="Task", given="x, y"),
                                     model="Task()", before="y[:] = 0 if step == 2 else 1", loss="model(x, y)"),
                            op="aten::nll_loss_forward", layer="ce", step=2, reach=LOSS, **FORWARD)

    def test_segmentation_with_every_pixel_ignored(self):
        self.assert_anomaly(training(model="nn.Conv2d(1, 3, 3, padding=1)", forward="""
            labels = torch.full((2, 5, 5), 255 if step == 2 else 1)
            loss = F.cross_entropy(model(torch.randn(2, 1, 5, 5)), labels, ignore_index=255)"""),
                            op="aten::nll_loss2d_forward", layer="", step=2, **FORWARD)

    def test_language_model_with_an_unlabelled_batch(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))", forward="""
            ids = torch.randint(0, 9, (2, 5))
            labels = ids.clone()
            labels[:, :4 if step != 3 else 5] = -100
            logits = model(ids).float()
            loss = F.cross_entropy(logits.view(-1, 9), labels.view(-1))"""), op="aten::nll_loss_forward", layer="", step=3,
                            reach=LOSS, **FORWARD)

    def test_cross_entropy_of_no_row(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", forward="""
            kept = y < (0 if step == 3 else 2)
            loss = F.cross_entropy(model(x[kept]), y[kept])"""), op="aten::nll_loss_forward", layer="", step=3, **FORWARD)

    def test_weighted_cross_entropy_whose_weights_are_zero(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", before="y[:] = 0 if step == 3 else 1",
                                     loss="F.cross_entropy(model(x), y, weight=torch.tensor([0.0, 1.0]))"),
                            op="aten::nll_loss_forward", layer="", step=3, **FORWARD)

    def test_mean_over_no_positive(self):
        self.assert_anomaly(with_layer("return h",
                                       forward="out = model(x, 1)\npositive = y > (5 if step == 3 else -1)\nloss = "
                                               "out[positive].mean()"),
                            op="aten::mean", layer="", step=3, reach=LOSS, **FORWARD)

    def test_mean_over_no_positive_spoils_the_sum_of_losses(self):
        self.assert_anomaly(training(layer("box = F.smooth_l1_loss(p[keep], t[keep])\nreturn F.mse_loss(p, t) + box",
                                           name="Loss", given="p, t, keep"),
                                     model="nn.Linear(6, 2)", prepare="criterion = Loss()",
                                     loss="criterion(model(x), torch.zeros(4, 2), y > (5 if step == 2 else -1))"),
                            op="aten::smooth_l1_loss", layer="", root="Loss#0", step=2, reach=LOSS, **FORWARD)

    def test_mean_squared_error_of_nothing(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)",
                                     forward="keep = y > (5 if step == 2 else -1)\nloss = nn.MSELoss()(model(x)[keep], x[keep, "
                                             ":2])"),
                            op="aten::mse_loss", layer="", step=2, **FORWARD)

    def test_sum_over_a_mask_divided_by_its_count(self):
        self.assert_anomaly(with_layer("m = given[0]\nreturn h + ((h * m).sum(1) / m.sum(1))[:, None]",
                                       given="torch.ones(4, 8) * torch.tensor([[1.0], [1.0], [float(step != 3)], [1.0]])"),
                            op="aten::div", layer="odd", step=3, **FORWARD)

    def test_masked_mean_pooling_of_a_sentence_encoder(self):
        self.assert_anomaly(training("""
class Pool(nn.Module):
    def forward(self, h, mask):
        return (h * mask[..., None]).sum(1).div(mask.sum(1, keepdim=True))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pool = nn.Embedding(9, 8), Pool()
        self.rnn = nn.GRU(8, 8, batch_first=True)

    def forward(self, ids, mask):
        return self.pool(self.rnn(self.embed(ids))[0], mask)
""", model="Encoder()", forward="""
            ids, mask = torch.randint(0, 9, (3, 4)), torch.ones(3, 4)
            mask[1] = float(step != 2)
            loss = model(ids, mask).pow(2).mean()"""), op="aten::div", layer="pool", step=2, **FORWARD)

    def test_loss_divided_by_a_number_of_boxes_that_is_zero(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)",
                                     loss="F.l1_loss(model(x), x[:, :2], reduction='sum') / "
                                          "(y > (5 if step == 2 else -1)).sum()"),
                            op="aten::div", layer="", step=2, **FORWARD)

    def test_dice_without_a_smoothing_term(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", forward="""
            p, t = torch.relu(model(x)) * (step != 3), torch.ones(4, 2) * (step != 3)
            loss = 1 - 2 * (p * t).sum() / (p.sum() + t.sum())"""), op="aten::div", layer="", step=3, **FORWARD)

    def test_mean_of_all_nan_values(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", forward="""
            error = (model(x) - 1).pow(2)
            target = torch.from_numpy(np.full((4, 2), np.nan if step == 2 else 1.0, dtype='float32'))
            loss = torch.where(target.isnan(), error * 0, error).sum() / (~target.isnan()).sum()"""), op="aten::div", layer="",
                            step=2, **FORWARD)

    def test_unbiased_deviation_of_one_row(self):
        self.assert_anomaly(with_layer("return h - h[:given[0]].std(0)", given="1 if step == 3 else 4"), op="aten::std",
                            layer="odd", step=3, **FORWARD)

    def test_unbiased_variance_of_a_last_batch_of_one(self):
        self.assert_anomaly(training(layer("return x / (x.var(dim=0, keepdim=True) + 1e-5).sqrt()", name="Whiten", given="x"),
                                     model="nn.Sequential(nn.Linear(6, 8), Whiten(), nn.Linear(8, 1))",
                                     loss="model(x[:1 if step == 4 else 4]).pow(2).mean()"),
                            op="aten::var", layer="1", step=4, **FORWARD)

    def test_unbiased_variance_and_mean_of_one_row(self):
        self.assert_anomaly(with_layer("v, m = torch.var_mean(h[:given[0]], dim=0)\nreturn (h - m) * torch.rsqrt(v + 1e-5)",
                                       given="1 if step == 3 else 4"),
                            op="aten::var_mean", layer="odd", step=3, **FORWARD)

    def test_advantages_of_one_sample(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", forward="""
            returns = torch.randn(1 if step == 2 else 4)
            advantage = (returns - returns.mean()) / (returns.std() + 1e-8)
            loss = -(model(x[:len(returns)]).log_softmax(-1)[:, 0] * advantage).mean()"""), op="aten::std", layer="", step=2,
                            **FORWARD)

    def assert_metric(self, text, **origin):
        """An anomaly that spoils a number the program shows, and nothing of the training."""
        incident = self.assert_anomaly(text, reach=["activation", "metric"], **origin)
        self.assertEqual(incident["severity"], "warning")

    def test_metric_over_an_empty_class_is_a_warning(self):
        self.assert_metric(training(model="nn.Linear(6, 2)", loss="F.cross_entropy(model(x), y)", after="""
            with torch.no_grad():
                right = (model(x).argmax(-1) == y).float()
                right[y > 5].mean().item()
                float(right[y > 5].sum() / (y > 5).sum())"""), op="aten::mean")

    def test_metric_made_by_the_op_that_makes_the_loss_is_no_loss(self):
        self.assert_metric(training(model="nn.Linear(6, 2)", loss="(model(x) - 1).pow(2).mean()", after="""
            with torch.no_grad():
                error = (model(x) - 1).pow(2)
                seen = error[y > 5].mean().item()"""), op="aten::mean")

    def test_metric_that_is_divided_like_the_loss_is_no_loss(self):
        self.assert_metric(training(model="nn.Linear(6, 2)", loss="(model(x) - 1).pow(2).sum() / 4", after="""
            with torch.no_grad():
                precision = ((y == 1).float() * (y > 5)).sum() / (y > 5).sum()
                precision.item()"""), op="aten::div")

    def test_validation_loss_of_an_empty_batch(self):
        self.assert_metric(training(model="nn.Linear(6, 2)", loss="F.cross_entropy(model(x), y)", after="""
            model.eval()
            with torch.no_grad():
                shown = F.cross_entropy(model(x[:0]), y[:0])
            model.train()
            print(shown.item())"""), op="aten::nll_loss_forward", layer="")

    def test_validation_loss_of_a_layer_in_inference_mode(self):
        self.assert_metric(with_layer("return h if self.training else torch.log(h * 0 - 1)", after="""
            model.eval()
            with torch.inference_mode():
                float(model(x).sum())
            model.train()"""), op="aten::log", layer="odd", step=1)

    def test_number_that_nobody_reads_is_no_metric(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", loss="F.cross_entropy(model(x), y)", after="""
            with torch.no_grad():
                (y[y > 5] * 1.0).mean()"""))

    def test_infinite_number_to_begin_with_is_no_metric(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", loss="F.cross_entropy(model(x), y)", after="""
            with torch.no_grad():
                best = min(torch.full((), math.inf), loss.detach()).item()
                torch.full((), math.inf).item()"""))

    def test_loss_that_the_program_read_and_left_out_is_no_metric(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", forward="""
            loss = F.cross_entropy(model(x), y)
            if step == 2:
                loss = (loss - loss.detach()) / 0
            with torch.no_grad():
                shown = (loss * 1.0).item()
            if math.isnan(shown):
                continue"""))

    def test_norm_of_gradients_that_the_program_left_out_is_no_metric(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", loss="F.cross_entropy(model(x), y)", backward="""
            loss.backward()
            if step == 2:
                model.weight.grad.div_(0).mul_(0)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if math.isfinite(norm.item()):
                opt.step()"""))


if __name__ == "__main__":
    main()
