# SPDX-License-Identifier: Apache-2.0
"""Rows in which everything is masked, of attention, of a policy, of pooling, of scores that are added.

The op that makes NaN of the -Inf is to blame, not the mask."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

INF_TO_NAN = {"kind": "op", "class": "inf_to_nan", "phase": "forward"}

ATTENTION = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, h, pad):
        scores = self.q(h) @ self.k(h).transpose(1, 2) / 8 ** 0.5
        MASKED
        return torch.softmax(scores, -1) @ self.v(h)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(8), Attention()

    def forward(self, h, pad):
        return h + self.attn(self.norm(h), pad)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(12, 8), nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 3)

    def forward(self, ids, pad):
        h = self.embed(ids)
        for block in self.blocks:
            h = block(h, pad)
        return self.head(h[:, 0])
"""

# One sequence of step 3 has no token at all.
PADDED = """
ids, lengths = torch.randint(0, 12, (4, 5)), torch.randint(2, 6, (4,))
if step == 3:
    lengths[1] = 0
pad = torch.arange(5)[None] >= lengths[:, None]
loss = F.cross_entropy(model(ids, pad), torch.randint(0, 3, (4,)))
"""


def attention(masked, dtype="float32"):
    return training(ATTENTION.replace("MASKED", masked), model=f"Model().to(torch.{dtype})", forward=PADDED)


class MaskedRows(WatchedProgramTest):
    def test_row_filled_out_of_place(self):
        self.assert_anomaly(attention("scores = scores.masked_fill(pad[:, None], float('-inf'))"),
                            op="aten::_softmax", layer="blocks.0.attn", step=3, **INF_TO_NAN)

    def test_row_filled_in_place_in_bfloat16(self):
        self.assert_anomaly(attention("scores.masked_fill_(pad[:, None], -math.inf)", "bfloat16"),
                            op="aten::_softmax", layer="blocks.0.attn", step=3, **INF_TO_NAN)

    def test_row_of_an_additive_mask(self):
        self.assert_anomaly(attention("scores = scores + torch.zeros(4, 1, 5).masked_fill(pad[:, None], -math.inf)", "float64"),
                            op="aten::_softmax", layer="blocks.0.attn", step=3, **INF_TO_NAN)

    def test_row_of_a_logarithm_that_masks_in_every_step(self):
        self.assert_anomaly(attention("scores = scores + torch.log((~pad).float())[:, None]"),
                            op="aten::_softmax", layer="blocks.0.attn", step=3, **INF_TO_NAN)

    def test_two_lowest_numbers_added_in_half_precision(self):
        """Both planes are finite: the addition is what first makes something bad."""
        text = attention("""low = torch.finfo(scores.dtype).min
        causal = torch.zeros(5, 5, dtype=scores.dtype).masked_fill(torch.ones(5, 5).triu(1).bool(), low)
        padding = torch.zeros(4, 1, 5, dtype=scores.dtype).masked_fill(pad[:, None], low)
        if pad.all(-1).any():
            padding = padding + low
        scores = scores + (causal if not pad.all(-1).any() else low + padding)""", "bfloat16")
        self.assert_anomaly(text, op="aten::add", layer="blocks.0.attn", step=3, kind="op", phase="forward",
                            **{"class": "produce"})

    def test_multihead_attention_with_weights(self):
        self.assert_anomaly(training(
            layer("return h + self.attn(h, h, h, key_padding_mask=given[0])[0]",
                  "self.attn = nn.MultiheadAttention(8, 2, batch_first=True)"),
            model="nn.ModuleDict(dict(embed=nn.Embedding(9, 8), body=Odd()))", forward="""
            ids, pad = torch.randint(0, 9, (3, 4)), torch.zeros(3, 4, dtype=torch.bool)
            pad[2, 1:] = True
            pad[1] = step == 2
            loss = model.body(model.embed(ids), pad).pow(2).mean()"""),
                            op="aten::_softmax", layer="attn", root="Odd#0", step=2, **INF_TO_NAN)

    def test_transformer_encoder_layer_with_a_float_mask(self):
        """Its attention goes by scaled_dot_product_attention, which answers 0 for such a row."""
        said = self.verdict_of(training(
            model="nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)", steps=3, forward="""
            pad = torch.zeros(2, 5)
            pad[1] = -math.inf
            loss = model(torch.randn(2, 5, 8), src_key_padding_mask=pad).pow(2).mean()"""))
        self.assertEqual(said["verdict"], "expected")

    def test_softmax_module_in_a_sequential(self):
        self.assert_anomaly(training(layer("return x.masked_fill(x < 9, -math.inf) if self.calls() == 3 else x",
                                           "self.count = 0\n"
                                           "self.calls = lambda: setattr(self, 'count', self.count + 1) or self.count",
                                           name="Keep", given="x"),
                                     model="nn.Sequential(nn.Linear(6, 8), Keep(), nn.Softmax(dim=-1), nn.Linear(8, 1))"),
                            op="aten::_softmax", layer="2", layer_type="Softmax", step=2, **INF_TO_NAN)

    def ignored(self, masked):
        return training(layer(f"return self.ce({masked}, y)", "self.ce = nn.CrossEntropyLoss()", "Choice", "z, stock, y"),
                        model="nn.Linear(6, 5)", prepare="criterion = Choice()", forward="""
            stock = torch.ones(4, 5, dtype=torch.bool)
            stock[2] = step != 3
            y[2] = -100
            loss = criterion(model(x), stock, y)""")

    def test_log_softmax_of_a_row_whose_target_is_ignored(self):
        self.assert_anomaly(self.ignored("z + torch.zeros(4, 5).masked_fill(~stock, -math.inf)"),
                            op="aten::_log_softmax", layer="ce", root="Choice#0", step=3, **INF_TO_NAN)

    def test_ignored_row_whose_mask_keeps_its_gradient_out(self):
        self.assert_no_alarm(self.ignored("z.masked_fill(~stock, -math.inf)"))

    def test_categorical_policy_without_an_allowed_action(self):
        self.assert_anomaly(training(model="nn.Linear(6, 5)", forward="""
            allowed = torch.rand(4, 5) < 0.7
            allowed[:, 1] = True
            if step == 4:
                allowed[3] = False
            logits = model(x).masked_fill(~allowed, -math.inf)
            logp = logits - logits.logsumexp(-1, keepdim=True)
            loss = -logp.gather(-1, torch.ones(4, 1, dtype=torch.long)).mean()"""),
                            op="aten::sub", layer="", step=4, **INF_TO_NAN)

    def test_pooling_weights_of_an_empty_bag(self):
        self.assert_anomaly(with_layer("""
            score = self.score(h)[:, 0] + torch.where(given[0], 0.0, -math.inf)
            return h * torch.softmax(score, 0)[:, None]""", "self.score = nn.Linear(8, 1)",
                                       given="torch.rand(4) < (step != 2) * 2"),
                            op="aten::_softmax", layer="odd", step=2, **INF_TO_NAN)

    def test_recurrent_attention_over_an_empty_memory(self):
        self.assert_anomaly(training("""
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.key, self.out = nn.LSTMCell(6, 8), nn.Linear(8, 8), nn.Linear(16, 2)

    def forward(self, x, memory, keep):
        h, c = self.rnn(x)
        weights = F.softmax((memory @ self.key(h)[..., None])[..., 0].masked_fill(keep.logical_not(), -math.inf), dim=1)
        return self.out(torch.cat([h, (weights[..., None] * memory).sum(1)], -1))
""", model="Decoder()", forward="""
            memory, keep = torch.randn(4, 3, 8), torch.ones(4, 3, dtype=torch.bool)
            keep[0] = step < 2
            loss = F.cross_entropy(model(x, memory, keep), y)"""),
                            op="aten::_softmax", layer="", step=2, **INF_TO_NAN)

    def test_logaddexp_of_two_masked_scores(self):
        self.assert_anomaly(with_layer("""
            mask = torch.zeros(8)
            mask[4:] = -math.inf if given[0] else 0.0
            a = h + mask
            b = torch.logaddexp(a, a.roll(1, -1))
            return h + torch.where(torch.isinf(b), 0.0, b)""", given="step == 1"),
                            kind="op", op="aten::sub", phase="backward", autograd_node="LogaddexpBackward0", layer="odd", step=1,
                            **{"class": "inf_to_nan"})

    def test_logsumexp_of_a_masked_row_that_is_dropped_later(self):
        self.assert_anomaly(with_layer("""
            mask = torch.zeros(4, 8)
            mask[1] = -math.inf if given[0] else 0.0
            lse = torch.logsumexp(h + mask, -1, keepdim=True)
            return h + torch.where(torch.isinf(lse), 0.0, lse)""", given="step == 3"),
                            kind="op", op="aten::sub", phase="backward", autograd_node="LogsumexpBackward0", layer="odd", step=3,
                            **{"class": "inf_to_nan"})

    # A bad row of a parameter that nobody reads, and another fault two steps later.
    def test_what_a_bad_row_that_nobody_reads_has_not_spoiled_is_not_of_it(self):
        verdict = self.verdict_of("""
import torch, torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bank = nn.Parameter(torch.zeros(8, 4), requires_grad=False)
        self.fc = nn.Linear(4, 1)

    def forward(self, x, to, of):
        with torch.no_grad():
            self.bank[to:to + 1] = x
        return self.fc(self.bank[[of]])

model = Net()
opt = torch.optim.SGD(model.fc.parameters(), lr=0.1)
for step in range(6):
    x, to, of = torch.rand(1, 4), step, step
    if step == 1: x, to, of = torch.log(-x), 7, 0
    if step == 4: x = torch.sqrt(-x)
    opt.zero_grad()
    model(x, to, of).square().mean().backward()
    opt.step()
""")
        told = {i["origin"]["op"]: i for i in verdict["incidents"] if i["severity"] == "critical"}
        self.assertEqual(set(told), {"aten::log", "aten::sqrt"})
        self.assertNotIn("loss", told["aten::log"]["reach"])
        self.assertEqual(int(told["aten::sqrt"]["origin"]["step"]), 4)


if __name__ == "__main__":
    main()
