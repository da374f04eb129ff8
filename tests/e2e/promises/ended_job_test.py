# SPDX-License-Identifier: Apache-2.0
"""Promise: what a job met last before the error that ended it is an anomaly, and what it only passed by is none."""
import unittest

from watched_job import PromiseTest

PROGRAM = """
import torch, torch.nn as nn, torch.nn.functional as F
from torch.distributions import Categorical

class Norm(nn.Module):
    def forward(self, h):
        return (h - h.mean(1, keepdim=True)) / h.var(1, keepdim=True, unbiased=False).sqrt()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), Norm(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    bad = step == 2
    if bad and {spoils}: model[0].weight.data.zero_(), model[0].bias.data.zero_()
    x = torch.randn(6, 4)
    {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MODEL = "loss = model(x).square().mean()"
CASES = {
    # What refuses NaN.
    "loss function": (True, "loss = F.binary_cross_entropy(model(x).exp() / (1 + model(x).exp()), torch.ones(6, 2))"),
    "distribution": (True, "d = Categorical(logits=model(x))\n    loss = -d.log_prob(d.sample()).mean()"),
    "sampling": (True, "p = model(x).softmax(1)\n    loss = p.gather(1, torch.multinomial(p, 1)).log().mean()"),
    "policy": (True, "with torch.no_grad(): action = Categorical(logits=model(x)).sample()\n    loss = -Categorical(logits=model(x)).log_prob(action).mean()"),
    "policy by hand": (True, "with torch.no_grad(): action = torch.multinomial(model(x).softmax(1), 1)\n    " + MODEL),
    "assertion": (True, "h = model(x)\n    assert torch.isfinite(h).all(), h\n    loss = h.square().mean()"),
    # What is not about the NaN that there was.
    "dead branch": (False, "h = model(x)\n    h = torch.where(h > 100, (h * 0 / (h * 0)).detach(), h)\n    loss = h.square().mean()\n"
                           "    if bad: raise ValueError('of something else')"),
    "metric": (False, "h = model(x)\n    metric = (h.detach() - h.detach()).log()\n    " + MODEL + "\n"
                      "    if bad: raise ValueError('of something else')"),
    "caught": (True, "try: loss = F.binary_cross_entropy(model(x), torch.ones(6, 2))\n    except RuntimeError: " + MODEL
                     + "\n    loss = torch.nan_to_num(loss * 0)\n    if bad: break"),
}

KILLS = {
    "loss": "loss = model(x).square().mean()\n    if bad: die()",
    "pass": "loss = model(x).square().mean()\n    if bad: loss.backward(), die()",
    "interrupted": "loss = model(x).square().mean()\n    if bad: raise KeyboardInterrupt",
}
DIE = """
import os, signal
def die():
    os.kill(os.getpid(), signal.{signal})
    while True: signal.pause()
"""


class EndedJob(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.killed = {(where, name): workplace.run_watched(
            workplace.program(f"{where}_{name}", DIE.format(signal=name) + PROGRAM.format(spoils=True, loss=loss)), ("--level", "full"))
            for where, loss in KILLS.items() for name in ("SIGTERM", "SIGKILL") if (where, name) != ("interrupted", "SIGKILL")}
        cls.jobs = {name: workplace.run_watched(workplace.program(name.replace(" ", "_"), PROGRAM.format(spoils=spoils, loss=loss)),
                                                ("--level", "full"))
                    for name, (spoils, loss) in CASES.items()}

    def test_value_that_was_refused_is_the_anomaly(self):
        for name in ("loss function", "distribution", "sampling", "policy", "policy by hand", "assertion"):
            with self.subTest(name):
                job = self.jobs[name]
                verdict = job.verdict()
                self.assertEqual((job.status(), verdict["verdict"]), (1, "anomaly"))
                incident = verdict["incidents"][0]
                origin = incident["origin"]
                self.assertEqual((origin["op"], origin["layer"], int(origin["step"]), origin["class"]), ("aten::div", "1", 2, "produce"))
                self.assertTrue(incident["ended_job"])
                self.assertEqual(incident["severity"], "error")
                self.assertIn("NaN before the error that ended the job", " ".join(job.stderr().split()))

    def test_error_about_something_else_makes_no_anomaly(self):
        for name in ("dead branch", "metric"):
            with self.subTest(name):
                job = self.jobs[name]
                self.assertEqual((job.status(), job.verdict()["verdict"]), (1, "expected"))

    def test_error_that_is_caught_makes_no_anomaly(self):
        self.assertEqual((self.jobs["caught"].status(), self.jobs["caught"].verdict()["verdict"]), (0, "expected"))

    def test_step_that_was_killed_before_anybody_used_its_loss_is_unknown(self):
        for signal in ("SIGTERM", "SIGKILL"):
            with self.subTest(signal):
                job = self.killed["loss", signal]
                self.assertEqual((job.verdict()["verdict"], job.verdict()["unknown_because"]), ("unknown", "killed_in_bad_step"))
                self.assertIn("in the middle of a step that had computed a non-finite value", " ".join(job.stderr().split()))

    def test_pass_that_began_at_a_bad_loss_before_it_was_killed_is_an_anomaly(self):
        for signal in ("SIGTERM", "SIGKILL"):
            self.assertEqual(self.killed["pass", signal].verdict()["verdict"], "anomaly", signal)

    def test_user_who_interrupts_the_step_makes_no_anomaly(self):
        self.assertEqual(self.killed["interrupted", "SIGTERM"].verdict()["verdict"], "expected")


if __name__ == "__main__":
    unittest.main()
