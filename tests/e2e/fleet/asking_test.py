# SPDX-License-Identifier: Apache-2.0
"""The verbs that ask this host ask a gatherer with --fleet, in the same words: ps, top, tail, report, and pages by serve."""
import http.client
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

import otlp
from cluster import TOKEN, Gatherer, await_condition
from fleet_case import FleetCase
from host import NANWATCH, Host

RUNS = ["0000000000000001", "0000000000000002"]


class Hosts(FleetCase):
    """Two hosts with a rank each of one job, of which the first has ended."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gatherer = Gatherer(cls.cluster, cls.folder, "--read-database", cls.cluster.connection("asker"))
        cls.addClassCleanup(cls.gatherer.stop)
        cls.hosts = [Host(nonce, pathlib.Path(tempfile.mkdtemp(dir=cls.folder)), cls.gatherer.url, cls.gatherer.token_file) for nonce in (1, 2)]
        for host in cls.hosts:
            cls.addClassCleanup(host.close)
            host.put(3)
        cls.hosts[0].put("end")
        await_condition(lambda: cls.cluster.sql("SELECT COUNT(*) FROM nanwatch.run WHERE ended") == [["1"]]
                        and cls.cluster.sql("SELECT COUNT(*) FROM nanwatch.run") == [["2"]]
                        and all(len(host.arrived(cls.cluster)) == 3 for host in cls.hosts), "all of it arrives")
        steps = [otlp.step(n, otlp.number(1, n), run=RUNS[1], rank=2, job="train") for n in range(1, 40)]
        cls.gatherer.send(otlp.request(steps))

    def environment(self, **more):
        return {**self.hosts[0].environment(), "NANWATCH_CONFIG": "", **more}

    def ask(self, *words, token=True, **environment):
        fleet = ["--fleet", self.gatherer.url, *(["--token-file", self.gatherer.token_file] if token else [])]
        return subprocess.run([NANWATCH, *words, *fleet], env=self.environment(**environment), capture_output=True, text=True, timeout=120)


class Asking(Hosts):
    def test_ps_lists_the_runs_of_all_hosts(self):
        said = self.ask("ps")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertRegex(said.stdout, r"RUN +JOB +RANK +HOST:PID")
        for words in (r"00000000 +train +1/2 +host1:.* ended ", r"00000000 +train +2/2 +host2:"):
            self.assertRegex(said.stdout, words)
        document = json.loads(self.ask("ps", "--json").stdout)
        self.assertEqual((document["schema"], {run["id"]: run["live"] for run in document["runs"]}),
                         ("nanwatch.ps/1", {RUNS[0]: False, RUNS[1]: True}))

    def test_a_run_that_is_not_heard_of_is_silent(self):
        self.cluster.sql("UPDATE nanwatch.run SET received_at = received_at - INTERVAL '4 minutes'")
        try:
            await_condition(lambda: " silent " in self.ask("ps").stdout, "the answer is made anew")
        finally:
            self.cluster.sql("UPDATE nanwatch.run SET received_at = received_at + INTERVAL '4 minutes'")
        await_condition(lambda: " silent " not in self.ask("ps").stdout, "the answer is made anew")

    def test_top_shows_what_runs(self):
        said = self.ask("top", "--once")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertIn("fleet at " + self.gatherer.url, said.stdout)
        document = json.loads(self.ask("top", "--json").stdout)
        self.assertEqual([(run["id"], run["host"], run["rank"]) for run in document["runs"]], [(RUNS[1], "host2", 2)])

    def test_tail_has_the_findings_of_all_hosts_and_follows(self):
        said = self.ask("tail", "train", "--json")
        self.assertEqual(said.returncode, 0, said.stderr)
        lines = [json.loads(line) for line in said.stdout.splitlines()]
        self.assertEqual({line["run"] for line in lines}, set(RUNS))
        newest = self.ask("tail")
        self.assertEqual((newest.returncode, len(newest.stdout.splitlines()) > 0), (0, True))
        follower = subprocess.Popen([NANWATCH, "tail", "-f", "train", "--json", "--fleet", self.gatherer.url, "--token-file", self.gatherer.token_file],
                                    env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        for _ in lines:
            follower.stdout.readline()
        self.hosts[1].put(1)
        self.assertEqual(json.loads(follower.stdout.readline())["run"], RUNS[1])
        follower.kill()
        follower.communicate(timeout=60)

    def test_report_writes_a_page_of_all_ranks(self):
        page = self.folder / "page.html"
        said = self.ask("report", "train", "--html", page)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("wrote", said.stderr)
        text = page.read_text()
        data = json.loads(re.search(r'id="page-data"[^>]*>(.*?)</script>', text, re.S)[1])
        self.assertEqual((data["schema"], data["job"], data["live"]), ("nanwatch.page/1", "train", True))
        self.assertEqual(self.ask("report", "--json").returncode, 0)  # the job that began last
        refused = self.ask("report", "train", "--stats")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--fleet none", refused.stderr)

    def test_the_configuration_may_name_the_gatherer(self):
        home = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (home / "nanwatch.toml").write_text(f'[fleet]\nurl = "{self.gatherer.url}"\ntoken_file = "{self.gatherer.token_file}"\n')
        environment = self.environment(NANWATCH_CONFIG=str(home / "nanwatch.toml"))

        def ps(*words):
            return subprocess.run([NANWATCH, "ps", *words], env=environment, capture_output=True, text=True, timeout=60)
        self.assertIn("host2", ps().stdout)
        self.assertNotIn("HOST:PID", ps("--fleet", "none").stdout)
        elsewhere = ps("--fleet", "https://gather.invalid")
        self.assertEqual(elsewhere.returncode, 2)
        self.assertIn("is for " + self.gatherer.url, elsewhere.stderr)

    def test_without_its_token_and_without_a_gatherer_it_says_why(self):
        for words in (["ps"], ["top", "--once"], ["tail", "train"], ["report", "train", "--html", "-"]):
            refused = self.ask(*words, token=False)
            self.assertEqual((refused.returncode, "401" in refused.stderr), (1, True), (words, refused.stderr))


class Pages(Hosts):
    """`nanwatch serve --fleet`."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = subprocess.Popen([NANWATCH, "serve", "--listen", "127.0.0.1:0", "--fleet", cls.gatherer.url, "--fleet-token-file",
                                       cls.gatherer.token_file], env={**cls.hosts[0].environment(), "NANWATCH_CONFIG": ""},
                                      stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.end)
        cls.port = int(re.search(r":(\d+)/", cls.server.stderr.readline())[1])

    @classmethod
    def end(cls):
        cls.server.terminate()
        cls.server.communicate(timeout=60)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())
        finally:
            connection.close()

    def test_pages_are_those_of_the_fleet(self):
        status, text, headers = self.get("/")
        self.assertEqual(status, 200)
        self.assertIn("nonce-", headers["Content-Security-Policy"])
        document = json.loads(self.get("/api/v1/runs")[1])
        self.assertEqual((document["schema"], [run["id"] for run in document["runs"]]), ("nanwatch.runs/1", RUNS))
        self.assertIn(self.gatherer.url, document["about"])
        for name in (RUNS[0], "train", "tra"):
            status, text, _ = self.get(f"/runs/{name}")
            self.assertEqual(status, 200, text)
            self.assertIn(f'data-renew-from="/api/v1/runs/{name}/page"', text)
        self.assertEqual(json.loads(self.get("/api/v1/runs/train/page")[1])["job"], "train")
        self.assertEqual(json.loads(self.get("/api/v1/runs/train/verdict")[1])["fleet"]["ranks_expected"], 2)
        self.assertEqual(self.get("/healthz")[:2], (200, "ok\n"))

    def test_what_is_not_there_is_said(self):
        for path, words in (("/runs/nobody", "no job of that id"), ("/metrics", "nanwatch-gather"), ("/runs/00", "several jobs|no job|there is nothing")):
            status, text, _ = self.get(path)
            self.assertIn(status, (404,) if path != "/runs/00" else (200, 404))
            if status == 404:
                self.assertRegex(text, words)

    def test_ranks_that_are_not_heard_of_stand_on_the_page(self):
        self.gatherer.send(otlp.request([otlp.run(90, 16, name="00000000000000f1", job="large")], otlp.DAEMON.replace("0f8f", "2f8f")))
        await_condition(lambda: self.get("/runs/large")[0] == 200, "it arrives")
        remarks = json.loads(self.get("/api/v1/runs/large/page")[1])["remarks"]
        self.assertEqual(len([text for text in remarks if "15 of 16 ranks were not heard of" in text]), 1, remarks)
        self.cluster.sql("DELETE FROM nanwatch.run WHERE job = 'large'")

    def test_a_gatherer_that_is_away_is_a_bad_gateway(self):
        server = subprocess.Popen([NANWATCH, "serve", "--listen", "127.0.0.1:0", "--fleet", self.gatherer.url], stderr=subprocess.PIPE, text=True,
                                  env=self.environment())
        try:
            connection = http.client.HTTPConnection("127.0.0.1", int(re.search(r":(\d+)/", server.stderr.readline())[1]), timeout=60)
            connection.request("GET", "/api/v1/runs")
            answer = connection.getresponse()
            self.assertEqual((answer.status, b"401" in answer.read()), (502, True))
            connection.close()
        finally:
            server.terminate()
            server.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
