# SPDX-License-Identifier: Apache-2.0
"""Several tenants at one gatherer: each by its token, none sees or spoils anything of another."""
import json
import pathlib
import subprocess
import tempfile
import unittest

import otlp
from cluster import GATHER, Gatherer, maintain
from fleet_case import FleetCase
from host import NANWATCH, Host

TOKENS = {"red": "red0123456789abcdef0", "blue": "blue0123456789abcdef"}
OLD_RED = "old-red-0123456789ab"


class Tenants(FleetCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = cls.folder / "tenants"
        cls.file.write_text(f"# name token\nred {TOKENS['red']}\n\nred {OLD_RED}\nblue {TOKENS['blue']}\n")
        cls.file.chmod(0o600)
        cls.gatherers = [Gatherer(cls.cluster, cls.folder, "--tenants", cls.file, "--read-database", cls.cluster.connection("asker"), token=False)
                         for _ in range(2)]
        for gatherer in cls.gatherers:
            cls.addClassCleanup(gatherer.stop)

    def setUp(self):
        self.empty_tables()
        self.cluster.sql("TRUNCATE nanwatch.daemon")
        self.daemon = otlp.DAEMON[:-4] + f"{self.number():04x}"

    numbers = iter(range(1, 1000))

    @classmethod
    def number(cls):
        return next(cls.numbers)

    def send(self, token, records, daemon=None, gatherer=0):
        return self.gatherers[gatherer].send(otlp.request(records, daemon or self.daemon), Authorization=f"Bearer {TOKENS.get(token, token)}")

    def ask(self, token, path):
        status, body, _ = self.gatherers[0].ask("GET", path, Authorization=f"Bearer {TOKENS.get(token, token)}")
        return status, body

    def rows(self):
        return self.cluster.sql("SELECT tenant, sequence FROM nanwatch.fact ORDER BY tenant, sequence")

    def test_rows_are_of_the_tenant_whose_token_they_came_with(self):
        other = self.daemon.replace("0f8f", "1f8f")
        for token, daemon, sequence in (("red", self.daemon, 1), (OLD_RED, self.daemon, 2), ("blue", other, 1)):
            self.assertEqual(self.send(token, [otlp.step(sequence)], daemon)[:2], (200, b""))
        self.assertEqual(self.rows(), [["blue", "1"], ["red", "1"], ["red", "2"]])
        self.assertEqual(self.send("no token of anybody", [otlp.step(3)])[0], 401)

    def test_nobody_hears_which_rows_another_has(self):
        self.assertEqual(self.send("red", [otlp.step(1)])[0], 200)
        for token, sequence, said in (("red", 2, "missing"), ("red", 1, None), ("blue", 2, None), ("blue", 1, None)):
            _, _, headers = self.gatherers[0].send(otlp.request([]), Authorization=f"Bearer {TOKENS[token]}",
                                                   **otlp.held(sequence, daemon=self.daemon))
            self.assertEqual(headers.get("nanwatch-held-row"), said, (token, sequence))

    def test_the_daemon_of_another_is_refused_whichever_gatherer_is_asked(self):
        self.assertEqual(self.send("red", [otlp.run(1), otlp.step(2)])[0], 200)
        for gatherer in (0, 1, 0):
            status, body, _ = self.send("blue", [otlp.run(9, 64), otlp.step(3)], gatherer=gatherer)
            self.assertEqual((status, b"another tenant" in body), (403, True))
        self.assertEqual(self.rows(), [["red", "2"]])
        self.assertEqual(self.cluster.sql("SELECT tenant, sequence, world_size FROM nanwatch.run"), [["red", "1", "2"]])
        self.assertEqual(self.gatherers[0].log().count("belong to another tenant"), 1)
        self.assertEqual(self.send("red", [otlp.step(3)], gatherer=1)[0], 200)

    def test_rows_of_others_in_one_transaction_are_kept(self):
        other = self.daemon.replace("0f8f", "1f8f")
        self.assertEqual(self.send("red", [otlp.step(1)])[0], 200)
        both = otlp.request([otlp.step(5)], other) + otlp.request([otlp.step(6)], self.daemon)
        status, _, _ = self.gatherers[0].send(both, Authorization=f"Bearer {TOKENS['blue']}")
        self.assertEqual(status, 403)
        self.assertEqual(self.rows(), [["blue", "5"], ["red", "1"]])

    def test_who_asks_sees_only_its_own(self):
        other = self.daemon.replace("0f8f", "1f8f")
        name = "00000000000000ac"
        self.assertEqual(self.send("red", [otlp.run(1, 1, True, job="secret"), otlp.run(2, 3, True, name=name, job="train")])[0], 200)
        self.assertEqual(self.send("blue", [otlp.run(1, 1, True, job="train")], other)[0], 200)
        for tenant, jobs in (("red", {"secret", "train"}), ("blue", {"train"})):
            status, body = self.ask(tenant, "/api/v1/jobs")
            self.assertEqual((status, {job["job"] for job in json.loads(body)["jobs"]}), (200, jobs))
        # Asked for by its owner first: what is kept is for the owner, too.
        self.assertEqual([self.ask(tenant, "/api/v1/jobs/secret/verdict")[0] for tenant in ("red", "blue")], [200, 404])
        for tenant, ranks in (("red", 3), ("blue", 1)):
            document = json.loads(self.ask(tenant, "/api/v1/jobs/train/verdict")[1])
            self.assertEqual((len(document["runs"]), document["fleet"]["ranks_expected"]), (1, ranks))

    def test_hosts_stand_out_by_what_is_ones_own(self):
        for number, job in enumerate(("train", "tune")):
            name = f"{number + 1:016x}"
            origin = otlp.piece(2, "produce") + otlp.piece(5, "aten::log") + otlp.number(12, 4) + otlp.piece(21, name)
            incident = otlp.piece(1, "error") + otlp.piece(2, origin)
            rows = [otlp.run(10 * number + 1, 1, True, name=name, job=job), otlp.step(10 * number + 2, incident, otlp.INCIDENT, job=job, run=name)]
            self.assertEqual(self.send("red", rows)[0], 200)
        hosts = {tenant: [one["host"] for one in json.loads(self.ask(tenant, "/api/v1/hosts")[1])["hosts"]] for tenant in TOKENS}
        self.assertEqual(hosts, {"red": ["host7"], "blue": []})

    def test_a_forwarder_keeps_its_rows_until_its_token_is_right(self):
        token = self.folder / "token-of-host"
        token.write_text(TOKENS["red"] + "\n")
        token.chmod(0o600)
        host = Host(1, pathlib.Path(tempfile.mkdtemp(dir=self.folder)), self.gatherers[0].url, token)
        self.addCleanup(host.close)
        host.kill_forwarder()

        def forward():
            host.put(1)
            return subprocess.run([NANWATCH, "forward", "--once", "--to", self.gatherers[0].url, "--token-file", token], env=host.environment(),
                                  capture_output=True, text=True, timeout=60)
        self.assertEqual(forward().returncode, 0)
        token.write_text(TOKENS["blue"] + "\n")
        refused = forward()
        self.assertEqual(refused.returncode, 1)
        self.assertIn("belongs to another tenant", refused.stderr)
        token.write_text(TOKENS["red"] + "\n")
        self.assertEqual(forward().returncode, 0)
        self.assertEqual(host.arrived(self.cluster), [0, 1, 2])

    def test_a_file_of_tenants_that_is_wrong_is_said_without_its_tokens(self):
        wrong = self.folder / "wrong"
        for text, mode, words in ((f"red {TOKENS['red']}", 0o644, "chmod 600"), ("", 0o600, "no tenant"), ("red short", 0o600, ":1:"),
                                  (f"red {TOKENS['red']}\nblue {TOKENS['red']}", 0o600, ":2: that token"), (f"a;b {TOKENS['red']}", 0o600, ":1:")):
            wrong.write_text(text + "\n")
            wrong.chmod(mode)
            said = subprocess.run([GATHER, "serve", "--database", self.cluster.connection("sender"), "--listen", "127.0.0.1:0", "--tenants", wrong],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(said.returncode, 1, text)
            self.assertIn(words, said.stderr)
            self.assertNotIn(TOKENS["red"], said.stderr)

    def test_who_has_no_row_left_is_forgotten_with_the_days(self):
        for sequence, daemon in ((1, self.daemon), (1, self.daemon.replace("0f8f", "1f8f"))):
            self.assertEqual(self.send("red", [otlp.run(sequence)] if daemon == self.daemon else [otlp.step(sequence)], daemon)[0], 200)
        self.cluster.sql("UPDATE nanwatch.daemon SET claimed_at = claimed_at - INTERVAL '31 days'")
        maintain(self.cluster)
        self.assertEqual(self.cluster.sql("SELECT daemon FROM nanwatch.daemon"), [[self.daemon]])


if __name__ == "__main__":
    unittest.main()
