# SPDX-License-Identifier: Apache-2.0
"""Promise: a job that ran and ended before any daemon lived is read whole by the one that comes later."""
import json
import subprocess
import unittest

from watched_job import DAEMON, TIMEOUT_S, PromiseTest

PROGRAM = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).sum()
    if step == 3:
        loss = loss / torch.zeros(())
    loss.backward()
    optimizer.step()
print("done")
"""


class DaemonAfter(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.job = workplace.run_preloaded(workplace.program("alone", PROGRAM))
        cls.job.status()
        cls.left = cls.segments()
        cls.daemon = subprocess.run([DAEMON, "--idle-exit", "1"], env=workplace.watched, capture_output=True, text=True,
                                    timeout=TIMEOUT_S)

    @classmethod
    def segments(cls):
        return sorted(path.name for path in cls.workplace.segments.glob("nw-*"))

    def test_the_job_ran_as_ever_and_left_its_segment(self):
        self.assertEqual((self.job.status(), self.job.stdout()), (0, "done\n"), self.job.stderr())
        self.assertEqual(len(self.left), 1)

    def test_the_daemon_left_when_idle_and_removed_the_segment(self):
        self.assertEqual(self.daemon.returncode, 0, self.daemon.stderr)
        self.assertEqual(self.segments(), [])

    def test_the_run_is_listed_as_ended_with_its_steps(self):
        (run,) = json.loads(self.workplace.tool("ps", "--json"))["runs"]
        self.assertEqual((run["program"], run["live"], int(run["step"]), int(run["lost"])), ("alone.py", False, 4, 0))
        self.assertTrue(run["state"].startswith("ended"), run["state"])

    def test_the_report_names_the_origin_and_knows_no_exit_status(self):
        verdict = json.loads(self.workplace.tool("report", "--json"))
        origin = verdict["incidents"][0]["origin"]
        found = (verdict["verdict"], origin["op"], origin["class"], origin["phase"], int(origin["step"]))
        self.assertEqual(found, ("anomaly", "aten::div", "produce", "forward", 3))
        self.assertIn("parameter", verdict["incidents"][0]["reach"])
        self.assertIsNone(verdict["run"]["exit_code"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
