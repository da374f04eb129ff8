# SPDX-License-Identifier: Apache-2.0
"""Promise: a state directory that cannot be had costs history, not the diagnosis: the daemon runs, with its database in memory."""
import json
import shutil
import subprocess
import sys
import unittest

from watched_job import PromiseTest, Workplace, origins

TRAINING = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    optimizer.zero_grad()
    loss = (model(torch.ones(4, 8)) ** 2).mean()
    if step == 3:
        loss = loss / torch.zeros(())
    loss.backward()
    optimizer.step()
"""


class Beside(PromiseTest):
    """NANWATCH_STATE_DIR under a file: it can be made by nobody, root included."""

    @classmethod
    def start(cls, workplace):
        blocked = workplace.folder / "blocked"
        blocked.write_text("a file")
        workplace.watched |= {"NANWATCH_STATE_DIR": str(blocked / "state")}
        cls.job = workplace.run_watched(workplace.program("train", TRAINING))

    def test_the_verdict_is_full_and_a_daemon_read_it(self):
        verdict = self.job.verdict()
        origin = origins(verdict)[0]
        self.assertEqual((verdict["verdict"], origin["op"], int(origin["step"])), ("anomaly", "aten::div", 3), self.job.stderr())
        self.assertEqual(verdict["run"]["exit_code"], 0)
        self.assertTrue((self.workplace.segments / "state/nanwatch.db").exists())
        self.assertEqual(list(self.workplace.segments.glob("nw-*.seg")), [], self.job.stderr())

    def test_it_is_said_once_and_where(self):
        words = self.job.stderr()
        self.assertEqual(words.count(str(self.workplace.segments / "state")), 1, words)
        self.assertNotIn("could not be started", words)
        log = (self.workplace.segments / "state/nanwatch.log").read_text()
        self.assertEqual(log.count("are beside the segments"), 1, log)

    def test_the_tools_find_it(self):
        job = self.job.verdict()["run"]["job"]
        self.assertEqual([run["job"] for run in json.loads(self.workplace.tool("ps", "--json"))["runs"]], [job])
        self.assertEqual(json.loads(self.workplace.tool("report", job, "--json"))["verdict"], "anomaly")

    def test_doctor_says_why(self):
        checks = json.loads(self.workplace.tool("doctor", "--python", sys.executable, "--json"))["checks"]
        (state,) = [check for check in checks if check["name"] == "state"]
        self.assertEqual(state["state"], "warn")
        self.assertIn("blocked", state["text"])


class ReadOnlyHome(Workplace):
    """A home on a read-only file system, with no variable that leads elsewhere."""

    def __init__(self):
        super().__init__()
        self.home = self.folder / "home"
        self.home.mkdir()
        del self.watched["NANWATCH_STATE_DIR"]
        self.watched |= {"HOME": str(self.home)}
        self.watched.pop("XDG_STATE_HOME", None)
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", self.home],
                                      capture_output=True).returncode == 0

    def close(self):
        super().close()
        if self.mounted:
            subprocess.run(["umount", "-l", self.home], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class HomeThatIsReadOnly(PromiseTest):
    WORKPLACE = ReadOnlyHome

    @classmethod
    def start(cls, workplace):
        if not workplace.mounted:
            workplace.close()
            raise unittest.SkipTest("nothing may be mounted here")
        cls.job = workplace.run_watched(workplace.program("train", TRAINING))

    def test_the_verdict_is_full(self):
        verdict = self.job.verdict()
        self.assertEqual((verdict["verdict"], origins(verdict)[0]["op"]), ("anomaly", "aten::div"), self.job.stderr())
        self.assertTrue((self.workplace.segments / "state/nanwatch.db").exists(), self.job.stderr())


if __name__ == "__main__":
    unittest.main()
