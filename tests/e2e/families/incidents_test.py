# SPDX-License-Identifier: Apache-2.0
"""One incident once: what follows from an origin is counted, not told again; a cause of its own is an incident of its own."""
from training import training, with_layer
from watched_program import WatchedProgramTest, main


def place(text):
    """The line that ends with `# here`, as an origin's source begins."""
    (number,) = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# here")]
    return f"program.py:{number}"


class Incidents(WatchedProgramTest):
    def anomalies(self, text):
        return [i for i in self.verdict_of(text)["incidents"] if i["severity"] != "info"]

    def test_thousand_bad_steps_after_the_first_are_one_incident(self):
        told = self.anomalies(with_layer("return h / given[0]", given="float(step != 3)", steps=1004,
                                         after="assert loss.isfinite() == (step < 3)"))
        self.assertEqual([(i["origin"]["op"], i["origin"]["layer"], i["origin"]["step"]) for i in told],
                         [("aten::div", "odd", 3)])
        self.assertGreater(told[0]["count"], 8)  # at least each of the four parameters and its gradient followed

    def test_loss_that_is_bad_again_and_again_is_one_incident(self):
        told = self.anomalies(training(model="nn.Linear(6, 2)", before="y[:] = -100 if step % 3 == 1 else 0",
                                       loss="F.cross_entropy(model(x), y)", steps=30))
        self.assertEqual([(i["origin"]["op"], i["first_step"], i["last_step"], i["count"]) for i in told],
                         [("aten::nll_loss_forward", 1, 28, 10)])

    def test_two_causes_are_two_incidents(self):
        told = self.anomalies(training(model="nn.Linear(6, 2)", before="y[:] = -100 if step == 1 else 0", steps=8,
                                       loss="F.cross_entropy(model(x), y) if step < 4 else "
                                            "model(x)[y > (9 if step == 5 else -1)].mean()"))
        self.assertEqual(sorted((i["origin"]["op"], i["origin"]["step"]) for i in told),
                         [("aten::mean", 5), ("aten::nll_loss_forward", 1)])

    def test_what_ruined_the_parameters_comes_before_what_only_spoiled_a_loss(self):
        told = self.anomalies(with_layer("return h / given[0]", given="float(step != 6)",
                                         before="y[:] = -100 if step == 1 else 0", steps=10,
                                         loss="F.cross_entropy(model(x, float(step != 6)), y)"))
        self.assertEqual([i["origin"]["op"] for i in told][:1], ["aten::div"])
        self.assertEqual(told[0]["origin"]["step"], 6)
        self.assertEqual(told[1]["origin"]["op"], "aten::nll_loss_forward")

    def test_line_of_the_loss_and_not_of_a_metric_that_calls_the_same_op(self):
        text = training(model="nn.Linear(6, 2)", forward="""
            out = model(x)
            worst = torch.log(out.detach() * 0).max()
            loss = torch.log(out.abs() * float(step != 2)).mean()  # here""")
        self.assert_anomaly(text, op="aten::log", layer="", step=2, source=place(text) + " in <module>")

    def test_line_of_a_layer_that_calls_the_op_of_its_metric_again(self):
        text = with_layer("""
            self.worst = torch.log(h.detach() * 0).max()
            return torch.log(h.abs() * 0 + given[0])  # here""", given="float(step != 2)")
        self.assert_anomaly(text, op="aten::log", layer="odd", step=2, source=place(text) + " in forward")

    def test_harmless_masks_do_not_come_before_the_cause(self):
        said = self.verdict_of(with_layer("return h.masked_fill(torch.eye(4, 8).bool(), -math.inf).softmax(-1) / given[0]",
                                          given="float(step != 4)", steps=8))
        self.assertEqual(said["incidents"][0]["origin"]["op"], "aten::div")
        self.assertEqual({i["severity"] for i in said["incidents"][1:]}, {"info"})

    def test_two_layers_that_fail_in_the_same_step(self):
        text = with_layer("return torch.log(h * 0 + given[0])", given="float(step != 2)",
                          loss="model(x, float(step != 2)).pow(2).mean() + (x / (step != 2)).sum()")
        self.assertEqual(self.verdict_of(text)["incidents"][0]["origin"]["op"], "aten::log")

    def test_same_fault_in_each_of_three_layers_is_told_at_the_first(self):
        self.assert_anomaly(training("class Odd(nn.Module):\n    def forward(self, h):\n        return torch.sqrt(h - 100)\n",
                                     model="nn.Sequential(nn.Linear(6, 8), Odd(), nn.Linear(8, 8), Odd(), nn.Linear(8, 2))"),
                            op="aten::sqrt", layer="1", step=0)


class Healthy(WatchedProgramTest):
    def test_perceptron(self):
        self.assert_no_alarm(training(model="nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), "
                                            "nn.Linear(8, 2))", loss="F.cross_entropy(model(x), y)", steps=50), "clean")

    def test_transformer(self):
        self.assert_no_alarm(training(model="nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, "
                                            "norm_first=True), 2, enable_nested_tensor=False)",
                                      loss="model(torch.randn(2, 5, 8)).pow(2).mean()",
                                      optimizer="torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)", steps=20),
                             "clean")

    def test_convolution_and_recurrence_in_bfloat16(self):
        self.assert_no_alarm(training("""
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn, self.out = nn.Conv1d(3, 4, 3), nn.GRU(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.rnn(F.gelu(self.conv(x)).transpose(1, 2))[0][:, -1])
""", model="Tagger().bfloat16()", loss="model(torch.randn(2, 3, 8).bfloat16()).float().pow(2).mean()", steps=20), "clean")

    def test_convolution_into_a_layer_that_is_made_on_its_first_use(self):
        self.assert_no_alarm(training(model="nn.Sequential(nn.Conv1d(3, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), "
                                            "nn.MaxPool1d(2), nn.Flatten(), nn.LazyLinear(2))",
                                      optimizer="None", loss="model(torch.randn(2, 3, 8)).pow(2).mean()", steps=20,
                                      prepare="model(torch.randn(2, 3, 8))\nopt = torch.optim.Adadelta(model.parameters())"),
                             "clean")

    def test_every_optimizer(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)",
                                      prepare="others = [getattr(torch.optim, n)(model.parameters()) for n in "
                                              "'ASGD Adadelta Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD'.split()]",
                                      backward="loss.backward()\nfor o in others:\n    o.step()"), "clean")


if __name__ == "__main__":
    main()
