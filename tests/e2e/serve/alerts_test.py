# SPDX-License-Identifier: Apache-2.0
"""A NaN in a real job reaches a webhook: through `nanwatch serve`, Debian's Prometheus with our rules, and its Alertmanager."""
import http.server
import json
import pathlib
import queue
import shutil
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))
from serve_test import Server
from watched_job import Workplace, await_condition

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE.parents[2] / "tools/serve/alerts/nanwatch.rules.yml"


def listening_port(process):
    """The TCP port that the process listens on, None while there is none: it was told to take any."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{process.pid}/fd").glob("*"):
        try:
            inodes.add(str(link.readlink()))
        except OSError:
            pass  # closed meanwhile
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                return int(fields[1].split(":")[1], 16)
    return None


class Webhook(http.server.ThreadingHTTPServer):
    """Keeps what it is sent."""

    def __init__(self):
        self.alerts = queue.Queue()
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            for alert in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]:
                self.server.alerts.put(alert)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass


@unittest.skipUnless(shutil.which("prometheus") and shutil.which("prometheus-alertmanager"), "Prometheus or its Alertmanager is not installed")
class Alerts(unittest.TestCase):
    def start(self, *command):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def await_port(self, process, what):
        await_condition(lambda: listening_port(process) is not None, f"{what} listens")
        return listening_port(process)

    def test_a_nan_in_a_job_reaches_a_webhook(self):
        workplace = Workplace()
        self.addCleanup(workplace.close)
        gate = workplace.folder / "gate"
        self.addCleanup(gate.touch)
        job = workplace.run_watched([sys.executable, HERE / "programs/goes_nan.py", gate])
        server = Server(workplace)
        self.addCleanup(server.stop)
        webhook = Webhook()
        self.addCleanup(webhook.server_close)
        self.addCleanup(webhook.shutdown)
        folder = workplace.folder
        (folder / "alertmanager.yml").write_text(json.dumps({
            "route": {"receiver": "hook", "group_wait": "1s", "group_interval": "1s", "group_by": ["alertname"]},
            "receivers": [{"name": "hook", "webhook_configs": [{"url": f"http://127.0.0.1:{webhook.server_port}/"}]}]}))
        manager = self.start("prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/alerts",
                             "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
        manager_port = self.await_port(manager, "the Alertmanager")
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{manager_port}"]}]}]},
            "scrape_configs": [{"job_name": "nanwatch", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}]}))
        self.start("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/series", "--web.listen-address=127.0.0.1:0")
        fired = {}
        while "NanwatchAnomaly" not in fired or "NanwatchLossNotFinite" not in fired:
            alert = webhook.alerts.get(timeout=120)
            fired[alert["labels"]["alertname"]] = alert
        alert = fired["NanwatchAnomaly"]
        self.assertEqual((alert["status"], alert["labels"]["class"], alert["labels"]["phase"]), ("firing", "produce", "forward"))
        self.assertIn("nanwatch report " + alert["labels"]["job"], alert["annotations"]["description"])
        self.assertNotEqual(alert["labels"]["job"], "nanwatch", "the job is the training's, not the scrape's")
        # It is over when the job is.
        gate.touch()
        self.assertEqual(job.status(), 0)
        while alert["status"] != "resolved" or alert["labels"]["alertname"] != "NanwatchAnomaly":
            alert = webhook.alerts.get(timeout=400)


if __name__ == "__main__":
    unittest.main()
