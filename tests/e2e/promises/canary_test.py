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
        cls.update = workplace.run_watched(
            workplace.program("update", program_text("sgd", BAD_UPDATE)), ("--level", "canary"))

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
