# SPDX-License-Identifier: Apache-2.0
"""Values that came in from outside the ops: batch, targets, parameters, buffers."""
from pattern_program import CLEAN, EXPECTED, PatternTest, main, program, resembles, triggers

BATCH_NORM = """
    self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
    self.register_buffer("running_mean", torch.zeros(8))
    self.register_buffer("running_var", torch.ones(8))"""
NORMALISE = """
    h = x.view(6, 8, 1, 1)
    if step == 2: h = {at_step_2}
    h = torch.batch_norm(h, self.weight, self.bias, self.running_mean, self.running_var, True, 0.1, 1e-5, False)
    return h.flatten(1).expand(6, 8)"""
BANK = """
    bank = numpy.zeros((4, 8), "float32")
    bank[3] = {unused}
    self.register_buffer("bank", torch.from_numpy(bank))"""
WORDS = """
    vectors = numpy.random.RandomState(0).randn(40, 8).astype("float32")
    vectors[31] = numpy.nan
    self.words = nn.Embedding.from_pretrained(torch.from_numpy(vectors), freeze=False)"""

LOAD = """
    if step == 2:
        saved = optimizer.state_dict()
        saved["state"][0]["{name}"] = torch.from_numpy(numpy.full_like(saved["state"][0]["{name}"].numpy(), numpy.nan))
        optimizer.load_state_dict(saved)"""


def numpy_batch(name, value):
    return f"a = {name}.numpy().copy()\nif step == 2: a[3, 1] = {value}\n{name} = torch.from_numpy(a)"


class Batch(PatternTest):
    @triggers("bad-target", "1 of 18 values of the target, first at [3, 1]", op="aten::mse_loss", step=2)
    def test_missing_label(self):
        return program(before=numpy_batch("y", "numpy.nan"))

    @triggers("bad-target", "1 of 18 values of the target, first at [3, 0]", op="aten::binary_cross_entropy_with_logits")
    def test_missing_label_that_was_assigned(self):
        return program(loss="""
            t = (y > 0).float()
            if step == 2: t[3, 0] = float("nan")
            loss = F.binary_cross_entropy_with_logits(model(x), t)""")

    @triggers("memory-filled-unseen", "1 of 24 values, first at [2, 1]; first used by aten::addmm", kind="input_data", step=2)
    def test_batch_that_other_code_wrote(self):
        return program(top="import ctypes", before="""
            a = x.numpy().copy()
            if step == 2: a[2, 1] = numpy.nan
            x = torch.zeros(6, 4)
            ctypes.memmove(x.data_ptr(), a.ctypes.data, a.nbytes)""")

    @resembles("memory-filled-unseen", instead="nan-in-batch", step=2)
    def test_batch_in_memory_of_numpy(self):
        return program(before=numpy_batch("x", "numpy.nan"))

    @triggers("gradient-from-outside", "first used by aten::mul", phase="backward", step=2)
    def test_gradient_that_a_hook_takes_from_numpy(self):
        return program(layer="""
            h = x * 2.0
            if step == 2:
                a = numpy.ones(h.shape, "float32")
                a[0, 0] = numpy.nan
                h.register_hook(lambda g: torch.from_numpy(a))
            return h""")

    @resembles("gradient-from-outside", instead="nan-in-batch", op="aten::mul", phase="forward")
    def test_activation_that_is_taken_from_numpy(self):
        return program(layer="""
            a = numpy.ones(x.shape, "float32")
            if step == 2: a[0, 0] = numpy.nan
            return x * torch.from_numpy(a)""")

    @resembles("bad-target", instead="nan-in-batch", op="aten::addmm")
    def test_missing_feature(self):
        return program(before=numpy_batch("x", "numpy.nan"))

    @resembles("bad-target", instead=EXPECTED)
    def test_missing_label_that_was_left_out(self):
        return program(before=numpy_batch("y", "numpy.nan"), loss="""
            keep = y.isfinite()
            loss = F.mse_loss(model(x)[keep], y[keep])""")

    @triggers("inf-in-batch", "1 of 24 values, first at [3, 1]; first used by aten::addmm", layer="first")
    def test_infinite_feature(self):
        return program(before=numpy_batch("x", "-numpy.log(0.0)"))

    @triggers("inf-in-batch", "first used by aten::addmm", layer="first")
    def test_infinite_feature_in_a_list_whose_sum_went_bad_too(self):
        return program(before="""
            rows = x.tolist()
            if step == 2: rows[3][1] = 1e39
            x = torch.tensor(rows)""", loss="loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()")

    @resembles("inf-in-batch", instead="exp-overflow", op="aten::exp")
    def test_infinity_that_an_op_made_of_the_batch(self):
        return program(before="if step == 2: x = torch.exp(x * 200)")

    @triggers("nan-in-batch", "1 of 24 values, first at [3, 2]; first used by aten::addmm", step=2, layer="first")
    def test_sample_of_a_data_set(self):
        return program(top="""
            data = numpy.random.RandomState(0).randn(24, 4).astype("float32")
            data[15, 2] = numpy.nan
            batches = iter(torch.utils.data.DataLoader(list(data), batch_size=6))""", before="x = next(batches)")

    @triggers("nan-in-batch", "1 of 24 values, first at [3, 1]")
    def test_batch_that_numpy_wrote_into_behind_torch(self):
        return program(before="a = x.numpy().copy()\nx = torch.from_numpy(a)\nz = x + 1\nif step == 2: a[3, 1] = numpy.nan")

    @resembles("nan-in-batch", instead="log-of-negative")
    def test_feature_that_torch_computed(self):
        return program(before="if step == 2: x = torch.log(x)")


class Parameters(PatternTest):
    @triggers("embedding-row-loaded-bad", "row 31; 8 of 320 values of the table", param="layer.words.weight", step=2)
    def test_word_without_a_vector(self):
        return program("return x + self.words(torch.tensor([1, 2, 3, 31 if step == 2 else 4, 5, 6]))", init=WORDS)

    @resembles("embedding-row-loaded-bad", instead=EXPECTED)
    def test_word_without_a_vector_that_nobody_used(self):
        return program("return x + self.words(torch.tensor([1, 2, 3, 4, 5, 6]))", init=WORDS)

    @triggers("parameter-never-initialised", "8 of 8 values, first read by aten::add", param="layer.bias", layer="layer", step=0)
    def test_parameter_of_empty_memory(self):
        return program("return x + self.bias", init="self.bias = nn.Parameter(torch.empty(8))",
                       top="torch.use_deterministic_algorithms(True)  # fills it with NaN")

    @resembles("parameter-never-initialised", instead=CLEAN)
    def test_parameter_of_empty_memory_that_is_filled(self):
        return program("return x + self.bias", init="self.bias = nn.Parameter(torch.empty(8))\nnn.init.zeros_(self.bias)",
                       top="torch.use_deterministic_algorithms(True)")

    @triggers("parameter-loaded-bad", "first read by aten::addmm", param="first.weight", step=2)
    def test_checkpoint_loaded_in_the_middle_of_training(self):
        return program(before="""
            if step == 2:
                model = Model()
                model.first.weight.data.numpy()[3:5] = numpy.inf
                optimizer.param_groups[0]["params"] = list(model.parameters())""")

    @triggers("parameter-never-initialised", "first read by aten::addmm", param="first.weight", kind="parameter", step=0)
    def test_checkpoint_with_one_minus_infinity(self):
        return program(top="""
            def load(model):
                saved = {name: value.numpy().copy() for name, value in model.state_dict().items()}
                saved["first.weight"][1, 2] = -numpy.inf
                model.load_state_dict({name: torch.from_numpy(value) for name, value in saved.items()})""",
                       before="if step == 0: load(model)")

    @resembles("parameter-loaded-bad", instead="softmax-fully-masked-row", op="aten::_softmax")
    def test_mask_of_a_checkpoint(self):
        return program("""
            if step == 2: self.mask.copy_(torch.from_numpy(numpy.full((6, 6), -numpy.inf, "f")))
            return torch.softmax(x @ x.T + self.mask, -1) @ x""", init="self.register_buffer('mask', torch.zeros(6, 6))")

    @resembles("parameter-loaded-bad", instead="softmax-fully-masked-row", op="aten::_softmax")
    def test_mask_that_is_held_as_a_parameter(self):
        return program("return torch.softmax(x @ x.T + (self.mask if step == 2 else 0), -1) @ x",
                       init="mask = torch.from_numpy(numpy.full((6, 6), -numpy.inf, 'f'))\nself.mask = nn.Parameter(mask, requires_grad=False)")

    @resembles("parameter-loaded-bad", instead="adam-zero-over-zero", param="first.weight")
    def test_parameter_that_an_update_broke(self):
        return program("return torch.relu(x)", before="model.first.bias.data[3] = -100.",
                       optimizer="torch.optim.Adam(model.parameters(), eps=0)")


    @triggers("parameter-filled-unseen", "first read by aten::addmm", kind="parameter", param="last.weight", step=3)
    def test_parameter_that_other_code_wrote(self):
        return program(update="""
            loss.backward()
            optimizer.step()
            if step == 2: model.last.weight.detach().numpy()[0, 1] = numpy.nan""")

    @resembles("parameter-filled-unseen", instead="parameter-never-initialised")
    def test_parameter_that_was_written_before_it_was_used(self):
        return program(before="if step == 0: model.last.weight.detach().numpy()[0, 1] = numpy.nan")


class OptimizerState(PatternTest):
    @triggers("optimizer-state-loaded-bad", "first read by aten::", kind="optimizer_state", step=2)
    def test_first_moment_of_a_checkpoint(self):
        return program(optimizer="torch.optim.Adam(model.parameters(), lr=1e-3)", before=LOAD.format(name="exp_avg"))

    @triggers("optimizer-state-loaded-bad", "first read by aten::", kind="optimizer_state", step=2)
    def test_second_moment_of_a_fused_optimizer(self):
        return program(optimizer="torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)", before=LOAD.format(name="exp_avg_sq"))

    @triggers("optimizer-state-loaded-bad", "first read by aten::", kind="optimizer_state", step=2)
    def test_momentum_of_single_tensors(self):
        return program(optimizer="torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=False)",
                       before=LOAD.format(name="momentum_buffer"))

    @triggers("optimizer-state-loaded-bad", "first read by aten::", kind="optimizer_state", step=2)
    def test_second_moment_from_a_file(self):
        return program(optimizer="torch.optim.AdamW(model.parameters(), lr=1e-3)", before=LOAD.format(name="exp_avg_sq") + """
        import io
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        optimizer.load_state_dict(torch.load(file))""")

    @resembles("optimizer-state-loaded-bad", instead="gradient-written-outside", kind="unknown")
    def test_gradient_that_numpy_has_written(self):
        return program(optimizer="torch.optim.Adam(model.parameters(), lr=1e-3)",
                       update="loss.backward()\nif step == 2: model.first.weight.grad.numpy()[:] = numpy.nan\noptimizer.step()")


BEFORE_STEP = "loss.backward()\nif step == {step}: {write}\noptimizer.step()"
OPTIMIZERS = {"sgd": "torch.optim.SGD(model.parameters(), lr=1e-2)", "adam": "torch.optim.Adam(model.parameters())",
              "decoupled": "torch.optim.AdamW(model.parameters())", "fused": "torch.optim.Adam(model.parameters(), fused=True)"}


class BetweenBackwardAndStep(PatternTest):
    """Never the update's own doing, and never certain: an op that nobody saw may have written it."""

    @triggers("gradient-written-outside", "1 of 32 values", kind="unknown", param="first.weight", step=2, exact=False, **{"class": "external"})
    def test_one_number_of_a_gradient(self):
        return program(optimizer=OPTIMIZERS["sgd"], update=BEFORE_STEP.format(step=2, write="model.first.weight.grad.numpy()[1, 2] = numpy.nan"))

    @triggers("gradient-written-outside", "32 of 32 values", kind="unknown", param="first.weight", step=2, **{"class": "external"})
    def test_gradient_that_comes_from_numpy(self):
        write = "model.first.weight.grad = torch.from_numpy(model.first.weight.grad.numpy() * numpy.float32('nan'))"
        return program(optimizer=OPTIMIZERS["adam"], update=BEFORE_STEP.format(step=2, write=write))

    @resembles("gradient-written-outside", instead="division-by-zero", op="aten::div_")
    def test_gradient_that_an_op_has_written(self):
        return program(update=BEFORE_STEP.format(step=2, write="model.first.weight.grad.div_(torch.zeros(8, 4))"))

    @triggers("parameter-written-outside", "1 of 32 values", param="first.weight", step=2, exact=False, **{"class": "external"})
    def test_one_number_of_a_parameter(self):
        return program(optimizer=OPTIMIZERS["adam"], update=BEFORE_STEP.format(step=2, write="model.first.weight.data.numpy()[1, 2] = numpy.nan"))

    @resembles("parameter-written-outside", instead="parameter-filled-unseen", step=2)
    def test_parameter_that_the_forward_has_read_before(self):
        return program(optimizer=OPTIMIZERS["adam"], before="if step == 2: model.first.weight.data.numpy()[1, 2] = numpy.nan")

    @resembles("parameter-written-outside", instead=EXPECTED)
    def test_frozen_table_with_a_missing_row_that_nobody_uses(self):
        return program("return x + self.words(torch.tensor([1, 2, 3, 4, 5, 6]))",
                       init="""
            table = numpy.random.rand(32, 8).astype("f")
            table[31] = numpy.nan
            self.words = nn.Embedding.from_pretrained(torch.from_numpy(table))""")

    def test_no_optimizer_is_blamed_in_any_step(self):
        for name, optimizer in OPTIMIZERS.items():
            for step in range(3):
                for value in ("nan", "inf"):
                    for where in ("data", "grad"):
                        with self.subTest(f"{name}, step {step}, {where} = {value}"):
                            write = f"model.first.weight.{where}.numpy()[1, 2] = numpy.{value}"
                            self.assert_anomaly(program(optimizer=optimizer, update=BEFORE_STEP.format(step=step, write=write)), step=step,
                                                exact=False, op="torch.optim.Optimizer.step", **{"class": "external"})


class Buffers(PatternTest):
    @triggers("buffer-with-nan", "8 of 32 values, first read by aten::mm", param="layer.bank")
    def test_unused_slot_of_a_memory_bank(self):
        return program("return x + F.one_hot(torch.arange(6) % 3, 4).float() @ self.bank", init=BANK.format(unused="numpy.nan"))

    @resembles("buffer-with-nan", instead=EXPECTED)
    def test_unused_slot_that_is_not_selected(self):
        return program("return x + self.bank[torch.arange(6) % 3]", init=BANK.format(unused="numpy.nan"))

    @triggers("batch-norm-variance-of-one-value", "layer.running_var: 8 of 8 channels", param="layer.running_var", step=2)
    def test_batch_norm_of_one_value_per_channel(self):
        return program(NORMALISE.format(at_step_2="h[:1]"), init=BATCH_NORM)

    @resembles("batch-norm-variance-of-one-value", instead="buffer-with-nan", param="layer.bn.running_var", step=0)
    def test_running_variance_that_was_loaded_bad(self):
        return program("return self.bn(x)", init="""
            self.bn = nn.BatchNorm1d(8).eval()
            self.bn.running_var.numpy()[3] = numpy.nan""")

    @resembles("batch-norm-variance-of-one-value", instead="buffer-with-nan", kind="buffer", param="layer.bn.running_var", step=2)
    def test_running_variance_that_numpy_has_written_during_training(self):
        return program("return self.bn(x)", init="self.bn = nn.BatchNorm1d(8)",
                       before="if step == 2: model.layer.bn.running_var.numpy()[3] = numpy.nan")

    @triggers("batch-norm-of-infinity", "6 of 48 values of the input are Inf", param="layer.bn.running_var")
    def test_mask_before_batch_norm(self):
        return program("return self.bn(x.masked_fill(torch.arange(8) > 6, -math.inf if step == 2 else 0))",
                       init="self.bn = nn.BatchNorm1d(8)")

    @resembles("batch-norm-of-infinity", instead="inf-in-batch", op="aten::addmm")
    def test_infinite_feature_that_comes_to_batch_norm(self):
        return program("return self.bn(x)", init="self.bn = nn.BatchNorm1d(8)", before=numpy_batch("x", "numpy.inf"))

    @triggers("batch-norm-overflow", "layer.running_var: 8 of 8 channels", param="layer.running_var")
    def test_variance_beyond_float32(self):
        return program(NORMALISE.format(at_step_2="h * 1e25"), init=BATCH_NORM)

    @resembles("batch-norm-overflow", instead=CLEAN)
    def test_variance_that_is_only_large(self):
        return program(NORMALISE.format(at_step_2="h * 1e15"), init=BATCH_NORM)


if __name__ == "__main__":
    main()
