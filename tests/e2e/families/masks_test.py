# SPDX-License-Identifier: Apache-2.0
"""Masks and -Inf by design, in attention, filters of samples, searches and poolings, and what users write instead."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

ATTENTION = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, h):
        scores = self.q(h) @ self.k(h).transpose(1, 2) / 8 ** 0.5
        keep = torch.ones(5, 5).tril().bool()
        MASKED
        return torch.softmax(scores, -1) @ self.v(h)
"""


def attention(masked, dtype="float32"):
    model = f"nn.Sequential(nn.Embedding(12, 8), Attention(), Attention(), nn.Linear(8, 12)).to(torch.{dtype})"
    return training(ATTENTION.replace("MASKED", masked), model=model, forward="""
        ids = torch.randint(0, 12, (3, 5))
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())""")


# Transitions that are forbidden by design, and trained with those that are not.
TRANSITIONS = """
class Transitions(nn.Module):
    def __init__(self):
        super().__init__()
        TABLE

    def forward(self, states, given):
        return self.table[states] + given


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.transitions, self.given = Transitions(), nn.Linear(3, 3)

    def forward(self, states):
        return self.transitions(states, self.given(torch.randn(len(states), 3)))
"""


def transitions(table, weights="torch.ones(8)"):
    return training(TRANSITIONS.replace("TABLE", table), model="Tagger()", forward=f"""
        states = torch.randint(0, 3, (8,))
        targets = (states + 1 + torch.randint(0, 2, (8,))) % 3
        weights = {weights}
        loss = (F.cross_entropy(model(states), targets, reduction='none') * weights).sum() / weights.sum()""")


FILLED = "self.table = nn.Parameter(torch.zeros(3, 3).masked_fill(torch.eye(3).bool(), -math.inf))"
ASSIGNED = """table = torch.zeros(3, 3)
        table[0, 0] = table[2, 2] = -math.inf
        self.table = nn.Parameter(table)"""


class Masks(WatchedProgramTest):
    def test_parameter_with_infinities_by_design_is_trained(self):
        for table in (FILLED, ASSIGNED):
            with self.subTest(table):
                self.assert_no_alarm(transitions(table))

    def test_parameter_with_infinities_by_design_does_not_hide_what_comes_later(self):
        text = transitions(FILLED, weights="torch.full((8,), float(step != 2))")
        self.assert_anomaly(text, op="aten::div", step=2, exact=True)

    def test_mask_written_with_gaps_over_a_nan_does_not_hide_it(self):
        for mask in ("x.fill_diagonal_(-math.inf)", "x[:, ::2].fill_(-math.inf)", "x.diagonal().copy_(torch.full((6,), -math.inf))"):
            with self.subTest(mask):
                self.assert_anomaly(training(model="nn.Linear(6, 6)", forward=f"""
                    counts = torch.full((6,), float(step != 1))
                    x = model(torch.randn(6, 6)) + counts / counts.sum()
                    {mask}
                    loss = F.cross_entropy(x, torch.tensor([1, 3, 1, 3, 1, 3]))"""), op="aten::div", step=1, exact=True, **{"class": "produce"})

    def test_triangle_of_infinities_added_to_the_scores(self):
        self.assert_no_alarm(attention("scores = scores + torch.triu(torch.full((5, 5), float('-inf')), 1)"))

    def test_scores_filled_out_of_place(self):
        self.assert_no_alarm(attention("scores = scores.masked_fill(~keep, float('-inf'))"))

    def test_scores_filled_in_place_in_bfloat16(self):
        self.assert_no_alarm(attention("scores.masked_fill_(~keep, -torch.inf)", dtype="bfloat16"))

    def test_scores_assigned_through_an_index_in_float64(self):
        self.assert_no_alarm(attention("scores[:, ~keep] = -math.inf", dtype="float64"))

    def test_scores_chosen_by_where_with_a_number(self):
        self.assert_no_alarm(attention("scores = torch.where(keep, scores, float('-inf'))"))

    def test_scores_chosen_by_where_with_a_tensor(self):
        self.assert_no_alarm(attention("scores = torch.where(keep, scores, torch.tensor(-np.inf, dtype=scores.dtype))"))

    def test_mask_written_as_the_logarithm_of_ones_and_zeros(self):
        self.assert_no_alarm(attention("scores = scores + torch.log(torch.ones(5, 5).tril())"))

    def test_mask_written_as_one_minus_the_mask_divided_by_zero(self):
        self.assert_no_alarm(attention("scores = scores - (1 - keep.float()).masked_fill(~keep, math.inf)"))

    def test_mask_from_numpy(self):
        self.assert_no_alarm(attention(
            "scores = scores + torch.from_numpy(np.triu(np.full((5, 5), -np.inf, dtype='float32'), 1))"))

    def test_scaled_dot_product_attention_with_a_float_mask(self):
        self.assert_no_alarm(attention("""return F.scaled_dot_product_attention(
            self.q(h), self.k(h), self.v(h), attn_mask=torch.full((5, 5), -math.inf).triu(1))"""))

    def test_scaled_dot_product_attention_that_is_causal_needs_no_mask(self):
        self.assert_no_alarm(attention("""return F.scaled_dot_product_attention(
            self.q(h)[:, None], self.k(h)[:, None], self.v(h)[:, None], is_causal=True)[:, 0]"""), "clean")

    def test_mask_in_a_registered_buffer(self):
        self.assert_no_alarm(with_layer(
            "return h + torch.softmax(h @ h.t() + self.mask, -1) @ h",
            init="self.register_buffer('mask', torch.full((4, 4), float('-inf')).triu(1))"))

    def test_mask_in_a_buffer_that_is_not_saved(self):
        self.assert_no_alarm(with_layer(
            "return h + torch.softmax((h @ h.t()).masked_fill(self.mask == -math.inf, -1e4) + self.mask, -1) @ h",
            init="self.register_buffer('mask', torch.log(torch.tril(torch.ones(4, 4))), persistent=False)"))

    def test_multihead_attention_with_a_causal_mask_and_padding(self):
        self.assert_no_alarm(training(model="nn.MultiheadAttention(6, 2, batch_first=True)", forward="""
            h = torch.randn(3, 5, 6)
            pad = torch.arange(5)[None] >= torch.tensor([[5], [3], [1]])
            out, _ = model(h, h, h, key_padding_mask=pad, attn_mask=torch.full((5, 5), -math.inf).triu(1))
            loss = out.pow(2).mean()"""))

    def test_transformer_with_generated_masks(self):
        self.assert_no_alarm(training(
            model="nn.Transformer(8, 2, 1, 1, 16, dropout=0.1, batch_first=True)", steps=3, forward="""
            source, target = torch.randn(2, 5, 8), torch.randn(2, 4, 8)
            mask = nn.Transformer.generate_square_subsequent_mask(4)
            pad = torch.tensor([[False] * 5, [False, False, True, True, True]]).float().masked_fill(torch.zeros(2, 5).bool(), 1)
            pad = torch.zeros(2, 5).masked_fill(pad.bool(), -math.inf)
            loss = model(source, target, tgt_mask=mask, src_key_padding_mask=pad, memory_key_padding_mask=pad).pow(2).mean()"""))

    def test_evaluation_of_a_transformer_encoder_on_its_fast_path(self):
        self.assert_no_alarm(training(
            model="nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)", steps=2, forward="""
            h = torch.randn(2, 5, 8)
            mask = nn.Transformer.generate_square_subsequent_mask(5)
            loss = model(h, mask=mask, is_causal=True).pow(2).mean()""", after="""
            model.eval()
            with torch.no_grad():
                model(h, src_key_padding_mask=torch.arange(5)[None] >= torch.tensor([[5], [2]]))
            model.train()"""))

    def test_top_k_filter_before_sampling(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 9)", after="""
            with torch.no_grad():
                logits = model(x)
                logits[logits < logits.topk(3).values[..., -1, None]] = -float("Inf")
                torch.multinomial(F.softmax(logits, -1), 1)"""))

    def test_nucleus_filter_before_sampling(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 9)", after="""
            with torch.no_grad():
                values, order = model(x).sort(descending=True)
                drop = values.softmax(-1).cumsum(-1) - values.softmax(-1) > 0.5
                logits = torch.full_like(values, -math.inf).scatter(-1, order, values.masked_fill(drop, -math.inf))
                torch.distributions.Categorical(logits=logits).sample()"""))

    def test_minimum_that_starts_at_infinity(self):
        self.assert_no_alarm(with_layer("""
            best = torch.full((4, 8), float("inf"))
            for k in range(3):
                best = torch.minimum(best, h * k)
            return best"""))

    def test_maximum_over_the_kept_positions(self):
        self.assert_no_alarm(with_layer("""
            keep = torch.rand(4, 8) < 0.5
            keep[:, 0] = True
            return h * h.masked_fill(~keep, -math.inf).max(-1, keepdim=True).values"""))

    def test_bounds_of_a_clamp_that_are_infinite_leave_no_trace(self):
        self.assert_no_alarm(with_layer("return h.clamp(min=-math.inf, max=0.5)"), "clean")

    def test_pooling_that_pads_with_infinities_inside_leaves_no_trace(self):
        self.assert_no_alarm(with_layer("return F.max_pool1d(h[:, None], 3, stride=1, padding=1)[:, 0]"), "clean")

    def test_policy_over_the_allowed_actions(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 5)", forward="""
            allowed = torch.rand(4, 5) < 0.6
            allowed[:, 2] = True
            policy = torch.distributions.Categorical(logits=model(x).masked_fill(~allowed, -math.inf))
            action = policy.sample()
            loss = -(policy.log_prob(action) * torch.randn(4)).mean() - 0.01 * policy.entropy().mean()"""))

    def test_logarithm_of_probabilities_where_only_the_kept_are_picked(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 5)", loss="F.nll_loss(logp, y)", forward="""
            stock = torch.ones(4, 5, dtype=torch.bool)
            stock[1, 4] = stock[2, 3] = False
            loss = F.nll_loss(F.log_softmax(model(x).masked_fill(~stock, -math.inf), -1), y)"""))

    def test_beam_search_that_starts_with_one_beam(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 5)", after="""
            with torch.no_grad():
                scores = torch.zeros(4)
                scores[1:] = -math.inf
                for _ in range(3):
                    scores, best = (scores[:, None] + model(x).log_softmax(-1)).flatten().topk(4)"""))

    def test_contrastive_loss_without_the_diagonal(self):
        self.assert_no_alarm(training(layer("""
            sim = F.normalize(h, dim=-1) @ F.normalize(h, dim=-1).t() / 0.1
            sim.fill_diagonal_(-math.inf)
            return F.cross_entropy(sim, torch.tensor([1, 0, 3, 2]))""", name="InfoNCE", given="h"),
                                      model="nn.Sequential(nn.Linear(6, 8), InfoNCE())", loss="model(x)"))

    def test_hand_written_masked_softmax_that_divides_by_what_is_left(self):
        self.assert_no_alarm(with_layer("""
            keep = torch.tensor([True] * 7 + [False])
            e = (h - h.amax(-1, keepdim=True)).masked_fill(~keep, -math.inf).exp()
            return e / e.sum(-1, keepdim=True)"""))


if __name__ == "__main__":
    main()
