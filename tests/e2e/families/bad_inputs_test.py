# SPDX-License-Identifier: Apache-2.0
"""NaN that comes in: by the batch, a parameter, a buffer, an embedding row, a checkpoint, memory that was never written."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

BATCH = {"kind": "input_data", "phase": "forward"}

LOADER = """
from torch.utils.data import DataLoader, Dataset, TensorDataset

rng = np.random.RandomState(0)
table, target = rng.randn(24, 6).astype("float32"), rng.randn(24, 2).astype("float32")
"""


def loaded(spoil, dataset="TensorDataset(torch.from_numpy(table), torch.from_numpy(target))",
           model="nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))",
           loss="F.mse_loss(model(x), y)", loader="batch_size=4"):
    """Row 14 of the data lies in the fourth batch."""
    return training(LOADER + spoil + "\n", model=model, prepare=f"batches = iter(DataLoader({dataset}, {loader}))",
                    forward=f"x, y = next(batches)\nloss = {loss}", steps=6)


class BadBatches(WatchedProgramTest):
    def test_feature_of_a_table(self):
        self.assert_anomaly(loaded("table[14, 2] = np.nan"), op="aten::addmm", layer="0", step=3, **BATCH)

    def test_infinite_feature(self):
        self.assert_anomaly(loaded("table[14, 2] = np.inf"), op="aten::addmm", layer="0", step=3, **BATCH)

    def test_logarithm_of_zero_that_is_normalized_first(self):
        for norm in ("LayerNorm(6)", "BatchNorm1d(6)", "GroupNorm(2, 6)"):
            with self.subTest(norm):
                self.assert_anomaly(loaded("table[14, 2] = -np.inf", model=f"nn.Sequential(nn.{norm}, nn.Linear(6, 2))"),
                                    layer="0", step=3, **BATCH)

    def test_target(self):
        self.assert_anomaly(loaded("target[14, 0] = np.nan"), op="aten::mse_loss", layer="", step=3, **BATCH)

    def test_target_met_by_a_subtraction(self):
        self.assert_anomaly(loaded("target[14, 0] = np.nan", loss="(model(x) - y).abs().mean()"), op="aten::sub", layer="",
                            step=3, **BATCH)

    def test_sample_of_an_own_data_set_with_a_worker(self):
        self.assert_anomaly(loaded("""
table[14] = np.nan
class Rows(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, i):
        return {"x": torch.from_numpy(table[i]), "y": target[i]}
""", "Rows()", loader="batch_size=4, num_workers=1").replace("x, y = next(batches)",
                                                             "batch = next(batches)\n    x, y = batch['x'], batch['y']"),
                            op="aten::addmm", layer="0", step=3, **BATCH)

    def test_float64_table_that_is_cast(self):
        self.assert_anomaly(loaded("table[14, 0] = np.nan\ntable = table.astype('float64')",
                                   loss="F.mse_loss(model(x.float()), y)"), op="aten::addmm", layer="0",
                            step=3, **BATCH)

    def test_batch_that_is_normalised_before_the_model(self):
        self.assert_anomaly(loaded("table[14, 0] = np.nan", loss="F.mse_loss(model((x - 0.5) / 2.0), y)"), op="aten::sub",
                            layer="", step=3, **BATCH)

    def test_image_into_a_convolution(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))",
                                     forward="""
            images = np.random.rand(4, 1, 5, 5).astype('float32')
            if step == 2:
                images[1, 0, 3, 3] = np.nan
            loss = F.cross_entropy(model(torch.as_tensor(images)), y)"""), op="aten::convolution", layer="0", step=2, **BATCH)

    def test_sequence_into_a_recurrent_layer(self):
        incident = self.assert_anomaly(training("""
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])
""", model="Tagger()", forward="""
            series = np.random.randn(4, 5, 3).astype('float32')
            series[2, 1, 0] = np.nan if step == 3 else 0
            loss = F.cross_entropy(model(torch.from_numpy(series)), y)"""), layer="rnn", step=3, **BATCH)
        self.assertIn(incident["origin"]["op"], ("aten::lstm", "aten::linear", "aten::addmm", "aten::mkldnn_rnn_layer"))

    def test_value_assigned_to_the_batch_in_the_loop(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)", before="if step == 3:\n    x[2, 1] = float('nan')"), layer="",
                            step=3)

    def test_batch_from_a_python_list(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(2, 2))",
                                     loss="model(torch.tensor([[1.0, 2.0], [3.0, math.nan if step == 2 else 4.0]]))"
                                          ".pow(2).mean()"),
                            op="aten::addmm", layer="0", step=2, **BATCH)

    def test_rows_with_nan_that_are_dropped(self):
        self.assert_no_alarm(loaded("table[14, 2] = np.nan",
                                    loss="F.mse_loss(model(x[~x.isnan().any(-1)]), y[~x.isnan().any(-1)])"))

    def test_nan_repaired_on_the_way_in(self):
        self.assert_no_alarm(loaded("table[14, 2] = np.nan", loss="F.mse_loss(model(torch.nan_to_num(x)), y)"))

    def test_negative_infinity_of_padding_that_a_maximum_takes_away(self):
        self.assert_no_alarm(loaded("table[14, 2] = -np.inf", loss="F.mse_loss(model(torch.relu(x)), y)"))


DETERMINISTIC = "import torch\ntorch.use_deterministic_algorithms(True)\n"


class BadState(WatchedProgramTest):
    def test_embedding_row_that_is_first_used_later(self):
        self.assert_anomaly(training("rows = np.ones((12, 4), dtype='f4')\nrows[9] = np.nan\n", forward="""
            ids = torch.tensor([1, 2, 3, 9 if step == 3 else 4])
            loss = F.cross_entropy(model(ids), y)""",
                                     model="nn.Sequential(nn.Embedding.from_pretrained(torch.from_numpy(rows), freeze=False), "
                                           "nn.Linear(4, 2))"),
                            kind="parameter", param="0.weight", layer="0")

    def test_frozen_embedding_in_a_bag(self):
        self.assert_anomaly(training("rows = np.ones((9, 4), dtype='f4')\nrows[5] = np.nan\n",
                                     model="nn.Sequential(nn.EmbeddingBag.from_pretrained(torch.from_numpy(rows), mode='mean'), "
                                           "nn.Linear(4, 2))",
                                     loss="F.cross_entropy(model(torch.tensor([[1, 2], "
                                          "[3, 5 if step == 2 else 4], [0, 1], [6, 7]])), y)"),
                            kind="parameter", param="0.weight", layer="0")

    def test_checkpoint_with_a_bad_weight(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))", prepare="""
            saved = {name: t.numpy().copy() for name, t in model.state_dict().items()}
            saved["2.weight"][0, 3] = np.nan
            model.load_state_dict({name: torch.from_numpy(a) for name, a in saved.items()})
            """), kind="parameter", param="2.weight", layer="2", step=0)

    def test_weight_in_a_file_of_torchscript(self):
        for exported in ("script(model)", "trace(model, torch.ones(4, 6))"):
            with self.subTest(exported):
                text = training(model="nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))", prepare=f"""
                    import io
                    model[2].weight.detach().numpy()[0, 3] = np.nan
                    file = io.BytesIO()
                    torch.jit.save(torch.jit.{exported}, file)
                    file.seek(0)
                    model = torch.jit.load(file)
                    """)
                self.assert_anomaly(text, kind="parameter", param="2.weight", layer="2", step=0)
                self.assertEqual(len(self.verdict_of(text)["incidents"]), 1)

    def test_layer_norm_weight_of_infinity(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 2))",
                                     prepare="model[1].weight.data[2] = float('inf')"),
                            kind="parameter", param="1.weight", layer="1", step=0)

    def test_checkpoint_with_a_bad_weight_loaded_in_the_middle_of_training(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))", before="""
            if step == 3:
                saved = {name: torch.from_numpy(t.numpy().copy()) for name, t in model.state_dict().items()}
                saved["1.weight"][0, 1] = math.nan
                model.load_state_dict(saved)"""), kind="parameter", param="1.weight", layer="1", step=3)

    def test_weight_copied_from_numpy_in_the_middle_of_training(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))", before="""
            if step == 3:
                with torch.no_grad():
                    model[1].weight.copy_(torch.from_numpy(np.full((2, 8), np.nan, dtype='f4')))"""), kind="parameter",
                            param="1.weight", layer="1", step=3)

    def test_bias_of_a_recurrent_cell_written_through_numpy(self):
        """Infinity in one column: the new state is finite, the slope of its gate is not."""
        self.assert_anomaly(training("""
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(6, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.cell(x))
""", model="Cell()", before="if step == 2:\n    model.cell.bias_hh.detach().numpy()[20] = np.inf"),
                            kind="parameter", param="cell.bias_hh", layer="cell", step=2)

    def test_parameter_left_as_allocated_under_deterministic_fill(self):
        self.assert_anomaly(DETERMINISTIC + training(
            layer("return F.linear(h, self.weight, self.bias)",
                  "self.weight = nn.Parameter(torch.randn(8, 8))\nself.bias = nn.Parameter(torch.empty(8))"),
            loss="model(x).pow(2).mean()"), kind="parameter", param="odd.bias", layer="odd", step=0)

    def test_buffer_left_as_allocated_under_deterministic_fill(self):
        self.assert_anomaly(DETERMINISTIC + training(
            layer("return h * self.gain", "self.register_buffer('gain', torch.empty(8))")), kind="buffer", param="odd.gain",
                            layer="odd", step=0)

    def test_scratch_memory_written_before_it_is_read(self):
        text = with_layer("out = torch.empty(4, 8)\nout.copy_(h)\nreturn out")
        self.assert_no_alarm(DETERMINISTIC + text, "clean")

    def test_memory_bank_whose_unused_slots_hold_nan(self):
        self.assert_anomaly(with_layer("w = torch.tensor([[1.0, 0.0, 0.0]])\nreturn h + w @ self.bank if given[0] else h",
                                       given="step >= 2",
                                       init="self.register_buffer('bank', torch.from_numpy(np.where("
                                            "np.arange(3)[:, None] < 1, 1.0, "
                                            "np.nan).astype('f4').repeat(8, 1)))"),
                            kind="buffer", param="odd.bank", layer="odd")

    def test_class_weights_of_a_loss(self):
        self.assert_anomaly(training(model="nn.Linear(6, 2)",
                                     prepare="criterion = nn.CrossEntropyLoss(weight=torch.from_numpy(np.array([1.0, np.nan], "
                                             "dtype='f4')))",
                                     before="y[:] = step >= 2", loss="criterion(model(x), y)"), kind="buffer", param="weight",
                            root="CrossEntropyLoss#0")

    def test_mean_of_a_normalisation_layer_in_evaluation_mode(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4).eval(), nn.Linear(4, 2))",
                                     prepare="model[1].running_mean.copy_(torch.from_numpy("
                                             "np.array([0, np.nan, 0, 0], dtype='f4')))"),
                            kind="buffer", param="1.running_mean", layer="1", step=0)

    def test_weights_of_a_head_that_is_replaced_in_the_middle(self):
        for head in ("nn.Linear(4, 2)", "nn.Sequential(nn.Linear(4, 2))"):  # of another class
            with self.subTest(head):
                self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))", before=f"""
            if step == 2:
                head = {head}
                (head[0] if isinstance(head, nn.Sequential) else head).weight = nn.Parameter(torch.from_numpy(
                    np.full((2, 4), np.nan, dtype='f4')))
                model[1] = head"""), kind="parameter", op="aten::addmm", param="1.0.weight" if "Seq" in head else "1.weight")

    def test_parameters_that_are_replaced_in_the_middle_and_kept_by_the_optimizer(self):
        bad = "torch.from_numpy(np.full((2, 8), np.nan, dtype='f4'))"
        for replace in (f"model[1].weight = nn.Parameter({bad})", f"model.load_state_dict(dict(model.state_dict(), **{{'1.weight': {bad}}}), assign=True)"):
            with self.subTest(replace):
                self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))", before=f"""
            if step == 2:
                {replace}"""), kind="parameter", param="1.weight", layer="1", step=2)

    def test_checkpoint_of_a_buffer_that_is_loaded_in_the_middle(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))", before="""
            if step == 2:
                import io
                saved, file = {name: value.clone() for name, value in model.state_dict().items()}, io.BytesIO()
                saved["1.running_var"].numpy()[1] = np.nan
                torch.save(saved, file), file.seek(0)
                model.load_state_dict(torch.load(file)), model.eval()"""), kind="buffer", op="aten::copy_", param="1.running_var", step=2)

    # As a captured graph wants it, whose inputs stay where they are.
    def test_batch_that_is_copied_into_a_buffer_of_the_model(self):
        self.assert_anomaly(training(layer("return x + self.held", "self.register_buffer('held', torch.zeros(4, 6))", "Static", "x"),
                                     model="nn.Sequential(Static(), nn.Linear(6, 2))", before="""
            with torch.no_grad():
                model[0].held.copy_(torch.from_numpy(np.full((4, 6), np.nan if step == 3 else 1, dtype='f4')))"""),
                            step=3, kind="input_data")

    def test_buffer_that_is_computed_of_a_batch(self):
        self.assert_anomaly(training(layer("return x + self.mean", "self.register_buffer('mean', torch.zeros(6))", "Center", "x"),
                                     model="nn.Sequential(Center(), nn.Linear(6, 2))", before="""
            model[0].mean = torch.from_numpy(np.full((4, 6), np.nan if step == 3 else 1, dtype='f4')).mean(0)"""),
                            step=3, kind="input_data")

    def test_memory_of_numpy_that_is_given_to_a_parameter_in_the_middle(self):
        self.assert_anomaly(training(model="nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))", before="""
            if step == 2:
                model[1].weight.data = torch.from_numpy(np.full((2, 4), np.nan, dtype='f4'))"""),
                            kind="parameter", op="torch.Tensor.data", param="1.weight", step=2)

    def test_state_of_an_optimizer_from_a_checkpoint(self):
        incident = self.assert_anomaly(training(model="nn.Linear(6, 2)", before="""
            if step == 2:
                saved = opt.state_dict()
                saved["state"][0]["exp_avg"] = torch.from_numpy(np.full((2, 6), np.nan, dtype='f4'))
                opt.load_state_dict(saved)"""), pattern="optimizer-state-loaded-bad", kind="optimizer_state", step=2)
        self.assertIn("parameter", incident["reach"])

    # Before the model was called, nobody knows the parameter's name.
    def test_memory_of_numpy_that_is_given_to_a_parameter_at_first(self):
        for model, name, use in (("nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))", "0.weight", "model[0].weight"),
                                 ("prune.l1_unstructured(nn.Linear(6, 2), 'weight', 0.5)", "weight_orig", "model.weight_orig")):
            with self.subTest(name):
                text = training(model=model, before=f"""
            if step == 0:
                saved = {use}.detach().numpy().copy()
                saved[0, 1] = np.nan
                {use}.data = torch.from_numpy(saved)""").replace("import torch\n", "import torch\nfrom torch.nn.utils import prune\n", 1)
                self.assert_anomaly(text, kind="parameter", param=name, step=0)
                self.assertEqual(len(self.verdict_of(text)["incidents"]), 1)


if __name__ == "__main__":
    main()
