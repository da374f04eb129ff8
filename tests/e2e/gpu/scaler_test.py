# SPDX-License-Identifier: Apache-2.0
"""Mixed precision on a GPU: a step that the GradScaler skips is expected and no step, whoever skips it."""
import unittest

from gpu_job import GpuJobTest, origins

TRAINING = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused={fused})
scaler = torch.amp.GradScaler("cuda", init_scale={scale}, growth_interval=1000)
skipped = 0
for i in range(14):
    scale = scaler.get_scale()
    optimizer.zero_grad()
    x = torch.randn(6, 8).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = (model(x) - x[:, :4]).float().square().mean()
        {fault}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    skipped += scaler.get_scale() < scale and i < 12
print(skipped, loss.item().hex(), scaler.get_scale())
"""
# So large that the first scaled gradients overflow in float16.
OVERFLOWS = 2.0 ** 22
# The scaler has looked already, and finds nothing: the fused kernel applies these.
BAD_GRADIENTS = """scaler.unscale_(optimizer)
    if i == 6:
        model[2].weight.grad.div_(torch.zeros((), device="cuda"))
    scaler.step(optimizer)"""
BAD_LOSS = "if i == 6: loss = loss - loss.detach().sub(1e9).log()"


class Scaler(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.skipping = {fused: workplace.run_watched(
            cls.program(f"skips_{fused}", TRAINING.format(fused=fused, scale=OVERFLOWS, fault="")), ("--level", level))
            for fused, level in ((False, "full"), (True, "full"))}
        cls.late_fault = {fused: workplace.run_watched(
            cls.program(f"late_{fused}", TRAINING.format(fused=fused, scale=OVERFLOWS, fault=BAD_LOSS.replace("6", "12"))))
            for fused in (False, True)}
        canary = cls.program("canary", TRAINING.format(fused=True, scale=OVERFLOWS, fault=""))
        cls.canary = {lag: workplace.run_watched(canary, ("--level", "canary"), NANWATCH_FAKE_LAG=lag) for lag in ("0", "50")}
        after_the_scaler = TRAINING.replace("scaler.step(optimizer)", BAD_GRADIENTS).format(fused=True, scale=8.0, fault="")
        program = cls.program("after_the_scaler", after_the_scaler)
        cls.after_the_scaler = {level: workplace.run_watched(program, ("--level", level)) for level in ("full", "canary")}
        cls.bad_loss = workplace.run_watched(cls.program("bad_loss", TRAINING.format(fused=False, scale=8.0, fault=BAD_LOSS)))

    def test_skipped_steps_are_expected(self):
        for fused, job in self.skipping.items():
            with self.subTest(fused=fused):
                self.assertEqual(job.status(), 0, job.stderr())
                self.assertEqual(job.verdict()["verdict"], "expected")

    def test_skipped_steps_do_not_count(self):
        for fused, job in self.late_fault.items():
            with self.subTest(fused=fused):
                verdict = job.verdict()
                found = [o for o in origins(verdict) if o["op"] == "aten::log"]
                self.assertEqual(len(found), 1, origins(verdict))
                # What a fused optimizer leaves as it found it, it has not made.
                self.assertNotIn("optimizer", [o["kind"] for o in origins(verdict)])
                skipped = int(job.stdout().split()[0])
                self.assertGreater(skipped, 0)
                self.assertEqual((int(found[0]["step"]), int(found[0]["iteration"])), (12 - skipped, 12))

    def test_canary_takes_a_fused_optimizer_s_skipped_step_for_one(self):
        for lag, job in self.canary.items():
            with self.subTest(lag=lag):
                self.assertIn(job.verdict()["verdict"], ("clean", "expected"))
                # What it was given was bad already, so nothing is said to have been made there.
                self.assertEqual([o for o in origins(job.verdict()) if o["exact"] or o["kind"] == "optimizer"], [])

    def test_gradients_that_go_bad_behind_the_scaler_are_no_skip_s(self):
        for level, job in self.after_the_scaler.items():
            with self.subTest(level=level):
                verdict = job.verdict()
                self.assertEqual(verdict["verdict"], "anomaly")
                self.assertEqual(int(origins(verdict)[0]["step"]), 6)
                self.assertIn("parameter", verdict["incidents"][0]["reach"])
        self.assertEqual(origins(self.after_the_scaler["full"].verdict())[0]["op"], "aten::div_")

    def test_a_bad_loss_is_no_skip_s_excuse(self):
        verdict = self.bad_loss.verdict()
        self.assertEqual(verdict["verdict"], "anomaly")
        self.assertEqual((origins(verdict)[0]["op"], int(origins(verdict)[0]["step"])), ("aten::log", 6))


if __name__ == "__main__":
    unittest.main(verbosity=2)
