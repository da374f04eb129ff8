# SPDX-License-Identifier: Apache-2.0
"""Promise: however a job ends, its end stays its own, and what was found just before is kept."""
import json
import signal
import unittest

from watched_job import PromiseTest

PROGRAM = """
import ctypes, os, signal, sys
import torch

endings = {
    "exception": lambda: 1 / 0,
    "segv": lambda: ctypes.string_at(0),
    "_exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "terminate": lambda: ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev(),
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
}
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    outputs = model(torch.ones(2, 4))
    if step == 2:
        loss = torch.sqrt(-outputs.abs().sum() - 1)
        endings[sys.argv[1]]()
    outputs.sum().backward()
    optimizer.step()
"""
STATUS = {"exception": 1, "segv": -signal.SIGSEGV, "_exit": 3, "kill": -signal.SIGKILL, "abort": -signal.SIGABRT,
          "terminate": -signal.SIGABRT, "term": -signal.SIGTERM}


class Crashes(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = workplace.program("crash", PROGRAM)
        cls.jobs = {ending: workplace.run_watched([*command, ending]) for ending in STATUS}

    def check(self, ending):
        job = self.jobs[ending]
        self.assertEqual(job.status(), STATUS[ending], job.stderr())
        (run,) = job.verdict()["runs"]
        self.check_end(run, STATUS[ending])
        lines = [json.loads(line) for line in self.workplace.tool("tail", "--json", run["id"]).splitlines()]
        findings = [(line["op"], line["class"], line["step"], line["nan"]) for line in lines if line["event"] == "finding"]
        self.assertEqual(findings, [("aten::sqrt", "produce", 2, 1)])

    def check_end(self, run, status):
        code, ending_signal = run["exit_code"], run["signal"]
        self.assertEqual((code, ending_signal), (status, None) if status >= 0 else (code, -status))

    def test_an_exception_ends_it_with_status_1_and_its_traceback(self):
        self.check("exception")
        self.assertIn("ZeroDivisionError", self.jobs["exception"].stderr())

    def test_a_segmentation_fault_stays_one(self):
        self.check("segv")

    def test_an_immediate_exit_keeps_its_status(self):
        self.check("_exit")

    def test_a_kill_stays_one(self):
        self.check("kill")

    def test_an_abort_stays_one(self):
        self.check("abort")

    def test_a_terminate_of_cpp_stays_an_abort(self):
        self.check("terminate")

    def test_a_request_to_end_stays_one(self):
        self.check("term")


if __name__ == "__main__":
    unittest.main(verbosity=2)
