# SPDX-License-Identifier: Apache-2.0
"""In-place ops, views, slices and out= arguments: the writer of the memory is to blame, wherever it is read."""
from training import BEGIN, layer, training, with_layer
from watched_program import WatchedProgramTest, main

FORWARD = {"kind": "op", "class": "produce", "phase": "forward", "layer": "odd", "step": 2}
COUNTER = {"given": "float(2 - step)"}
NEGATIVE = {"given": "torch.rand(4, 8).masked_fill(torch.eye(4, 8).bool(), -0.5 if step == 2 else 0.5)"}

# An embedding that is NaN where no row was used so far. None is new for some steps.
TABLE = BEGIN + """
table, head = nn.Embedding(20, 4, sparse=True), nn.Linear(4, 2)
table.weight.data.fill_(math.nan)
opt = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
seen = torch.zeros(20, dtype=torch.bool)
for step in range(12):
    rows = torch.randint(0, 6 if step < 2 else 8 if step < 8 else 12, (8,))
    new = rows[~seen[rows]].unique()
    if len(new):
        with torch.no_grad():
            table.weight[new] = {new}
        seen[new] = True
    opt.zero_grad()
    F.cross_entropy(head(table(rows)), torch.randint(0, 2, (8,))).backward()
    opt.step()
"""


class InPlace(WatchedProgramTest):
    def test_division_by_a_counter(self):
        self.assert_anomaly(with_layer("h = h * 1\nh.div_(given[0])\nreturn h", **COUNTER), op="aten::div_", **FORWARD)

    def test_augmented_division(self):
        self.assert_anomaly(with_layer("h = h * 1\nh /= given[0]\nreturn h", **COUNTER), op="aten::div_", **FORWARD)

    def test_division_of_the_input_of_a_layer(self):
        self.assert_anomaly(training(layer("return x.div_(self.count())",
                                           "self.left = 3\n"
                                           "self.count = lambda: setattr(self, 'left', self.left - 1) or self.left",
                                           "Scale", "x"),
                                     model="nn.Sequential(nn.Linear(6, 8), Scale(), nn.ReLU(inplace=True), nn.Linear(8, 2))"),
                            kind="op", op="aten::div_", layer="1", step=2, phase="forward")

    def test_logarithm_through_a_slice(self):
        self.assert_anomaly(with_layer("out = given[0].clone()\nout[:, 2:5].log_()\nreturn h + out",
                                       given="torch.ones(4, 8).masked_fill(torch.tensor(step == 2), -0.5)"),
                            op="aten::log_", **FORWARD)

    def test_root_through_a_view_of_another_shape(self):
        self.assert_anomaly(with_layer("out = given[0].clone()\nout.view(-1)[::2].sqrt_()\nreturn h + out", **NEGATIVE),
                            op="aten::sqrt_", **FORWARD)

    def test_root_through_a_transposed_view(self):
        self.assert_anomaly(with_layer("out = given[0].clone()\nout.t().sqrt_()\nreturn h + out", **NEGATIVE), op="aten::sqrt_",
                            **FORWARD)

    def test_reciprocal_through_a_chunk(self):
        self.assert_anomaly(with_layer("out = h * 1\na, b = (given[0] * torch.ones(4, 8)).chunk(2, "
                                       "-1)\na.reciprocal_()\nreturn out + torch.cat([a, b], -1)", **COUNTER),
                            op="aten::reciprocal_", **FORWARD)

    def test_quotient_assigned_to_rows(self):
        self.assert_anomaly(with_layer("out = torch.zeros_like(h)\nout[1:3] = h[1:3] / given[0]\nout[0] = h[0]\nreturn out",
                                       **COUNTER), op="aten::div", **FORWARD)

    def test_root_assigned_through_a_mask(self):
        self.assert_anomaly(with_layer("out = h.clone()\nout[given[0] < 9] = given[0][given[0] < 9].sqrt()\nreturn out",
                                       **NEGATIVE), op="aten::sqrt", **FORWARD)

    def test_quotient_scattered_into_a_table(self):
        self.assert_anomaly(with_layer("return torch.zeros(4, 8).scatter_add_(1, torch.zeros(4, 8, dtype=torch.long), h / "
                                       "given[0])", **COUNTER), op="aten::div", **FORWARD)

    def test_accumulation_that_overflows(self):
        self.assert_anomaly(with_layer("total = torch.full((4, 8), 3e38)\ntotal.add_(h.abs() * 0 + given[0])\nreturn h + "
                                       "total * 1e-38", given="3e38 if step == 2 else 0.0"),
                            op="aten::add_", **FORWARD)

    def test_fused_multiply_and_divide(self):
        self.assert_anomaly(with_layer("h = h * 1\nreturn h.addcdiv_(torch.ones(4, 8), torch.full((4, 8), given[0]))",
                                       **COUNTER), op="aten::addcdiv_", **FORWARD)

    def test_result_written_into_a_given_tensor(self):
        self.assert_anomaly(with_layer("out = torch.empty(4, 8)\ntorch.div(torch.ones(4, 8), given[0], out=out)\n"
                                       "return h + out", given="torch.full((4, 8), float(2 - step))"),
                            op="aten::div", **FORWARD)

    def test_running_average_kept_in_a_buffer(self):
        incident = self.assert_anomaly(with_layer("with torch.no_grad():\n    self.mean.mul_(0.9).add_(h.mean(0) / given[0], "
                                                  "alpha=0.1)\nreturn h - self.mean",
                                                  init="self.register_buffer('mean', torch.zeros(8))", **COUNTER),
                                       op="aten::div", **FORWARD)
        self.assertIn("buffer", incident["reach"])

    def test_codebook_divided_by_its_counts(self):
        """Vector quantisation: a code that nobody chose is 0 / 0."""
        incident = self.assert_anomaly(with_layer("""
            with torch.no_grad():
                codes = torch.zeros(4, dtype=torch.long) if given[0] == 2 else torch.arange(4)
                onehot = F.one_hot(codes, 4).float()
                self.book.copy_((onehot.t() @ h) / onehot.sum(0)[:, None])
            return h + self.book[codes]""", init="self.register_buffer('book', torch.randn(4, 8))", given="step"),
                                       op="aten::div", **FORWARD)
        self.assertIn("buffer", incident["reach"])

    def test_average_of_the_weights_in_a_model_that_is_never_called(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", prepare="""
            import copy
            average = copy.deepcopy(model).requires_grad_(False)""", after="""
            with torch.no_grad():
                for kept, now in zip(average.parameters(), model.parameters()):
                    kept.mul_(0.9).add_(now / torch.tensor(float(step != 2)), alpha=0.1)"""),
                            op="aten::div", step=3, reach=["activation", "parameter"])

    def test_bad_memory_that_is_written_over_is_forgotten(self):
        self.assert_no_alarm(with_layer("out = given[0].sqrt()\nout.copy_(h)\nreturn out", **NEGATIVE))

    def test_bad_part_that_is_never_read(self):
        self.assert_no_alarm(with_layer("out = torch.cat([h, given[0].sqrt().detach()], -1)\nreturn out[:, :8]", **NEGATIVE))

    def test_scratch_that_is_filled_with_nan_and_zeroed(self):
        self.assert_no_alarm(with_layer("out = torch.empty(4, 8).fill_(math.nan)\nout.zero_()\nout += h\nreturn out"))

    def test_table_of_nan_whose_rows_are_set_before_they_are_read(self):
        self.assert_no_alarm(TABLE.format(new="torch.randn(len(new), 4)"))

    def test_table_of_nan_with_a_row_set_to_nan_again(self):
        incident = self.assert_anomaly(TABLE.format(new="torch.randn(len(new), 4) / float(step != 8) * 0"), op="aten::div", step=8)
        self.assertIn("parameter", incident["reach"])

    def test_scratch_filled_with_nan_of_which_a_part_stays(self):
        self.assert_anomaly(with_layer("out = torch.full((4, 8), math.nan)\nout[:, :7] = h[:, :7]\nreturn out"),
                            op="aten::full", layer="odd", step=0)


if __name__ == "__main__":
    main()
