# SPDX-License-Identifier: Apache-2.0
"""From the outboxes of daemons to the fleet's database: whatever is killed on the way, nothing is lost and nothing doubled."""
import http.server
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

from balancer import Balancer
from cluster import Gatherer, await_condition
from fleet_case import FleetCase
from host import NANWATCH, Host, fields

# Numbers of fields: of RunState, RunFacts and OutboxLoss.
RECORDS_DROPPED, FINDINGS_SENT, REFUSED = 6, 11, 6


class OtherServer:
    """A web server that is no gatherer, and gives one answer to everything."""

    def __init__(self, status):
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Chain(FleetCase):
    def setUp(self):
        self.empty_tables()
        self.gatherer = Gatherer(self.cluster, self.folder)
        self.addCleanup(lambda: self.gatherer.stop())
        self.balancer = Balancer(self.gatherer.port)
        self.addCleanup(self.balancer.close)

    def host(self, nonce):
        host = Host(nonce, pathlib.Path(tempfile.mkdtemp(dir=self.folder)), self.balancer.url, self.gatherer.token_file)
        self.addCleanup(host.close)
        return host

    def arrived(self, host):
        return host.arrived(self.cluster)

    def await_all(self, host, count):
        await_condition(lambda: self.cluster.sql(f"SELECT COUNT(*) FROM nanwatch.fact WHERE kind = 2 AND run = '{host.nonce:016x}'") >= [[str(count)]]
                        and len(self.arrived(host)) >= count, f"{count} records of {host.nonce} arrive")
        self.assertEqual(self.arrived(host), list(range(count)))

    def new_gatherer(self):
        self.gatherer = Gatherer(self.cluster, self.folder)
        self.balancer.target = self.gatherer.port

    def test_what_a_daemon_commits_arrives_and_its_end(self):
        host = self.host(1)
        self.await_all(host, host.put(20))
        host.put("end")
        await_condition(lambda: self.cluster.sql("SELECT run, job, rank, world_size, host, ended FROM nanwatch.run") ==
                        [["0000000000000001", "train", "1", "2", "host1", "t"]], "the end arrives")

    def test_nothing_is_lost_or_doubled_whatever_is_killed(self):
        hosts = [self.host(1), self.host(2)]
        first = hosts[0]

        def meanwhile(deed, undo):
            for host in hosts:
                host.begin(300)
            deed()
            counts = [host.finish() for host in hosts]
            undo()
            # Or the pause of a sender that fails grows from one fault to the next.
            for host, count in zip(hosts, counts):
                self.await_all(host, count)

        meanwhile(first.kill_forwarder, first.start_forwarder)
        meanwhile(self.gatherer.kill, self.new_gatherer)
        meanwhile(self.cluster.kill, self.cluster.start_again)
        meanwhile(self.balancer.cut, lambda: setattr(self.balancer, "target", self.gatherer.port))
        first.begin(10_000)  # below what an outbox keeps of a run
        await_condition(lambda: len(self.arrived(first)) > 1200, "some more arrive")
        first.kill_daemon()
        first.start_daemon()
        for host in hosts:
            count = host.put(10)
            host.put("end")
            self.await_all(host, count)
        await_condition(lambda: self.cluster.sql("SELECT COUNT(*) FROM nanwatch.run WHERE ended") == [["2"]], "both ends arrive")
        self.assertEqual(self.cluster.sql("SELECT COUNT(DISTINCT daemon) FROM nanwatch.fact"), [["2"]])

    def test_a_forwarder_may_be_called_now_and_then(self):
        host = self.host(1)
        host.kill_forwarder()
        host.put(5)
        send = [NANWATCH, "forward", "--once", "--to", self.balancer.url]
        refused = subprocess.run(send, env=host.environment(), capture_output=True, text=True)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("rows wait until they can be sent: the gatherer answered 401", refused.stderr)
        sent = subprocess.run([*send, "--token-file", self.gatherer.token_file], env=host.environment(), capture_output=True, text=True)
        self.assertEqual((sent.returncode, sent.stderr), (0, ""))
        self.assertEqual(self.arrived(host), [0, 1, 2, 3, 4])

    def test_metrics_say_what_waits_and_since_when(self):
        host = self.host(1)
        host.kill_forwarder()
        host.put(5)
        file = self.folder / "forward.prom"

        def metrics(url):
            subprocess.run([NANWATCH, "forward", "--once", "--to", url, "--token-file", self.gatherer.token_file, "--metrics", file],
                           env=host.environment(), capture_output=True, timeout=60)
            return {line.split()[0]: float(line.split()[1]) for line in file.read_text().splitlines() if not line.startswith("#")}
        with socket.create_server(("127.0.0.1", 0)) as closed:
            _, port = closed.getsockname()
        waits = metrics(f"http://127.0.0.1:{port}")
        self.assertGreaterEqual(waits["nanwatch_forward_queue_rows"], 5)
        self.assertGreater(waits["nanwatch_forward_lag_seconds"], 0)
        self.assertEqual((waits["nanwatch_forward_requests_failed_total"], waits["nanwatch_forward_rows_acknowledged_total"]), (1, 0))
        sent = metrics(self.balancer.url)
        self.assertEqual((sent["nanwatch_forward_queue_rows"], sent["nanwatch_forward_lag_seconds"]), (0, 0))
        self.assertEqual(sent["nanwatch_forward_rows_acknowledged_total"], waits["nanwatch_forward_queue_rows"])
        self.assertGreater(sent["nanwatch_forward_taken_timestamp_seconds"], 1e9)

    def test_another_web_server_takes_no_row_away(self):
        host = self.host(1)
        host.kill_forwarder()
        host.put(5)
        for status in (200, 204, 400, 404, 413, 500):
            with OtherServer(status) as other:
                sent = subprocess.run([NANWATCH, "forward", "--once", "--to", other.url], env=host.environment(), capture_output=True, text=True,
                                      timeout=60)
            self.assertEqual(sent.returncode, 1, (status, sent.stderr))
            self.assertIn("no nanwatch-gather", sent.stderr)
        sent = subprocess.run([NANWATCH, "forward", "--once", "--to", self.balancer.url, "--token-file", self.gatherer.token_file],
                              env=host.environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual((sent.returncode, sent.stderr), (0, ""))
        self.assertEqual(self.arrived(host), [0, 1, 2, 3, 4])

    def test_an_empty_answer_of_another_web_server_is_no_verdict(self):
        with OtherServer(200) as other:
            asked = subprocess.run([NANWATCH, "report", "train", "--fleet", other.url, "--check"], env=self.host(1).environment(), capture_output=True,
                                   text=True, timeout=60)
        self.assertEqual((asked.returncode, asked.stdout), (1, ""))
        self.assertIn("is no gatherer", asked.stderr)

    def test_rows_that_are_rejected_are_no_success(self):
        host = self.host(1)
        host.kill_forwarder()
        host.put(5)
        self.cluster.sql("ALTER TABLE nanwatch.fact ADD CONSTRAINT none_of_these CHECK (kind <> 2)")
        self.addCleanup(self.cluster.sql, "ALTER TABLE nanwatch.fact DROP CONSTRAINT none_of_these")
        sent = subprocess.run([NANWATCH, "forward", "--once", "--to", self.balancer.url, "--token-file", self.gatherer.token_file],
                              env=host.environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(sent.returncode, 1, sent.stderr)
        self.assertIn("5 rows were rejected for good", sent.stderr)
        # The daemon takes it over, and the run's next state says so: none of them is waited for.
        forward = [NANWATCH, "forward", "--once", "--to", self.balancer.url, "--token-file", self.gatherer.token_file]

        def state():
            host.put("end")
            subprocess.run(forward, env=host.environment(), capture_output=True, timeout=60)
            facts = dict(fields(bytes.fromhex(self.cluster.sql("SELECT encode(body, 'hex') FROM nanwatch.run")[0][0])))
            return dict(fields(facts[2])).get(RECORDS_DROPPED, 0), facts.get(FINDINGS_SENT, 0)
        await_condition(lambda: state() == (5, 0), "the state says what was refused")
        loss = self.cluster.sql("SELECT encode(body, 'hex') FROM nanwatch.fact WHERE kind = 6 ORDER BY sequence DESC")
        self.assertEqual(dict(fields(bytes.fromhex(loss[0][0]))).get(REFUSED), 5)

    def test_ctrl_c_ends_it_while_nobody_answers(self):
        host = self.host(1)
        host.kill_forwarder()
        host.put(1)
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            _, port = deaf.getsockname()
            forwarder = subprocess.Popen([NANWATCH, "forward", "--to", f"http://127.0.0.1:{port}"], env=host.environment(), stderr=subprocess.PIPE,
                                         text=True)
            connection, _ = deaf.accept()
            with connection:
                self.assertIn(b"POST /v1/logs", connection.recv(65536))
                forwarder.send_signal(signal.SIGINT)
                # A request may take 60 s.
                said = forwarder.communicate(timeout=20)[1]
            self.assertEqual((forwarder.returncode, said), (0, ""))

    def test_a_token_goes_nowhere_by_mistake(self):
        host = self.host(1)
        host.kill_forwarder()
        host.put(1)
        home = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (home / "nanwatch.toml").write_text(f'[forward]\nto = "{self.balancer.url}"\ntoken_file = "{self.gatherer.token_file}"\n')
        environment = {**host.environment(), "NANWATCH_CONFIG": str(home / "nanwatch.toml")}

        def forward(*arguments):
            return subprocess.run([NANWATCH, "forward", "--once", *arguments], env=environment, capture_output=True, text=True, timeout=60)

        elsewhere = forward("--to", "https://gather.invalid")
        self.assertEqual(elsewhere.returncode, 2)
        self.assertIn("is for " + self.balancer.url, elsewhere.stderr)
        self.assertEqual(forward().returncode, 0)
        (home / "nanwatch.toml").write_text(f'[forward]\nto = "http://nobody.invalid"\ntoken_file = "{self.gatherer.token_file}"\n')
        host.put(1)
        self.assertIn("plain http", forward().stderr)

    def test_a_libcurl_that_cannot_be_loaded_is_said_with_the_reason(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "libcurl.so.4").touch()
        said = subprocess.run([NANWATCH, "forward", "--once", "--to", self.balancer.url], capture_output=True, text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": str(folder), "NANWATCH_STATE_DIR": str(folder), "NANWATCH_DIR": str(folder)})
        self.assertEqual(said.returncode, 1)
        self.assertRegex(said.stderr, r"file too short.*apt-get install libcurl4")

    def test_wrong_use_is_said(self):
        host = self.host(1)
        self.await_all(host, host.put(1))
        for arguments, status, words in ((["--to", "gather.example.org"], 2, "is no address"),
                                         (["--to", self.balancer.url], 1, "another 'nanwatch forward' sends"),
                                         ([], 2, "--to")):
            said = subprocess.run([NANWATCH, "forward", *arguments], env=host.environment(), capture_output=True, text=True)
            self.assertEqual(said.returncode, status, said.stderr)
            self.assertIn(words, said.stderr)


if __name__ == "__main__":
    unittest.main()
