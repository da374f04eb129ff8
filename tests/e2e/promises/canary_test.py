# SPDX-License-Identifier: Apache-2.0
"""Promise: level canary sees what the training itself shows, tells it once, and says where it met it and not more."""
import unittest

from small_training import BAD_GRADIENT, BAD_UPDATE, OPTIMIZERS, program_text
from watched_job import PromiseTest, origins

# More parameters than one record has room for.
DEEP = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(20)])
optimizer = {optimizer}
for i in range(12):
    outputs = model(torch.randn(6, 8))
    loss = outputs.square().mean()
    {fault}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""
DEEP_FAULTS = {"loss": "if i == 7: loss = loss * torch.sqrt(-outputs.abs().sum())",
               "gradient": "if i == 7: loss = loss + torch.sqrt(0 * outputs).sum()"}

# The parameters are put right after the bad step; what the optimizer keeps is bad still.
RELOADED = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
optimizer = {optimizer}
for i in range(12):
    outputs = model(torch.randn(6, 8))
    loss = outputs.square().mean()
    if i == 7:
        loss = loss * torch.sqrt(-outputs.abs().sum())
        good = {{name: value.clone() for name, value in model.state_dict().items()}}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i == 7: model.load_state_dict(good)
"""

# Neither the loss nor a gradient shows what the job has written, and what an update makes of it is read after it.
WRITTEN_BETWEEN = """
import torch
torch.manual_seed(1)
gate = torch.nn.Parameter(torch.zeros(8))
optimizer = torch.optim.Adam([gate], lr=0.01)
for i in range({late} + 3):
    if i == {late}: gate.detach()[0] = float("inf")
    optimizer.zero_grad()
    torch.sigmoid(gate).sum().backward()
    optimizer.step()
"""

# Where nothing but what Python does with a number, or what is left in a buffer, says that something was bad.
MODEL = """
import math, torch
torch.manual_seed(1)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)
        self.register_buffer("lowest", torch.zeros(8))
    def forward(self, x):
        return self.norm(self.fc(x))
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [torch.randn(6, 8) for _ in range(10)]
def loss_of(x): return model(x).square().mean()
def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
WORDS = {
    "nothing is bad": """
for x in data: update(loss_of(x))
with torch.no_grad(): print(loss_of(data[0]).item(), torch.isnan(data[0]).any())""",
    "a bad loss is left out by a question": """
for i, x in enumerate(data):
    loss = loss_of(x)
    if i == 5: loss = loss - torch.log(loss * 0)
    if torch.isfinite(loss): update(loss)""",
    "a job that dies of its loss": """
for i, x in enumerate(data):
    loss = loss_of(x)
    loss = loss * torch.sqrt(torch.tensor(-1.0 if i == 5 else 1.0))
    if not math.isfinite(float(loss)): raise RuntimeError("the loss is no number")
    update(loss)""",
    "a job that dies of what its model returned": """
for i, x in enumerate(data):
    outputs = model(x)
    if i == 5: outputs = model(x * math.nan)
    update(-torch.distributions.Normal(outputs, 1.0).log_prob(x).mean())""",
    "gradients that the program looks at": """
for i, x in enumerate(data):
    loss = loss_of(x)
    if i == 5: loss = loss + torch.sqrt(0 * model.fc.weight).sum()
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm): optimizer.step()""",
    "a validation that is no number": """
for x in data: update(loss_of(x))
model.eval()
with torch.no_grad(): print(torch.nn.functional.mse_loss(model(data[0]).log(), data[0]).item())""",
    "a buffer that goes bad": """
model.fc.requires_grad_(False)
model.norm.momentum = 1.0
for i, x in enumerate(data):
    update(loss_of(x).detach() * 0 + model.norm.weight.square().sum())
    if i == 5:
        with torch.no_grad(): model.norm.running_mean.sub_(model.norm.running_mean).div_(model.norm.running_mean)
        model.norm.eval()""",
    "a parameter that goes bad before an update that a scaler leaves out": """
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for i, x in enumerate(data[:6]):
    if i == 5:
        with torch.no_grad(): model.fc.bias.copy_(torch.tensor([math.nan] * 8))
    outputs = model(x)
    loss = torch.where(torch.isnan(outputs), 1.0, outputs).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()""",
    "a buffer of extremes that is begun anew": """
model.lowest.fill_(math.inf)
for i, x in enumerate(data):
    update(loss_of(x))
    with torch.no_grad(): model.lowest.copy_(torch.minimum(model.lowest, x.min(0).values))
    if i == 5: model.lowest.fill_(math.inf)""",
}

LATE = 120  # by then an update's ops are no longer watched one by one


class Canary(PromiseTest):
    @classmethod
    def start(cls, workplace):
        early = {(name, fault): workplace.program(f"{name}_{fault}", program_text(name, text))
                 for name in OPTIMIZERS for fault, text in (("gradient", BAD_GRADIENT), ("none", ""))}
        late = {(name, fault): workplace.program(f"{name}_late_{fault}", program_text(name, text.replace("7", str(LATE)), steps=LATE + 3))
                for name in OPTIMIZERS for fault, text in (("gradient", BAD_GRADIENT), ("update", BAD_UPDATE))}
        cls.jobs, cls.late = ({of: (bare, workplace.run_watched(programs[of], ("--level", "canary")))
                               for of, bare in workplace.run_bare_twins(programs).items()} for programs in (early, late))
        cls.deep = {(name, fault): workplace.run_watched(
            workplace.program(f"deep_{name}_{fault}", DEEP.format(optimizer=OPTIMIZERS[name], fault=text)), ("--level", "canary"))
            for name in ("adam", "foreach") for fault, text in DEEP_FAULTS.items()}
        cls.reloaded = {name: workplace.run_watched(workplace.program(f"reloaded_{name}", RELOADED.format(optimizer=text)), ("--level", "canary"))
                        for name, text in OPTIMIZERS.items()}
        cls.words = {name: {level: workplace.run_watched(workplace.program(f"word_{number}_{level}", MODEL + text), ("--level", level))
                            for level in ("full", "canary")} for number, (name, text) in enumerate(WORDS.items())}
        cls.written = workplace.run_watched(workplace.program("written", WRITTEN_BETWEEN.format(late=LATE)), ("--level", "canary"))
        cls.update = workplace.run_watched(
            workplace.program("update", program_text("sgd", BAD_UPDATE)), ("--level", "canary"))

    def test_it_says_the_same_word_as_full(self):
        for name, jobs in self.words.items():
            with self.subTest(name):
                at_full, at_canary = (jobs[level].verdict() for level in ("full", "canary"))
                self.assertEqual(at_canary["verdict"], at_full["verdict"], origins(at_canary))
                self.assertFalse([origin for origin in origins(at_canary) if origin["exact"]])
                self.assertEqual(jobs["canary"].stdout(), jobs["full"].stdout())

    def test_what_an_update_finds_bad_of_before_belongs_to_what_made_it_so(self):
        for name, job in self.reloaded.items():
            with self.subTest(name):
                self.assertEqual([(o["op"], int(o["step"]), o["exact"]) for o in origins(job.verdict())], [("torch.autograd.backward", 7, False)])

    def test_the_gradients_of_a_deep_model_are_one_incident(self):
        for of, watched in self.deep.items():
            with self.subTest(of):
                verdict = watched.verdict()
                op = "torch.autograd.backward" if of[1] == "loss" else "torch::autograd::AccumulateGrad"
                self.assertEqual([(o["kind"], o["op"], int(o["step"]), o["exact"]) for o in origins(verdict)], [("op", op, 7, False)])
                self.assertIn("parameter", verdict["incidents"][0]["reach"])

    def test_a_bad_gradient_is_one_incident_of_the_gradient_with_every_kind_of_optimizer(self):
        for name in OPTIMIZERS:
            with self.subTest(name):
                verdict = self.jobs[name, "gradient"][1].verdict()
                self.assertEqual([(o["op"], o["layer"], int(o["step"]), o["exact"]) for o in origins(verdict)],
                                 [("torch::autograd::AccumulateGrad", "0", 7, False)])
                self.assertLessEqual({"gradient", "parameter"}, set(verdict["incidents"][0]["reach"]))

    def test_results_are_the_same_and_a_healthy_run_is_clean(self):
        for (name, fault), (bare, watched) in self.jobs.items():
            with self.subTest((name, fault)):
                self.assert_same(bare, watched)
                if fault == "none":
                    self.assertEqual(watched.verdict()["verdict"], "clean")

    def test_what_an_update_makes_of_sound_gradients_is_the_update_s(self):
        origin = origins(self.update.verdict())[0]
        self.assertEqual((origin["phase"], int(origin["step"])), ("optimizer", 7))

    def test_what_the_job_may_have_written_between_two_updates_is_not_said_to_be_the_update_s_for_sure(self):
        origin = origins(self.written.verdict())[0]
        self.assertEqual((origin["kind"], int(origin["step"]), origin["exact"], origin["unseen"]), ("optimizer", LATE, False, ["inputs"]))

    def test_later_an_update_is_told_by_what_it_has_written(self):
        for name in OPTIMIZERS:
            with self.subTest(name):
                bare, watched = self.late[name, "update"]
                self.assert_same(bare, watched)
                incidents = watched.verdict()["incidents"]
                origin = incidents[0]["origin"]
                self.assertEqual((len(incidents), origin["kind"], origin["phase"], int(origin["step"]), origin["param"]),
                                 (1, "optimizer", "optimizer", LATE, "0.weight"), incidents)
                self.assertRegex(origin["op"], r"^Optimizer\.step#\w+\.step$")
                self.assertIn("parameter", incidents[0]["reach"])
                self.assertRegex(origin["source"], r"^\w+\.py:12 in ", "the program's own line")

    def test_later_a_bad_gradient_is_still_one_incident_of_the_gradient(self):
        for name in OPTIMIZERS:
            with self.subTest(name):
                bare, watched = self.late[name, "gradient"]
                self.assert_same(bare, watched)
                verdict = watched.verdict()
                self.assertEqual([(o["op"], o["layer"], int(o["step"]), o["exact"]) for o in origins(verdict)],
                                 [("torch::autograd::AccumulateGrad", "0", LATE, False)])
                self.assertLessEqual({"gradient", "parameter"}, set(verdict["incidents"][0]["reach"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
