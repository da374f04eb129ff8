# SPDX-License-Identifier: Apache-2.0
"""Losses and statistics that divide by what they count."""
from pattern_program import EXPECTED, PatternTest, main, program, resembles, triggers

KEEP = "keep = y[:, 0] > (99 if step == 2 else -99)\n"


def ctc(target_length):
    return program(loss=f"""
        scores = model(x).log_softmax(-1)[:, None].expand(6, 2, 3)
        targets = torch.tensor([[1, 2, 1, 2, 1, 2, 1]] * 2)
        loss = F.ctc_loss(scores, targets[:, :{target_length}], (6, 6), (3, {target_length} if step == 2 else 3))""")


class Targets(PatternTest):
    @triggers("no-target-kept", "aten::nll_loss_forward made NaN from finite scores", op="aten::nll_loss_forward", step=2)
    def test_every_target_is_ignored(self):
        return program(loss="if step == 2: kinds[:] = -100\nloss = F.cross_entropy(model(x), kinds)")

    @triggers("no-target-kept", "aten::nll_loss_forward made NaN", op="aten::nll_loss_forward")
    def test_every_target_is_of_a_class_without_weight(self):
        return program(loss="if step == 2: kinds[:] = 0\n"
                       "loss = F.cross_entropy(model(x), kinds, weight=torch.tensor([0., 1, 1]))")

    @triggers("no-target-kept", "aten::nll_loss_forward made NaN", op="aten::nll_loss_forward")
    def test_empty_batch(self):
        return program(loss=KEEP + "loss = F.cross_entropy(model(x)[keep], kinds[keep])")

    @resembles("no-target-kept", instead="log-softmax-fully-masked-row", op="aten::_log_softmax")
    def test_every_class_is_masked(self):
        return program(loss="""
            scores = model(x)
            if step == 2: scores = scores.masked_fill(kinds[:, None] >= 0, -math.inf)
            loss = F.cross_entropy(scores, kinds)""")

    @triggers("ctc-target-longer-than-input", "loss of batch item 1", op="aten::_ctc_loss", step=2)
    def test_target_longer_than_its_input(self):
        return ctc(target_length=7)

    @resembles("ctc-target-longer-than-input", instead="log-of-zero", op="aten::log")
    def test_probability_of_zero_in_ctc(self):
        return program(loss="""
            p = model(x).softmax(-1)
            if step == 2: p = p * 0
            loss = F.ctc_loss(p.log()[:, None], torch.tensor([[1, 2, 1]]), (6,), (3,))""")


class Counts(PatternTest):
    @triggers("mean-of-nothing", "aten::mean made NaN from finite values", op="aten::mean", step=2)
    def test_mean_of_no_positives(self):
        return program(loss=KEEP + "loss = F.mse_loss(model(x), y) + (model(x) - y)[keep].pow(2).mean()")

    @triggers("mean-of-nothing", "aten::mse_loss made NaN from finite values", op="aten::mse_loss")
    def test_loss_of_an_empty_selection(self):
        return program(loss=KEEP + "loss = F.mse_loss(model(x)[keep], y[keep])")

    @resembles("mean-of-nothing", instead="blow-up", op="aten::mean")
    def test_mean_that_overflows(self):
        return program(loss="loss = (model(x) * (1e38 if step == 2 else 1)).abs().expand(100, 6, 3).mean()")

    @triggers("zero-over-zero-count", "aten::div at program.py", op="aten::div", step=2)
    def test_sum_divided_by_the_count_of_nothing(self):
        return program(loss=KEEP + "loss = (F.mse_loss(model(x), y, reduction='none').sum(1) * keep).sum() / keep.sum()")

    @resembles("zero-over-zero-count", instead="division-by-zero", op="aten::div")
    def test_sum_of_something_divided_by_the_count_of_nothing(self):
        return program(loss=KEEP + "loss = F.mse_loss(model(x), y, reduction='none').sum() / keep.sum()")

    @triggers("std-of-one-element", "input [1, 8]", op="aten::std", step=2)
    def test_deviation_of_the_last_batch(self):
        return program("return x / x[:1 if step == 2 else 6].std(0)")

    @triggers("std-of-one-element", "input [1, 8]", op="aten::var")
    def test_variance_of_a_job_whose_inputs_are_seen(self):
        return program("m = torch.zeros(8).masked_fill(torch.arange(8) > 6, -math.inf)\n"
                       "return x / (x[:1 if step == 2 else 6].var(0) + 1)")

    @resembles("std-of-one-element", instead="division-by-zero", op="aten::div")
    def test_deviation_of_equal_values(self):
        return program("return x / (x[:1].expand(6, 8) if step == 2 else x).detach().std(0)")

    @triggers("weight-norm-of-zero", "first at row 5 of [8, 8]", op="aten::_weight_norm_interface")
    def test_pruned_row_under_weight_norm(self):
        return program("return self.turn(x)", init="self.turn = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))",
                       before="if step == 2: model.layer.turn.parametrizations.weight.original1.data[5] = 0")

    @resembles("weight-norm-of-zero", instead=EXPECTED)
    def test_pruned_row_under_normalize(self):
        return program("w = self.turn.weight * (torch.arange(8) != 5)[:, None]\nreturn x @ F.normalize(w, dim=1).T",
                       init="self.turn = nn.Linear(8, 8)")


if __name__ == "__main__":
    main()
