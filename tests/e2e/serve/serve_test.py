# SPDX-License-Identifier: Apache-2.0
"""`nanwatch serve` and `nanwatch export` with a real job: what they answer, whom, and what they refuse."""
import http.client
import importlib.util
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "promises"), str(pathlib.Path(__file__).resolve().parents[2] / "daemon/report/page")]
import browser
from watched_job import NANWATCH, PromiseTest, await_condition

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/goes_nan.py"
TOKEN = "0123456789abcdef0123"


class Server:
    """`nanwatch serve` on a port that the kernel chose."""

    def __init__(self, workplace, *options, listen="127.0.0.1:0", **environment):
        self._process = subprocess.Popen([NANWATCH, "serve", "--listen", listen, *options], env=workplace.watched | environment, stderr=subprocess.PIPE, text=True)
        said = self._process.stderr.readline()
        self.port = int(re.search(r":(\d+)/", said)[1])

    def get(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())
        finally:
            connection.close()

    def status(self):
        """What the kernel says of it, by name."""
        return dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{self._process.pid}/status").read_text().splitlines())

    def descriptors(self):
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(60)
        self._process.stderr.close()
        return status


class Serve(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.gate = workplace.folder / "gate"
        cls.job = workplace.run_watched([sys.executable, PROGRAM, cls.gate], ["--stats", "2"])
        cls.server = Server(workplace)
        cls.addClassCleanup(cls.server.stop)
        await_condition(lambda: 'nanwatch_anomalies_total{' in cls.server.get("/metrics")[1], "the anomaly is in the metrics")
        cls.run_id = json.loads(cls.server.get("/api/v1/runs")[1])["runs"][0]["id"]

    @classmethod
    def tearDownClass(cls):
        cls.gate.touch()
        super().tearDownClass()

    def test_a_live_run_is_in_the_list_and_in_the_metrics(self):
        run = json.loads(self.server.get("/api/v1/runs")[1])["runs"][0]
        self.assertEqual((run["program"], run["live"], run["step"], run["job_anomalies"]), ("goes_nan.py", True, 12, 1), run)
        _, text, headers = self.server.get("/metrics", Accept="application/openmetrics-text")
        self.assertIn("application/openmetrics-text; version=1.0.0", headers["Content-Type"])
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertRegex(text, r'nanwatch_steps_total\{job="[^"]+",rank="0",run="' + self.run_id + r'"\} 12\n')
        self.assertRegex(text, r'nanwatch_anomalies_total\{job="[^"]+",rank="0",class="produce",phase="forward",layer=""\} 1\n')
        self.assertIn("nanwatch_run_live{", text)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_promtool_finds_nothing_wrong_with_the_metrics(self):
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.server.get("/metrics")[1], capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_the_verdict_is_that_of_the_report(self):
        served = json.loads(self.server.get(f"/api/v1/runs/{self.run_id}/verdict")[1])
        reported = json.loads(self.workplace.tool("report", self.run_id, "--json"))
        self.assertEqual(served["verdict"], "anomaly")
        self.assertEqual(served["incidents"], reported["incidents"])
        status, text, _ = self.server.get("/api/v1/runs/none-such/verdict")
        self.assertEqual((status, text), (404, "no run or job begins with that: /api/v1/runs lists them\n"))

    def test_health_is_told(self):
        self.assertEqual(self.server.get("/healthz")[:2], (200, "ok\n"))

    def test_a_database_that_cannot_be_read_is_not_one_without_runs(self):
        state, segments = self.workplace.folder / "spoilt", self.workplace.folder / "no-segments"
        for folder in (state, segments):
            folder.mkdir(mode=0o700)
        (state / "nanwatch.db").write_bytes(b"x" * 8192)
        server = Server(self.workplace, NANWATCH_STATE_DIR=str(state), NANWATCH_DIR=str(segments))
        self.addCleanup(server.stop)
        said = server.get("/healthz")[1].strip()
        self.assertRegex(said, "the database cannot be read: .*: move it away, or set NANWATCH_STATE_DIR to another directory$")
        for path in ("/healthz", "/runs/known", "/api/v1/runs/known/verdict"):
            self.assertEqual(server.get(path)[:2], (503, said + "\n"), path)
        self.assertEqual(json.loads(server.get("/api/v1/runs")[1])["database_error"], said)
        self.assertIn("nanwatch_database_readable 0\n", server.get("/metrics")[1])
        if browser.CHROMIUM:
            window = browser.Browser()
            self.addCleanup(window.close)
            window.shape()
            window.open(f"http://127.0.0.1:{server.port}/")
            self.assertEqual(window.evaluate("document.getElementById('runs').textContent"), said)
            self.assertEqual(window.complaints, [])

    def test_the_page_is_opened_when_that_is_asked_for(self):
        tools, opened, page = (self.workplace.folder / name for name in ("tools", "opened", "opened.html"))
        tools.mkdir()
        (tools / "xdg-open").write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
        (tools / "xdg-open").chmod(0o755)
        subprocess.run([NANWATCH, "report", self.run_id, "--html", page, "--open"], check=True, stderr=subprocess.DEVNULL,
                       env=self.workplace.watched | {"PATH": f"{tools}:{os.environ['PATH']}"})
        await_condition(opened.exists, "the page is opened")
        self.assertEqual(opened.read_text().strip(), str(page))

    def test_the_daemon_has_no_socket(self):
        daemon = int((self.workplace.segments / "daemon.lock").read_text().split()[0])
        open_files = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{daemon}/fd").iterdir()]
        self.assertTrue(any("nanwatch.db" in name for name in open_files), open_files)
        self.assertEqual([name for name in open_files if name.startswith("socket:")], [])

    def test_paths_that_are_none_are_not_found(self):
        for path in ("/nothing", "/runs/", "/runs/x/y", "/api/v1/runs/", f"/api/v1/runs/{self.run_id}/else", "/../etc/passwd", "//", "/runs/%00"):
            self.assertEqual(self.server.get(path)[0], 404, path)

    def test_other_methods_and_other_hosts_are_refused(self):
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            self.assertEqual(self.server.get("/metrics", method)[0], 405, method)
        status, text, _ = self.server.get("/metrics", Host="attacker.example")
        self.assertEqual(status, 421)
        self.assertNotIn("nanwatch_", text)
        self.assertEqual(self.server.get("/metrics", Host=f"localhost:{self.server.port}")[0], 200)

    def test_no_other_site_may_read_an_answer(self):
        for path in ("/", "/metrics", "/api/v1/runs", f"/runs/{self.run_id}"):
            _, _, headers = self.server.get(path, Origin="https://attacker.example")
            self.assertNotIn("Access-Control-Allow-Origin", headers)
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")

    def test_long_and_many_headers_are_refused(self):
        for head in (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(10_000)) + b"\r\n",
                     b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"a" * 1_000_000,
                     b"\x00\xff" * 5000):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
                try:
                    connection.sendall(head)
                    answer = connection.recv(65536)
                except ConnectionError:
                    answer = b""
            self.assertNotIn(b" 200 ", answer.split(b"\r\n")[0], head[:60])
        self.assertEqual(self.server.get("/healthz")[0], 200)

    def test_clients_that_send_nothing_do_not_keep_others_out(self):
        idle = []
        try:
            for _ in range(200):
                connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
                connection.sendall(b"GET / HT")
                idle.append(connection)
            await_condition(lambda: self.answers(), "an answer in spite of 200 slow clients", 120)
        finally:
            for connection in idle:
                connection.close()

    def test_clients_that_send_a_byte_now_and_then_are_cut_off(self):
        slow = [socket.create_connection(("127.0.0.1", self.server.port), timeout=60) for _ in range(200)]

        def answers_beside_them():
            for connection in slow:
                try:
                    connection.send(b"G")
                except OSError:
                    pass  # cut off already
            return self.answers()

        try:
            await_condition(answers_beside_them, "an answer beside 200 clients that never end their requests", 120)
        finally:
            for connection in slow:
                connection.close()

    def test_ten_thousand_connections_do_not_hang_it(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = 10_000 + 1000
        if hard != resource.RLIM_INFINITY and hard < most:
            self.skipTest(f"ulimit -Hn is {hard}")
        connections = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        try:
            for _ in range(10_000):
                connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
                connections.append(connection)
                try:
                    connection.send(b"GET / HT")
                except ConnectionError:
                    pass  # beyond what is let in
            status = self.server.status()
            self.assertLessEqual(int(status["Threads"]), 100)
            self.assertLess(int(status["VmRSS"].split()[0]), 60 * 1024)
            self.assertLess(self.server.descriptors(), 300)
            await_condition(self.answers, "an answer while 10,000 connections are open", 120)
        finally:
            for connection in connections:
                connection.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def answers(self):
        try:
            return self.server.get("/healthz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False  # Beyond what is let in, a connection is closed at once.

    @unittest.skipUnless(browser.CHROMIUM, "chromium is not installed")
    def test_a_browser_shows_the_runs_and_one_that_renews_itself(self):
        window = browser.Browser()
        try:
            window.shape()
            window.open(f"http://127.0.0.1:{self.server.port}/")
            self.assertEqual(window.complaints, [])
            self.assertIn("goes_nan.py", window.evaluate("document.querySelector('tbody').textContent"))
            self.assertEqual(window.evaluate("[...document.querySelectorAll('tbody .critical')].map(one => one.textContent)"), ["\u2716 1", "NaN"])
            self.assertEqual(window.evaluate("(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.querySelector('.scroll'))"), 0)
            window.open(f"http://127.0.0.1:{self.server.port}/runs/{self.run_id}")
            self.assertIn("ANOMALY", window.evaluate("document.querySelector('.verdict').textContent"))
            self.assertIn("running now", window.evaluate("document.getElementById('about').textContent"))
            self.assertEqual(window.complaints, [])
            # It asks again by itself.
            asked = ("new Promise(done => { const look = () => performance.getEntriesByType('resource').some(entry => entry.name.endsWith('/page')) ? done(true) "
                     ": requestAnimationFrame(look); look(); })")
            self.assertTrue(window.evaluate(asked))
            self.assertEqual(window.complaints, [])
        finally:
            window.close()

    def test_another_address_needs_a_token(self):
        def refused(*options):
            ran = subprocess.run([NANWATCH, "serve", *options], env=self.workplace.watched, capture_output=True, text=True, timeout=60)
            return ran.returncode, ran.stderr
        self.assertEqual(refused("--listen", "0.0.0.0:0"), (2, "nanwatch: other hosts reach 0.0.0.0: give --token-file FILE as well, or listen on 127.0.0.1\n"))
        token = self.workplace.folder / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o644)
        self.assertIn("chmod 600", refused("--listen", "0.0.0.0:0", "--token-file", token)[1])
        token.chmod(0o600)
        server = Server(self.workplace, "--token-file", token, listen="0.0.0.0:0")
        try:
            self.assertEqual(server.get("/metrics")[0], 401)
            self.assertEqual(server.get("/metrics", Authorization="Bearer " + TOKEN[:-1] + "4")[0], 401)
            self.assertEqual(server.get("/metrics", Authorization="Bearer " + TOKEN)[0], 200)
        finally:
            self.assertEqual(server.stop(), 0)
        taken = refused("--listen", f"127.0.0.1:{self.server.port}")
        self.assertEqual(taken[0], 1)
        self.assertIn("is in use: stop what listens there", taken[1])
        self.assertEqual(refused("--listen", "nonsense")[0], 2)

    def test_metrics_go_to_a_file_that_is_replaced_whole(self):
        path = self.workplace.folder / "nanwatch.prom"
        self.workplace.tool("export", "--format", "prometheus", "--textfile", path)
        text = path.read_text()
        self.assertIn("nanwatch_anomalies_total{", text)
        self.assertNotIn("# EOF", text)
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        ran = subprocess.run([NANWATCH, "export", "--format", "prometheus", "--textfile", "/dev/full"], env=self.workplace.watched, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("make room there", ran.stderr)

    def test_steps_are_exported_as_csv_and_as_lines_of_json(self):
        lines = self.workplace.tool("export", self.run_id, "--format", "csv").splitlines()
        names = lines[0].split(",")
        steps = [dict(zip(names, line.split(","))) for line in lines[1:]]
        self.assertEqual([int(step["step"]) for step in steps], list(range(12)))
        self.assertEqual((steps[4]["bad"], steps[5]["bad"], steps[5]["loss"]), ("0", "1", "NaN"))
        objects = [json.loads(line) for line in self.workplace.tool("export", self.run_id, "--format", "jsonl").splitlines()]
        self.assertEqual(self.workplace.tool("export", self.run_id, "--format", "csv", "--output", "-").splitlines(), lines, "- is stdout")
        kinds = {kind: [one for one in objects if one["type"] == kind] for kind in ("run", "step", "incident", "snapshot")}
        self.assertEqual([len(kinds["run"]), len(kinds["step"])], [1, 12])
        self.assertEqual(kinds["incident"][0]["origin"]["op"], "aten::log")
        self.assertTrue(kinds["snapshot"])

    def test_a_trace_has_the_steps_on_the_clock_of_the_host(self):
        trace = json.loads(self.workplace.tool("export", self.run_id, "--format", "trace"))
        steps = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertEqual([event["name"] for event in steps], [f"step {i}" for i in range(12)])
        began = trace["baseTimeNanoseconds"] / 1e9 + steps[0]["ts"] / 1e6
        self.assertLess(abs(began - time.time()), 3600)
        instants = [event for event in trace["traceEvents"] if event["ph"] == "i"]
        self.assertIn("aten::log, made NaN from finite values", instants[0]["name"])
        self.assertGreaterEqual(instants[0]["ts"], steps[4]["ts"])
        self.assertLessEqual(instants[0]["ts"], steps[5]["ts"] + steps[5]["dur"])

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "tensorboard is not installed")
    def test_tensorboard_reads_the_events(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        folder = self.workplace.folder / "runs"
        self.workplace.tool("export", self.run_id, "--format", "tensorboard", "--output", folder)
        events = EventAccumulator(str(folder / self.run_id))
        events.Reload()
        self.assertIn("nanwatch/loss", events.Tags()["scalars"])
        self.assertEqual([event.step for event in events.Scalars("nanwatch/bad")], list(range(12)))
        self.assertEqual([event.value for event in events.Scalars("nanwatch/bad")][3:6], [0, 0, 1])


if __name__ == "__main__":
    unittest.main()
