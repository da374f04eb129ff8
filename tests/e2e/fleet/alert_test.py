# SPDX-License-Identifier: Apache-2.0
"""The first anomaly of a launch reaches a webhook once, through Debian's Alertmanager, and its end does."""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
import alerts_test
import otlp
import seeded_test
from balancer import Balancer
from cluster import GATHER, Gatherer, await_condition
from fleet_case import FleetCase

MANAGER = shutil.which("prometheus-alertmanager")


def bad_job():
    """A job of a known culprit: what is known of it, and all that its hosts send, ends included."""
    jobs = seeded_test.Jobs(argparse.Namespace(first=1, count=12, ranks_max=64))
    try:
        told = next(one for one in jobs.told if one["culprits"] and one["is_decided"] and not one["silent"])
        return told, jobs.requests(told)
    finally:
        jobs.close()


class Alerter:
    def __init__(self, cluster, url, log):
        self._log_path = log
        with open(log, "w") as file:
            self._process = subprocess.Popen([GATHER, "alert", "--database", cluster.connection("alerter"), "--alertmanager", url,
                                              "--pages", "https://pages.example.org", "--hold", "3"], stderr=file)

    def log(self):
        return self._log_path.read_text()

    def stop(self):
        self._process.terminate()
        return self._process.wait(60)


@unittest.skipUnless(MANAGER, "Prometheus' Alertmanager is not installed")
class Alert(FleetCase):
    def setUp(self):
        self.empty_tables()
        self.cluster.sql("TRUNCATE nanwatch.alert, nanwatch.daemon")
        self.gatherer = Gatherer(self.cluster, self.folder)
        self.addCleanup(self.gatherer.stop)
        self.webhook = alerts_test.Webhook()
        self.addCleanup(self.webhook.server_close)
        self.addCleanup(self.webhook.shutdown)
        self.managers = 0

    def start_manager(self):
        self.managers += 1
        folder = self.folder / f"manager-{self.id()}-{self.managers}"
        folder.mkdir()
        (folder / "alertmanager.yml").write_text(json.dumps({
            "route": {"receiver": "hook", "group_wait": "0s", "group_interval": "1s", "group_by": ["alertname", "job", "launch"]},
            "receivers": [{"name": "hook", "webhook_configs": [{"url": f"http://127.0.0.1:{self.webhook.server_port}/"}]}]}))
        manager = subprocess.Popen([MANAGER, f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/data",
                                    "--web.listen-address=127.0.0.1:0", "--cluster.listen-address="], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(manager.wait)
        self.addCleanup(manager.kill)
        await_condition(lambda: alerts_test.listening_port(manager), "the Alertmanager listens")
        return alerts_test.listening_port(manager)

    def start_alerter(self, port, name="alert.log"):
        alerter = Alerter(self.cluster, f"http://127.0.0.1:{port}", self.folder / name)
        self.addCleanup(alerter.stop)
        return alerter

    def send_all(self, requests, gatherer=None, **headers):
        for request in requests:
            self.assertEqual((gatherer or self.gatherer).send(request, **headers)[:2], (200, b""))

    def send_bad(self, told, requests, **to):
        """All of a job, and that one of its hosts concluded something."""
        self.send_all(requests, **to)
        [[daemon, run]] = self.cluster.sql(f"SELECT daemon, run FROM nanwatch.run WHERE job = '{told['job']}' LIMIT 1")
        origin = otlp.piece(2, "produce") + otlp.piece(5, "aten::log") + otlp.number(12, 4) + otlp.piece(21, run)
        incident = otlp.step(10**9 + 7, otlp.piece(1, "critical") + otlp.piece(2, origin), otlp.INCIDENT, job=told["job"], run=run)
        self.send_all([otlp.request([incident], daemon)], **to)

    def next(self, timeout=120):
        return self.webhook.alerts.get(timeout=timeout)

    def test_an_anomaly_is_told_once_and_its_end(self):
        port = self.start_manager()
        told, requests = bad_job()
        # Two of them say no more than one. A job that goes well says nothing.
        alerters = [self.start_alerter(port, f"alert{number}.log") for number in range(2)]
        self.send_all([otlp.request([otlp.run(40, 1, True, name="00000000000000cc", job="well")])])
        self.send_bad(told, requests)
        alert = self.next()
        self.assertEqual((alert["status"], alert["labels"]["alertname"], alert["labels"]["job"], alert["labels"]["severity"]),
                         ("firing", "NanwatchAnomaly", told["job"], "critical"))
        self.assertIn(told["job"], alert["annotations"]["summary"])
        self.assertTrue(alert["generatorURL"].startswith(f"https://pages.example.org/runs/{told['job']}@"), alert["generatorURL"])
        # More of the same changes nothing.
        self.send_bad(told, requests)
        ended = self.next()
        self.assertEqual((ended["status"], ended["labels"]), ("resolved", alert["labels"]))
        await_condition(lambda: self.cluster.sql("SELECT settled FROM nanwatch.alert") == [["t"]], "it is settled")
        self.assertTrue(self.webhook.alerts.empty())
        self.assertEqual([alerter.log().count("\n") for alerter in alerters], [1, 1], [alerter.log() for alerter in alerters])

    def test_it_fires_until_no_run_goes_on(self):
        told, requests = bad_job()
        self.send_bad(told, requests)

        def state(ended):
            more = otlp.piece(2, otlp.number(17, ended)).hex()  # the last word of a message counts
            self.cluster.sql(f"UPDATE nanwatch.run SET received_at = CURRENT_TIMESTAMP, body = body || decode('{more}', 'hex')")
        state(False)
        self.start_alerter(self.start_manager())
        self.assertEqual(self.next()["status"], "firing")
        # Longer than an alert fires at least, and than ends are looked for.
        await_condition(lambda: self.cluster.sql("SELECT CURRENT_TIMESTAMP > begun_at + INTERVAL '15 seconds' FROM nanwatch.alert") == [["t"]], "it goes on")
        self.assertEqual(self.cluster.sql("SELECT ended_at IS NULL FROM nanwatch.alert"), [["t"]])
        state(True)
        self.assertEqual(self.next()["status"], "resolved")

    def test_a_manager_that_is_away_hears_of_it_later(self):
        told, requests = bad_job()
        balancer = Balancer(None)
        self.addCleanup(balancer.close)
        alerter = self.start_alerter(int(balancer.url.rsplit(":", 1)[1]))
        self.send_bad(told, requests)
        await_condition(lambda: alerter.log().count("\n") == 2 and self.cluster.sql("SELECT COUNT(*) FROM nanwatch.alert") == [["1"]],
                        "it is said that nobody answers")
        balancer.target = self.start_manager()
        self.assertEqual(self.next()["labels"]["job"], told["job"])
        await_condition(lambda: "alerts are taken again" in alerter.log(), "it says so")

    def test_tenants_are_labels(self):
        tenants = self.folder / "tenants"
        tenants.write_text("red red0123456789abcdef0\n")
        tenants.chmod(0o600)
        gatherer = Gatherer(self.cluster, self.folder, "--tenants", tenants, token=False)
        self.addCleanup(gatherer.stop)
        self.start_alerter(self.start_manager())
        self.send_bad(*bad_job(), gatherer=gatherer, Authorization="Bearer red0123456789abcdef0")
        self.assertEqual(self.next()["labels"]["tenant"], "red")

    def test_who_alerts_may_not_change_rows(self):
        for statement in ("DELETE FROM nanwatch.fact", "INSERT INTO nanwatch.daemon VALUES (NULL, '')", "DELETE FROM nanwatch.alert"):
            with self.assertRaises(PermissionError, msg=statement):
                self.cluster.sql(statement, "alerter")


if __name__ == "__main__":
    unittest.main()
