# SPDX-License-Identifier: Apache-2.0
"""What a GPU's values leave on the CPU is not read before it is there, and known all the same once it is."""
import unittest

from gpu_job import GpuJobTest, origins

# Pinned memory that held labels of -100, which is NaN as float32, is used again for what the model has computed.
TRAINING = """
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for bytes_of in (1, 4, 64, 1024):
    torch.full((bytes_of,), -100).pin_memory()
kept, lists = torch.empty(32, 16, pin_memory=True), [torch.empty(4, pin_memory=True) for _ in range(2)]
logged = []
for step in range(12):
    x = torch.randn(32, 8, device="cuda")
    hidden = model[1](model[0](x))
    {fault}
    offloaded = hidden.to("cpu", non_blocking=True)
    kept.copy_(hidden, non_blocking=True)
    torch._foreach_copy_(lists, [hidden[0, :4], hidden[1, :4].detach()], non_blocking=True)
    again = offloaded.to("cuda", non_blocking=True)
    loss = (model[2](again) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logged.append((kept.to("cuda", non_blocking=True).to("cpu", torch.float64, non_blocking=True), loss.detach().to("cpu", non_blocking=True)))
    {wait}
    {read}
torch.cuda.synchronize()
print([(hidden.sum().item().hex(), loss.item().hex()) for hidden, loss in logged], [x.sum().item() for x in lists])
"""


def training(fault="pass", wait="pass", read="pass"):
    return TRAINING.format(fault=fault, wait=wait, read=read)


SYNC, EVENT = "torch.cuda.synchronize()", "done = torch.cuda.Event(); done.record(); done.synchronize()"
SQRT = "if step == 7: hidden = (hidden - 1).sqrt()"
BAD = {
    "offloaded": training(SQRT),
    "read": training(SQRT.replace("hidden =", "offered =") + "; hidden = offered if step == 7 else hidden", SYNC, "(offloaded * 2).sum()"),
}
# The only way on is by the CPU: what reads the copy there comes of the op on the GPU, and what was written over it is clean.
BY_CPU = """
import torch, torch.nn as nn
torch.manual_seed(0)
first, second = nn.Linear(8, 16).cuda(), nn.Linear(16, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-3)
pinned = torch.empty(32, 16, pin_memory=True)
seen = torch.zeros(())
for step in range(12):
    hidden = first(torch.randn(32, 8, device="cuda"))
    if step == {step}:
        spoiled = (hidden - 9).log()
        pinned.copy_(spoiled.detach(), non_blocking=True)
        {first}
    if step != {step} or {again}:
        pinned.copy_(hidden.detach(), non_blocking=True)
    torch.cuda.synchronize()
    loss = (second(pinned) ** 2).mean() + hidden.mean().cpu()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print([p.double().sum().item().hex() for p in second.parameters()])
"""


class HostCopies(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.healthy = {}
        for name, wait in {"none": "pass", "sync": SYNC, "event": EVENT}.items():
            program = cls.program(f"healthy_{name}", training(wait=wait))
            cls.healthy[name] = workplace.run_bare(program), [
                workplace.run_watched(program, ("--level", "full")), workplace.run_watched(program, ("--level", "sampled")),
                workplace.run_watched(program, NANWATCH_GPU="0")]
        cls.bad = {name: workplace.run_watched(cls.program(f"bad_{name}", text)) for name, text in BAD.items()}
        cls.by_cpu = {}
        for first in ("pass", "torch.cuda.synchronize()", "seen += pinned.cuda(non_blocking=True).sum().cpu() * 0"):
            for again in (False, True):
                text = BY_CPU.format(step=7, first=first, again=again)
                cls.by_cpu[first, again] = workplace.run_watched(cls.program(f"by_cpu_{len(cls.by_cpu)}", text))

    def test_what_has_not_arrived_is_not_read(self):
        for name, (bare, jobs) in self.healthy.items():
            *checked, unchecked = jobs
            for job in checked:
                with self.subTest(name):
                    self.assert_same(bare, job)
                    self.assert_clean(job)
            with self.subTest(name, checks="none on the GPU"):
                self.assert_same(bare, unchecked)
                verdict = unchecked.verdict()
                self.assertEqual((verdict["incidents"], verdict["unknown_because"]), ([], "device_not_checked"))
            with self.subTest(name):
                self.assertGreater(int(jobs[0].verdict()["coverage"]["unchecked"]["async"]), 0)

    def test_what_was_bad_on_the_gpu_is_known_of_its_copy(self):
        for name, job in self.bad.items():
            with self.subTest(name):
                self.assert_origin(job.verdict(), op="aten::sqrt", step=7, exact=True, **{"class": "produce"})

    def test_what_reads_a_copy_comes_of_what_the_gpu_made(self):
        for (first, again), job in self.by_cpu.items():
            with self.subTest(first=first, again=again):
                verdict = job.verdict()
                found = origins(verdict)
                self.assertEqual([(o["op"], o["class"], int(o["step"])) for o in found], [("aten::log", "produce", 7)])
                reached = "parameter" in verdict["incidents"][0]["reach"]
                self.assertEqual(reached, not again)


if __name__ == "__main__":
    unittest.main(verbosity=2)
