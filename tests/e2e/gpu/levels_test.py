"""Levels on a GPU: canary tells of a bad gradient or update what the CPU's canary tells; idle launches nothing."""
import unittest

from gpu_job import GpuJobTest, origins

TRAINING = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).cuda()
optimizer = {optimizer}
for i in range(12):
    optimizer.zero_grad()
    x = torch.randn(6, 8).cuda()
    loss = (model(x) - x[:, :4]).square().mean()
    loss.backward()
    {fault}
    optimizer.step()
print(loss.item().hex())
"""
OPTIMIZERS = {"sgd": "torch.optim.SGD(model.parameters(), lr=1e-2)",
              "fused": "torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)",
              "foreach": "torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)"}
BAD_GRADIENT = "if i == 7: model[0].weight.grad[2, 3] = float('nan')"
BAD_UPDATE = "if i == 7: optimizer.param_groups[0]['lr'] = float('inf')"


class Levels(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.canary = {name: workplace.run_watched(
            cls.program(name, TRAINING.format(optimizer=optimizer, fault=BAD_GRADIENT)), ("--level", "canary"))
            for name, optimizer in OPTIMIZERS.items()}
        healthy = cls.program("healthy", TRAINING.format(optimizer=OPTIMIZERS["sgd"], fault=""))
        cls.healthy = {level: workplace.run_watched(healthy, ("--level", level)) for level in ("idle", "canary")}
        cls.update = workplace.run_watched(
            cls.program("update", TRAINING.format(optimizer=OPTIMIZERS["sgd"], fault=BAD_UPDATE)), ("--level", "canary"))

    def test_a_bad_gradient_is_one_incident_of_the_gradient(self):
        for name, job in self.canary.items():
            with self.subTest(name):
                verdict = job.verdict()
                self.assertEqual([(o["op"], o["layer"], int(o["step"]), o["exact"]) for o in origins(verdict)],
                                 [("torch::autograd::AccumulateGrad", "0", 7, False)])
                self.assertLessEqual({"gradient", "parameter"}, set(verdict["incidents"][0]["reach"]))

    def test_a_healthy_job_is_clean_and_was_looked_at(self):
        self.assert_clean(self.healthy["canary"])

    def test_idle_looks_at_nothing(self):
        coverage = self.healthy["idle"].verdict()["coverage"]
        self.assertEqual((int(coverage["tensors_checked"]), int(coverage["steps"])), (0, 12))

    def test_what_an_update_makes_of_sound_gradients_is_the_update_s(self):
        origin = origins(self.update.verdict())[0]
        self.assertEqual((origin["phase"], int(origin["step"])), ("optimizer", 7))


if __name__ == "__main__":
    unittest.main(verbosity=2)
