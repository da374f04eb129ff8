# SPDX-License-Identifier: Apache-2.0
"""A job of four hosts with a database each: the fleet names the rank that began it, and says who is silent."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

import torch.distributed

from cluster import BUILD, Gatherer, await_condition
from fleet_case import FleetCase

NANWATCH = BUILD / "bin/nanwatch"
PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "scripts/demo/fleet_rank.py"
HOSTS = 4
JOB = "fleet-test"


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed")
class Fleet(FleetCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gatherers = [Gatherer(cls.cluster, cls.folder, "--read-database", cls.cluster.connection("asker")) for _ in range(2)]
        for gatherer in cls.gatherers:
            cls.addClassCleanup(gatherer.stop)
        # The ranks meet at it as at a store of torchrun's. It takes a free port.
        cls.store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        cls.run_job()

    @classmethod
    def environment(cls, rank):
        shared = {name: value for name, value in os.environ.items() if not name.startswith("NANWATCH_")}
        return shared | {"NANWATCH_DIR": str(cls.folder / f"segments{rank}"), "NANWATCH_STATE_DIR": str(cls.folder / f"state{rank}"),
                         "NANWATCH_JOB": JOB, "NANWATCH_OUTBOX": "1", "RANK": str(rank), "WORLD_SIZE": str(HOSTS), "OMP_WAIT_POLICY": "PASSIVE",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(cls.store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}

    @classmethod
    def run_job(cls):
        """Each host has a daemon, which is ended with the job: it writes all that is left."""
        daemons, ranks = [], []
        for rank in range(HOSTS):
            (cls.folder / f"state{rank}").mkdir(mode=0o700)
            daemons.append(subprocess.Popen([BUILD / "bin/nanwatchd"], env=cls.environment(rank), stderr=subprocess.DEVNULL))
            await_condition(lambda r=rank: list((cls.folder / f"segments{r}").glob("daemon*.lock")), "the daemon runs")
            ranks.append(subprocess.Popen([NANWATCH, "run", "--", sys.executable, PROGRAM, "--zero-in-rank=3"], env=cls.environment(rank),
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        cls.statuses = [rank.wait(300) for rank in ranks]
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(60)

    def forward(self, rank):
        gatherer = self.gatherers[rank % 2]
        sent = subprocess.run([NANWATCH, "forward", "--once", "--to", gatherer.url, "--token-file", gatherer.token_file],
                              env=self.environment(rank), capture_output=True, text=True, timeout=120)
        self.assertEqual((sent.returncode, sent.stderr), (0, ""))

    def report(self, *options, gatherer=0):
        fleet = self.gatherers[gatherer]
        return subprocess.run([NANWATCH, "report", JOB, "--fleet", fleet.url, "--token-file", fleet.token_file, *options],
                              env=self.environment(0), capture_output=True, text=True, timeout=120)

    def test_1_nobody_was_heard_of(self):
        self.assertEqual(self.statuses, [0] * HOSTS)
        asked = self.report()
        self.assertEqual(asked.returncode, 1)
        self.assertIn("no job of that id was reported", asked.stderr)

    def test_2_the_answer_grows_and_never_names_a_wrong_rank(self):
        for count, rank in enumerate((0, 2, 1), 1):
            self.forward(rank)
            gatherer = self.gatherers[0]
            await_condition(lambda c=count: json.loads(gatherer.ask("GET", f"/api/v1/jobs/{JOB}/verdict")[1])["fleet"]["ranks_heard"] == c,
                            "the answer is made anew")
            document = json.loads(gatherer.ask("GET", f"/api/v1/jobs/{JOB}/verdict")[1])
            for incident in document["incidents"]:
                self.assertEqual((incident["origin"]["class"], incident["origin"]["exact"]), ("received", False))
        fleet = document["fleet"]
        self.assertEqual((fleet["ranks_expected"], fleet["ranks_heard"], fleet["ranks_silent"], fleet["ranks_behind"]), (4, 3, [3], []))
        self.assertEqual((fleet["other_launches"], set(fleet["lost"].values())), ([], {0}))
        asked = self.report("--check")
        self.assertEqual(asked.returncode, 2)
        self.assertIn("1 of 4 ranks was not heard of: 3", asked.stderr)

    def test_3_with_all_ranks_it_names_the_one_that_began_it(self):
        fleet = self.gatherers[1]
        follower = subprocess.Popen([NANWATCH, "tail", "-f", "--forever", JOB, "--fleet", fleet.url, "--token-file", fleet.token_file],
                                    env=self.environment(0), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(follower.communicate, timeout=60)
        self.addCleanup(follower.kill)
        self.assertIn("1 of 4 ranks was not heard of: 3", follower.stderr.readline())
        self.forward(3)
        self.assertRegex(follower.stderr.readline(), "the answer has changed: .*rank 3: step 4, .*aten::log")
        asked = self.report("--json", gatherer=1)
        self.assertEqual((asked.returncode, asked.stderr), (0, ""))
        document = json.loads(asked.stdout)
        self.assertEqual((document["verdict"], len(document["incidents"])), ("anomaly", 1))
        origin = document["incidents"][0]["origin"]
        self.assertEqual((origin["rank"], origin["op"], origin["step"], origin["class"]), (3, "aten::log", 4, "produce"), origin)
        self.assertIn("parameter", document["incidents"][0]["reach"])
        self.assertIn("rank 3", self.report(gatherer=1).stdout)
        jobs = json.loads(self.gatherers[1].ask("GET", "/api/v1/jobs")[1])["jobs"]
        self.assertEqual([(job["job"], job["runs"], job["runs_ended"], job["world_size"]) for job in jobs], [(JOB, 4, 4, 4)])

    def test_4_wrong_use_is_said(self):
        for arguments, words in (([JOB, "--stats", "--fleet", self.gatherers[0].url], "--fleet none"), ([JOB, "--fleet", "gather"], "is no address"),
                                 ([JOB, "--fleet", self.gatherers[0].url], "answered 401")):
            said = subprocess.run([NANWATCH, "report", *arguments], env=self.environment(0), capture_output=True, text=True)
            self.assertNotEqual(said.returncode, 0)
            self.assertIn(words, said.stderr)


if __name__ == "__main__":
    unittest.main()
