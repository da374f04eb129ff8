# SPDX-License-Identifier: Apache-2.0
"""Inf that was put in on purpose and met an op that cannot take it; masks that overflow; constants."""
from pattern_program import EXPECTED, PatternTest, main, program, resembles, triggers

LAST = "torch.arange(8) > 6"
MASKED = f"z = x.masked_fill({LAST}, -math.inf if step == 2 else -9)\n"
ROW = "m = torch.zeros_like(x)\nif step == 2: m[3] = -math.inf\n"
ATTEND = "return torch.softmax(scores + mask, -1) @ x"


class Softmax(PatternTest):
    @triggers("softmax-fully-masked-row", "first such row at [3, 0, 0]; 66 of 216 scores are -Inf", op="aten::_softmax",
              layer="layer.attention", **{"class": "inf_to_nan"})
    def test_sequence_of_nothing_but_padding(self):
        return program("""
            padding = torch.zeros(6, 6, dtype=torch.bool)
            padding[:, 5] = True
            if step == 2: padding[3] = True
            h = x[:, None].expand(6, 6, 8)
            return self.attention(h, h, h, key_padding_mask=padding)[0].mean(1)""",
                       init="self.attention = nn.MultiheadAttention(8, 1, batch_first=True)")

    @triggers("softmax-fully-masked-row", "first such row at [3, 0]; 6 of 36 scores are -Inf")
    def test_row_without_a_neighbour(self):
        return program("scores = x @ x.T\nmask = torch.zeros(6, 6)\nif step == 2: mask[3] = -math.inf\n" + ATTEND)

    @resembles("softmax-fully-masked-row", instead=EXPECTED)
    def test_row_with_one_key_left(self):
        return program("scores = x @ x.T\nmask = torch.full((6, 6), -math.inf).fill_diagonal_(0)\n" + ATTEND)

    @resembles("softmax-fully-masked-row", instead=EXPECTED)
    def test_fully_masked_row_of_an_attention_that_gives_zero_for_it(self):
        return program("""
            keep = torch.ones(6, 6, dtype=torch.bool)
            if step == 2: keep[3] = False
            return F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=keep)[0]""")

    @triggers("softmax-of-plus-infinity", "6 of 36 scores are +Inf, first NaN at [0, 0]", op="aten::_softmax")
    def test_mask_of_the_wrong_sign(self):
        return program("scores = x @ x.T\nmask = torch.zeros(6, 6)\n"
                       "if step == 2: mask = mask.masked_fill(torch.arange(6) == 4, math.inf)\n" + ATTEND)

    @resembles("softmax-of-plus-infinity", instead="blow-up", op="aten::mul")
    def test_score_that_overflowed(self):
        return program("scores = x @ x.T * (1e38 if step == 2 else 1) * 10\nmask = torch.zeros(6, 6)\n" + ATTEND)

    @triggers("log-softmax-fully-masked-row", "row 3; 3 of 18 values are NaN", op="aten::_log_softmax", step=2)
    def test_item_without_an_allowed_class(self):
        return program(loss="""
            scores = model(x)
            if step == 2: scores = scores.masked_fill(torch.arange(6)[:, None] == 3, -math.inf)
            loss = F.cross_entropy(scores, kinds)""")

    @resembles("log-softmax-fully-masked-row", instead="zero-times-infinity", op="aten::mul")
    def test_forbidden_class_times_a_smoothed_label_of_zero(self):
        return program(MASKED + "return x + (F.one_hot(torch.arange(6), 8) * z.log_softmax(-1)).sum(-1, keepdim=True)")

    @triggers("masks-added", "6 of 36 values are -Inf in bfloat16, first at [0, 0]", op="aten::add", step=2)
    def test_two_masks_of_the_lowest_number(self):
        return program(f"""
            low = torch.finfo(torch.bfloat16).min
            causal = torch.full((6, 6), low).triu(1)
            padding = torch.zeros(6, 6)
            if step == 2: causal[0] = padding[0] = low
            scores, mask = x @ x.T, (causal.bfloat16() + padding.bfloat16()).float()
            {ATTEND}""")

    @resembles("masks-added", instead="blow-up", op="aten::add")
    def test_sum_that_overflows_both_ways(self):
        return program("h = x / x.abs().max().detach() * (3e38 if step == 2 else 1)\nreturn h + h")


class Arithmetic(PatternTest):
    @triggers("zero-times-infinity", "6 of 48 products are NaN, first at [0, 7]", op="aten::mul", layer="layer", step=2)
    def test_entropy_with_a_forbidden_action(self):
        return program(MASKED + "return x - (z.softmax(-1) * z.log_softmax(-1)).sum(1, keepdim=True)")

    @triggers("zero-times-infinity", "6 of 48 products are NaN, first at [0, 7]", op="aten::mul")
    def test_divergence_with_a_forbidden_action(self):
        return program(MASKED + f"q = x.softmax(-1).detach() * ~({LAST})\n"
                       f"return x + F.kl_div(z.log_softmax(-1), q, reduction='batchmean')")

    @resembles("zero-times-infinity", instead="log-of-zero", op="aten::log")
    def test_entropy_of_a_saturated_softmax(self):
        return program("p = torch.softmax(x * (200 if step == 2 else 1), -1)\nreturn x - (p * p.log()).sum(1, keepdim=True)")

    @triggers("infinity-in-matrix-product", "6 of 48 values of self are Inf, 48 of 48 results NaN", op="aten::mm")
    def test_masked_features_times_zeros(self):
        return program(MASKED + "return x + z @ torch.zeros(8, 8)")

    @resembles("infinity-in-matrix-product", instead="buffer-with-nan", op="aten::mm")
    def test_slot_of_a_bank_times_zeros(self):
        return program("return x + torch.zeros(6, 4) @ self.bank", init="""
            self.register_buffer("bank", torch.from_numpy(numpy.full((4, 8), numpy.nan, "float32")))""")

    @triggers("infinity-in-normalisation", "6 of 48 values of the input are Inf, 48 of 48 results NaN",
              op="aten::native_layer_norm")
    def test_mask_before_layer_norm(self):
        return program(MASKED + "return F.layer_norm(z, (8,))")

    @resembles("infinity-in-normalisation", instead="layer-norm-overflow", op="aten::native_layer_norm")
    def test_huge_values_before_layer_norm(self):
        return program("return F.layer_norm(x * (1e25 if step == 2 else 1), (8,))")

    @triggers("infinity-minus-infinity", "6 of 48 values are NaN, first at [0, 7]", op="aten::sub", phase="forward")
    def test_difference_of_masked_scores(self):
        return program(MASKED + "return torch.nan_to_num((z - z.max(1, keepdim=True)[0]), neginf=0) + (z - z.detach())")

    @resembles("infinity-minus-infinity", instead=EXPECTED)
    def test_masked_scores_minus_a_finite_maximum(self):
        return program(MASKED + "return (z - z.max(1, keepdim=True)[0]).exp()")

    @triggers("logsumexp-of-nothing", "8 of 48 gradients are NaN, first at [3, 0], in LogsumexpBackward0", phase="backward",
              layer="layer")
    def test_state_that_no_path_reaches(self):
        return program(ROW + "z = torch.logsumexp(x + m, 1, keepdim=True)\nreturn x + torch.where(z.isinf(), 0., z)")

    @triggers("logsumexp-of-nothing", "in LogaddexpBackward0", phase="backward")
    def test_two_paths_that_are_both_forbidden(self):
        return program(ROW + "z = torch.logaddexp(x + m, m)\nreturn x + torch.where(z.isinf(), 0., z)")

    @resembles("logsumexp-of-nothing", instead=EXPECTED)
    def test_state_that_one_path_reaches(self):
        return program(ROW + "m[3, 0] = 0\nreturn x + torch.logsumexp(x + m, 1, keepdim=True)")

    @triggers("infinity-into-another-op", "6 of 48 values are Inf, 6 of 48 results NaN, first at [0, 7]", op="aten::gelu")
    def test_mask_before_an_activation(self):
        return program(MASKED + "return F.gelu(z)")

    @resembles("infinity-into-another-op", instead=EXPECTED)
    def test_mask_before_a_relu(self):
        return program(MASKED + "return torch.relu(z)")


# Something bad is alive all the time, so that the job looks at inputs.
MASK_ALIVE = "mask = torch.zeros(8).masked_fill(torch.arange(8) > 6, -math.inf)"


class Constants(PatternTest):
    @triggers("nan-asked-for", "first at [1, 6]", op="aten::masked_fill", layer="layer", **{"class": "scalar"})
    def test_missing_values_marked_by_nan(self):
        return program("return x.masked_fill(x > 1, float('nan')) if step == 2 else x")

    @resembles("nan-asked-for", instead=EXPECTED)
    def test_missing_values_marked_by_nan_and_left_out(self):
        return program("z = x.masked_fill(x > 1, float('nan'))\nreturn x - z.nanmean(1, keepdim=True)")

    @triggers("infinity-asked-for", "values, first at [0, 1]", op="aten::masked_fill", **{"class": "scalar"})
    def test_infinite_cost_that_nothing_replaced(self):
        return program(loss="cost = (model(x) - y).abs()\nif step == 2: cost = cost.masked_fill(cost > 1, math.inf)\n"
                       "loss = cost.mean()")

    @resembles("infinity-asked-for", instead=EXPECTED)
    def test_infinite_cost_that_a_minimum_replaces(self):
        return program(loss="cost = (model(x) - y).abs()\nloss = torch.minimum(cost, torch.full((6, 3), math.inf)).mean()")

    # torch makes a tensor of the number, which no op is seen to write.
    @triggers("infinity-asked-for", "2 of 3 values, first at [1]", phase="forward", step=2, **{"class": "scalar"})
    def test_infinite_cost_put_in_by_an_index(self):
        return program(loss="cost = (model(x) - y).abs()\nif step == 2: cost[0, torch.tensor([1, 2])] = -math.inf\n"
                       "loss = cost.mean()")

    @triggers("infinity-asked-for", "values, first at [0, 1]", phase="forward", step=2, **{"class": "scalar"})
    def test_infinite_cost_put_in_by_a_mask_beside_another_one(self):
        return program(before=MASK_ALIVE, loss="cost = (model(x) - y).abs()\nif step == 2: cost[cost > 1] = -math.inf\n"
                       "loss = cost.mean()")

    @triggers("infinity-asked-for", "", op="aten::fill_", kind="op", step=2, **{"class": "scalar"})
    def test_infinite_cost_of_a_column(self):
        return program(loss="cost = (model(x) - y).abs()\nif step == 2: cost[:, 1] = -math.inf\nloss = cost.mean()")

    @triggers("infinity-asked-for", "", op="aten::where", kind="op", step=2, **{"class": "scalar"})
    def test_infinite_cost_chosen_from_a_tensor_of_one_number(self):
        return program(loss="cost = (model(x) - y).abs()\nif step == 2: cost = torch.where(cost > 1, torch.tensor(-math.inf), cost)\n"
                       "loss = cost.mean()")

    @triggers("nan-asked-for", "first at ", phase="forward", step=2, **{"class": "scalar"})
    def test_missing_values_put_in_by_a_mask_beside_another_one(self):
        return program("z = x.clone()\nif step == 2: z[z > 1] = math.nan\nreturn z", before=MASK_ALIVE)

    @resembles("infinity-asked-for", instead="inf-in-batch")
    def test_infinite_cost_of_the_data_put_in_by_a_mask(self):
        return program(before=MASK_ALIVE + "\ntop = torch.from_numpy(numpy.array(numpy.inf, 'float32'))",
                       loss="cost = (model(x) - y).abs()\nif step == 2: cost[cost > 1] = top\nloss = cost.mean()")

    @triggers("number-is-infinite", "values are Inf, ", op="aten::mul", layer="layer", step=2)
    def test_weight_of_a_term_that_is_infinite(self):
        return program("return torch.relu(x) * self.weight", init="self.weight = 1.",
                       before="if step == 2: model.layer.weight = math.inf")

    @resembles("number-is-infinite", instead="number-is-nan", op="aten::mul")
    def test_weight_that_is_infinite_of_a_term_that_is_zero(self):
        return program("return (x * 0) * self.weight + x", init="self.weight = 1.",
                       before="if step == 2: model.layer.weight = math.inf")

    @triggers("variance-below-zero", "48 of 48 values, first at [0, 0], by aten::native_batch_norm", op="aten::native_batch_norm", layer="layer.norm", step=2)
    def test_running_variance_that_is_negative(self):
        return program("return self.norm(x)", init="self.norm = nn.BatchNorm1d(8).eval()",
                       before="if step == 2: model.layer.norm.running_var.sub_(2)")

    @resembles("variance-below-zero", instead="number-is-nan", op="aten::native_batch_norm")
    def test_momentum_of_normalization_that_is_nan(self):
        return program("return self.norm(x)", init="self.norm = nn.BatchNorm1d(8)",
                       before="if step == 2: model.layer.norm.momentum = math.nan")

    @triggers("number-is-nan", "48 of 48 values, first at [0, 0], by aten::mul", op="aten::mul", layer="layer", step=2)
    def test_weight_of_a_term_that_is_nan(self):
        return program("return x * self.weight", init="self.weight = 1.",
                       before="if step == 2: model.layer.weight = math.inf - math.inf")

    @resembles("number-is-nan", instead="zero-times-infinity", op="aten::mul")
    def test_product_of_a_mask(self):
        return program(MASKED + "return z * 0")


if __name__ == "__main__":
    main()
