# SPDX-License-Identifier: Apache-2.0
"""Levels on a GPU: canary tells of a bad gradient or update what the CPU's canary tells; idle launches nothing."""
import unittest

from gpu_job import GpuJobTest, origins
from small_training import BAD_GRADIENT, BAD_UPDATE, program_text

OPTIMIZERS = ("sgd", "fused", "foreach")


class Levels(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.canary = {name: workplace.run_watched(
            cls.program(name, program_text(name, BAD_GRADIENT, gpu=True)), ("--level", "canary"))
            for name in OPTIMIZERS}
        healthy = cls.program("healthy", program_text("sgd", gpu=True))
        cls.healthy = {level: workplace.run_watched(healthy, ("--level", level)) for level in ("idle", "canary")}
        cls.unasked = {
            "gpu": workplace.run_by_default(healthy), "cpu": workplace.run_by_default(workplace.program("cpu", program_text("sgd"))),
            "bad": workplace.run_by_default(cls.program("bad", program_text("sgd", BAD_GRADIENT, gpu=True)))}
        cls.update = workplace.run_watched(
            cls.program("update", program_text("sgd", BAD_UPDATE, gpu=True)), ("--level", "canary"))

    def test_a_bad_gradient_is_one_incident_of_the_gradient(self):
        for name, job in self.canary.items():
            with self.subTest(name):
                verdict = job.verdict()
                self.assertEqual([(o["op"], o["layer"], int(o["step"]), o["exact"]) for o in origins(verdict)],
                                 [("torch::autograd::AccumulateGrad", "0", 7, False)])
                self.assertLessEqual({"gradient", "parameter"}, set(verdict["incidents"][0]["reach"]))

    def test_a_healthy_job_is_clean_and_was_looked_at(self):
        self.assert_clean(self.healthy["canary"])

    def test_who_asks_for_nothing_gets_sampled_on_a_gpu_and_full_elsewhere(self):
        for name, level in (("gpu", "sampled"), ("cpu", "full")):
            verdict = self.unasked[name].verdict()
            self.assertEqual((verdict["run"]["level"], list(verdict["coverage"]["steps_watched"])), (level, [level]))
        # And is told as much as there is to tell, and watched in full for a while; not once its parameters are bad.
        verdict = self.unasked["bad"].verdict()
        self.assertEqual([int(o["step"]) for o in origins(verdict)], [7])
        self.assertEqual(set(verdict["coverage"]["steps_watched"]), {"sampled", "full", "idle"})

    def test_idle_looks_at_nothing(self):
        coverage = self.healthy["idle"].verdict()["coverage"]
        self.assertEqual((int(coverage["tensors_checked"]), int(coverage["steps"])), (0, 12))

    def test_what_an_update_makes_of_sound_gradients_is_the_update_s(self):
        origin = origins(self.update.verdict())[0]
        self.assertEqual((origin["phase"], int(origin["step"])), ("optimizer", 7))


if __name__ == "__main__":
    unittest.main(verbosity=2)
