# SPDX-License-Identifier: Apache-2.0
"""What a GPU has found is known although the job is killed, waits for ever, or goes on with sound parameters."""
import json
import signal
import time
import unittest

from gpu_job import GpuJobTest, origins

HANGS = """
import os, sys, time, torch
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4, device="cuda")).sub(100).sqrt().sum() if step == 4 else model(torch.ones(2, 4, device="cuda")).sum()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
print("waiting", flush=True)
{end}
"""
RECOVERS = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
sound = {name: tensor.clone() for name, tensor in model.state_dict().items()}
for step in range(24):
    if step == 12: model.load_state_dict(sound)
    x = torch.randn(2, 4, device="cuda")
    hidden = model[0](x)
    if step == 4: hidden = hidden.sub(100).log()
    if step == 20: hidden = hidden.sub(100).sqrt()
    optimizer.zero_grad()
    model[1](hidden).sum().backward()
    optimizer.step()
    if step % 4 == 3: torch.cuda.synchronize()
"""
# The model is gone, and its memory used again, before its last update is known to be bad.
GONE = """
import gc, torch
def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        hidden = model[0](torch.ones(2, 4, device="cuda"))
        if step == 5: hidden = hidden.sub(100).log()
        model[1](hidden).sum().backward()
        optimizer.step()
train()
gc.collect()
others = [[object()] * 20 for _ in range(20000)] + [torch.ones(3) for _ in range(200)]
torch.cuda.synchronize()
print("alive")
"""
MANY_THREADS = """
import threading, torch
torch.manual_seed(0)
def train(fault):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)).cuda()
    with torch.cuda.stream(torch.cuda.Stream()):
        for step in range(40):
            hidden = model[0](torch.ones(2, 4, device="cuda"))
            if fault and step == 30: hidden = hidden.sub(100).log()
            model[1](hidden).sum().backward()
threads = [threading.Thread(target=train, args=(i == 2,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
torch.cuda.synchronize()
"""


class Lifetimes(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.killed = workplace.run_watched(cls.program("killed", HANGS.format(end="time.sleep(1); os.kill(os.getpid(), 9)")))
        cls.waiting = workplace.run_preloaded(cls.program("waiting", HANGS.format(end="time.sleep(1000)")), NANWATCH_JOB="waiting")
        cls.recovers = workplace.run_watched(cls.program("recovers", RECOVERS))
        cls.gone = workplace.run_watched(cls.program("gone", GONE), NANWATCH_FAKE_LAG="1500")
        cls.threads = workplace.run_watched(cls.program("threads", MANY_THREADS))

    def test_a_killed_job_s_findings_are_there(self):
        self.assertEqual(self.killed.status(), -signal.SIGKILL)
        origin = origins(self.killed.verdict())[0]
        self.assertEqual((origin["op"], int(origin["step"])), ("aten::sqrt", 4))

    def test_a_waiting_job_s_findings_are_there_while_it_waits(self):
        deadline = time.monotonic() + 600
        found = []
        while not found and time.monotonic() < deadline:
            try:
                found = [o["op"] for o in origins(json.loads(self.workplace.tool("report", "waiting", "--json")))]
            except AssertionError:
                pass  # Nothing is known of the job yet.
        self.assertEqual(found, ["aten::sqrt"])

    def test_sound_parameters_end_the_bad_times(self):
        got = [(o["op"], int(o["step"])) for o in origins(self.recovers.verdict())]
        self.assertEqual(sorted(got), [("aten::log", 4), ("aten::sqrt", 20)])

    def test_a_model_may_be_gone_before_its_update_is_told(self):
        self.assertEqual((self.gone.status(), self.gone.stdout()), (0, "alive\n"), self.gone.stderr())
        origin = origins(self.gone.verdict())[0]
        self.assertEqual((origin["op"], int(origin["step"])), ("aten::log", 5))
        self.assertIn("parameter", self.gone.verdict()["incidents"][0]["reach"])

    def test_streams_of_several_threads_are_told_apart(self):
        verdict = self.threads.verdict()
        self.assertEqual([o["op"] for o in origins(verdict)], ["aten::log"])
        self.assertEqual(int(verdict["coverage"]["lost_events"]), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
