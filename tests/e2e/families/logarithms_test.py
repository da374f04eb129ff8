# SPDX-License-Identifier: Apache-2.0
"""Logarithms of zero and what meets them: probabilities of zero, entropies, divergences, CTC; and exponentials that overflow."""
from training import layer, training, with_layer
from watched_program import WatchedProgramTest, main

FORWARD = {"kind": "op", "class": "produce", "phase": "forward"}
PROBABILITIES = {"given": "torch.rand(4, 8).masked_fill(torch.eye(4, 8).bool(), 0.0 if step == 2 else 0.5)"}

SPEECH = """
class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(8, 16, bidirectional=True), nn.Linear(32, 6)
        self.ctc = nn.CTCLoss(blank=0, reduction="REDUCTION", zero_infinity=ZERO)

    def forward(self, x):
        return self.out(self.rnn(x)[0]).log_softmax(-1)
"""


def speech(reduction="mean", zero=False, loss="model.ctc(model(x), y, xl, yl)"):
    return training(SPEECH.replace("REDUCTION", reduction).replace("ZERO", str(zero)), model="Speech()", forward=f"""
        x, y = torch.randn(12, 3, 8), torch.randint(1, 6, (3, 4))
        xl, yl = torch.tensor([12, 10, 3 if step == 3 else 11]), torch.tensor([3, 2, 4])
        loss = {loss}""")


class Logarithms(WatchedProgramTest):
    def test_cross_entropy_by_hand(self):
        self.assert_anomaly(training(layer("return -(y * torch.log(p)).sum(-1).mean()", name="Loss", given="p, y"),
                                     model="nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(-1))",
                                     prepare="criterion = Loss()", before="if step == 3:\n    x[1] *= 1e4",
                                     loss="criterion(model(x), F.one_hot(y, 3).float())"),
                            op="aten::log", layer="", root="Loss#0", step=3, **FORWARD)

    def test_binary_cross_entropy_by_hand_in_the_other_half(self):
        self.assert_anomaly(with_layer("p = torch.sigmoid(h * given[0])\nreturn -(1 - p).log() * (1 - p.round())",
                                       given="300.0 if step == 3 else 1.0"), op="aten::log", layer="odd", step=3, **FORWARD)

    def test_logarithm_of_zero_times_zero_label(self):
        self.assert_anomaly(with_layer("p = h * 0 + given[0]\nreturn p * torch.log(p)", **PROBABILITIES),
                            op="aten::log", layer="odd", step=2,
                            reach=["activation", "loss", "gradient", "parameter", "optimizer_state"], **FORWARD)

    def test_negative_log_likelihood_of_a_softmax(self):
        self.assert_anomaly(training(layer("return torch.log(F.softmax(h, dim=-1))", name="LogProb", given="h"),
                                     model="nn.Sequential(nn.Linear(6, 3), LogProb())",
                                     before="if step == 3:\n    x[1] *= 1e4\n    y[:] = 0",
                                     loss="F.nll_loss(model(x), model(x).min(-1).indices)"),
                            op="aten::log", layer="1", step=3, **FORWARD)

    def test_divergence_from_a_distribution_with_zeros(self):
        self.assert_anomaly(with_layer("q = torch.softmax(h * 0, -1) * given[0]\nreturn h + F.kl_div(q.log(), "
                                       "torch.softmax(h, -1), reduction='batchmean')",
                                       given="(torch.rand(4, 8) > 0.5).float() if step == 1 else 1.0"),
                            op="aten::log", layer="odd", step=1, **FORWARD)

    def test_entropy_of_masked_logits(self):
        """-Inf of the mask was asked for; 0 * -Inf was not."""
        self.assert_anomaly(with_layer("""
            logp = h.masked_fill(given[0], -math.inf).log_softmax(-1)
            return h - (logp.exp() * logp).sum(-1, keepdim=True)""", given="torch.eye(4, 8).bool() & (step == 2)"),
                            kind="op", op="aten::mul", layer="odd", phase="forward", step=2, **{"class": "inf_to_nan"})

    def test_entropy_bonus_of_a_policy(self):
        self.assert_anomaly(training(model="nn.Linear(6, 5)", forward="""
            logits = model(x)
            if step >= 2:
                logits = logits.masked_fill(torch.eye(4, 5).bool(), float('-inf'))
            probs, logp = F.softmax(logits, -1), F.log_softmax(logits, -1)
            loss = -logp[:, 4].mean() + 0.01 * (probs * logp).sum(-1).mean()"""),
                            kind="op", op="aten::mul", layer="", phase="forward", step=2, **{"class": "inf_to_nan"})

    def test_label_smoothing_over_masked_classes(self):
        self.assert_anomaly(training(model="nn.Linear(6, 5)", forward="""
            logits = model(x).masked_fill(torch.eye(4, 5).bool() & (step >= 1), -math.inf)
            loss = F.cross_entropy(logits, torch.full((4,), 4), label_smoothing=0.1)"""),
                            phase="forward", layer="", step=1)

    def test_logarithm_of_a_determinant(self):
        self.assert_anomaly(with_layer("return h + torch.logdet(torch.eye(4) * h.square().mean() * given[0])",
                                       given="torch.zeros(4, 1) if step == 2 else 1.0"), op="aten::_linalg_slogdet",
                            layer="odd", step=2, **FORWARD)

    def test_logit_of_one(self):
        self.assert_anomaly(with_layer("return h + torch.logit(h * 0 + given[0])", given="1.0 if step == 2 else 0.5"),
                            op="aten::logit", layer="odd", step=2, **FORWARD)

    def test_log1p_of_minus_one(self):
        self.assert_anomaly(with_layer("return h + torch.log1p(h * 0 + given[0])", given="-1.0 if step == 2 else 0.5"),
                            op="aten::log1p", layer="odd", step=2, **FORWARD)

    def test_negative_argument(self):
        self.assert_anomaly(with_layer("return h + torch.log2(h * 0 + given[0])", given="-1.0 if step == 2 else 0.5"),
                            op="aten::log2", layer="odd", step=2, **FORWARD)

    def test_decibels_of_silence(self):
        self.assert_anomaly(training(layer("return 10 * torch.log10(torch.stft(w, 16, window=torch.hann_window(16), "
                                           "return_complex=True)"
                                           ".abs().pow(2)).mean(-1)", name="Spectrogram", given="w"),
                                     model="nn.Sequential(Spectrogram(), nn.Linear(9, 2))",
                                     loss="model(torch.randn(2, 64) * (step != 3)).pow(2).mean()"),
                            op="aten::log10", layer="0", step=3, **FORWARD)

    def test_softmax_by_hand_whose_exponential_overflows(self):
        self.assert_anomaly(with_layer("e = torch.exp(h * given[0])\nreturn e / e.sum(-1, keepdim=True)",
                                       given="500.0 if step == 3 else 1.0"), op="aten::exp", layer="odd", step=3, **FORWARD)

    def test_variance_of_an_autoencoder_that_overflows(self):
        self.assert_anomaly(with_layer("mu, logvar = h.chunk(2, -1)\nstd = torch.exp(0.5 * logvar * given[0])\n"
                                       "return torch.cat([mu + std * torch.randn_like(std), mu], -1)",
                                       given="5e3 if step == 3 else 1.0"),
                            op="aten::exp", layer="odd", step=3, **FORWARD)

    def test_ctc_whose_target_is_longer_than_the_input(self):
        self.assert_anomaly(speech(), op="aten::_ctc_loss", layer="ctc", step=3, root="Speech#0", **FORWARD)

    def test_ctc_as_a_function_that_sums(self):
        self.assert_anomaly(speech(loss="F.ctc_loss(model(x), y, xl, yl, reduction='sum')"), op="aten::_ctc_loss", layer="",
                            step=3, **FORWARD)

    def test_ctc_that_drops_what_is_infinite(self):
        self.assert_no_alarm(speech(zero=True))

    def test_ctc_per_sample_that_drops_what_is_infinite(self):
        self.assert_no_alarm(speech("none", zero=True, loss="model.ctc(model(x), y, xl, yl).mean()"))

    def test_ctc_whose_infinite_samples_are_filtered_too_late(self):
        """An index gives the dropped sample a gradient of 0, which its backward multiplies with infinities."""
        self.assert_anomaly(speech("none",
                                   loss="(lambda each: each[torch.isfinite(each)].mean())(model.ctc(model(x), y, xl, yl))"),
                            layer="ctc", step=3)

    def test_library_losses_that_clamp_for_themselves(self):
        self.assert_no_alarm(training(model="nn.Linear(6, 2)", forward="""
            p = torch.sigmoid(model(x) * 1e4)
            loss = (F.binary_cross_entropy(p, p.detach().round())
                    + F.kl_div(F.log_softmax(model(x), -1), torch.tensor([[0.0, 1.0]] * 4))
                    + F.gaussian_nll_loss(p, p.detach(), torch.zeros(4, 2))
                    + F.poisson_nll_loss(p, p.detach(), log_input=False))"""), "clean")


if __name__ == "__main__":
    main()
