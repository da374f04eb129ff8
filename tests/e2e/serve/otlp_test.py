# SPDX-License-Identifier: Apache-2.0
"""`nanwatch export --format otlp` of a real job: OpenTelemetry's own messages read it, and what goes wrong on the way is one sentence."""
import contextlib
import gzip
import http.server
import json
import math
import os
import pathlib
import pty
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))
from watched_job import NANWATCH, PromiseTest

try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
except ImportError:
    json_format = None

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/goes_nan.py"
CUMULATIVE, ERROR = 2, 17


class Receiver:
    """An OTLP/HTTP receiver that keeps what it is sent, or answers with a status of its own; not before `may_answer` is set."""

    def __init__(self, status=200, body=b"", kind="text/plain"):
        self.received, self.headers = [], []
        self.may_answer = threading.Event()
        self.may_answer.set()

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_POST(answer):
                self.may_answer.wait()
                content = gzip.decompress(answer.rfile.read(int(answer.headers["Content-Length"])))
                self.headers.append(answer.headers)
                said, type_said = body, kind
                if status == 200 and not body:
                    request, response = {"/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
                                         "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse)}[answer.path]
                    self.received.append(request.FromString(content))
                    said, type_said = response().SerializeToString(), "application/x-protobuf"
                answer.send_response(status)
                answer.send_header("Content-Type", type_said)
                answer.send_header("Content-Length", str(len(said)))
                answer.end_headers()
                answer.wfile.write(said)

            def log_message(answer, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def values(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def records(requests):
    return [record for request in requests if isinstance(request, ExportLogsServiceRequest)
            for resource in request.resource_logs for scope in resource.scope_logs for record in scope.log_records]


def metrics(requests):
    return {metric.name: metric for request in requests if isinstance(request, ExportMetricsServiceRequest)
            for resource in request.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics}


@unittest.skipUnless(json_format, "opentelemetry-proto is not installed")
class Otlp(PromiseTest):
    @classmethod
    def start(cls, workplace):
        workplace.run_watched([sys.executable, PROGRAM], []).status()
        cls.run_id = json.loads(workplace.tool("ps", "--json"))["runs"][0]["id"]

    def export(self, *options):
        return subprocess.run([NANWATCH, "export", self.run_id, "--format", "otlp", *options], env=self.workplace.watched, capture_output=True, text=True, timeout=120)

    def fails(self, *options):
        ran = self.export(*options)
        self.assertEqual((ran.returncode, ran.stdout), (1, ""), ran)
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
        return ran.stderr

    def from_lines(self):
        ran = self.export()
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        requests = []
        for line in ran.stdout.splitlines():
            kind = ExportLogsServiceRequest if "resourceLogs" in line else ExportMetricsServiceRequest
            requests.append(json_format.Parse(line, kind()))  # Refuses a name that it does not know.
        return requests

    def test_lines_are_requests_of_opentelemetry(self):
        requests = self.from_lines()
        resource = values(requests[0].resource_logs[0].resource.attributes)
        self.assertEqual((resource["service.name"], resource["service.instance.id"], resource["nanwatch.rank"]), ("goes_nan.py", self.run_id, 0))
        self.assertEqual(resource["host.name"], socket.gethostname())
        self.assertIn("goes_nan.py", resource["process.command_line"])
        self.assertEqual(pathlib.Path(resource["process.working_directory"]), (self.workplace.folder / "job-0").resolve())
        for name in ("process.pid", "process.runtime.version", "nanwatch.job", "nanwatch.torch"):
            self.assertTrue(resource[name], name)

    def test_the_incident_is_a_record_between_the_runs_begin_and_end(self):
        logs = records(self.from_lines())
        self.assertEqual([logs[0].event_name, logs[-1].event_name], ["nanwatch.run.begin", "nanwatch.run.end"])
        incident = next(record for record in logs if record.event_name == "nanwatch.incident")
        told = values(incident.attributes)
        self.assertEqual((told["nanwatch.op"], told["nanwatch.class"], told["nanwatch.step"]), ("aten::log", "produce", 5))
        self.assertIn("goes_nan.py:", told["nanwatch.source"])
        self.assertIn("ANOMALY goes_nan.py", incident.body.string_value)
        self.assertGreaterEqual(incident.severity_number, ERROR)
        self.assertLess(abs(incident.time_unix_nano / 1e9 - time.time()), 3600)
        self.assertLess(logs[0].time_unix_nano, incident.time_unix_nano)
        self.assertLess(incident.time_unix_nano, logs[-1].time_unix_nano)

    def test_each_step_is_a_point_and_totals_are_cumulative(self):
        named = metrics(self.from_lines())
        points = named["nanwatch.loss"].gauge.data_points
        self.assertEqual([values(point.attributes)["nanwatch.step"] for point in points], list(range(12)))
        self.assertEqual([math.isnan(point.as_double) for point in points], [step >= 5 for step in range(12)])
        self.assertEqual(sorted(point.time_unix_nano for point in points), [point.time_unix_nano for point in points])
        for name, expected in (("nanwatch.steps", 12), ("nanwatch.anomalies", 1), ("nanwatch.lost_records", 0)):
            total = named[name].sum
            self.assertTrue(total.is_monotonic)
            self.assertEqual((total.aggregation_temporality, total.data_points[0].as_int), (CUMULATIVE, expected), name)
            self.assertLess(total.data_points[0].start_time_unix_nano, total.data_points[0].time_unix_nano)

    def test_a_receiver_gets_what_a_file_gets(self):
        token = self.workplace.folder / "token"
        token.write_text("0123456789abcdef0123\n")
        token.chmod(0o600)
        with Receiver() as receiver:
            ran = self.export("--to", receiver.url + "/", "--token-file", token)
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""))
            self.assertEqual([record.event_name for record in records(receiver.received)], [record.event_name for record in records(self.from_lines())])
            self.assertEqual(set(metrics(receiver.received)), set(metrics(self.from_lines())))
            self.assertEqual({headers["Authorization"] for headers in receiver.headers}, {"Bearer 0123456789abcdef0123"})
            self.assertEqual({headers["Content-Type"] for headers in receiver.headers}, {"application/x-protobuf"})

    def test_what_takes_long_says_on_a_terminal_how_far_it_is(self):
        with Receiver() as receiver:
            receiver.may_answer.clear()
            reading, terminal = pty.openpty()
            command = [NANWATCH, "export", self.run_id, "--format", "otlp", "--to", receiver.url]
            export = subprocess.Popen(command, env=self.workplace.watched, stdout=subprocess.DEVNULL, stderr=terminal)
            os.close(terminal)
            said = b""
            # Written a second after the beginning; the receiver answers when it was read.
            while b"requests taken" not in said:
                said += os.read(reading, 4096)
            receiver.may_answer.set()
            self.assertEqual(export.wait(120), 0)
            with contextlib.suppress(OSError):  # EIO: nobody writes to it any more
                while more := os.read(reading, 4096):
                    said += more
            os.close(reading)
        self.assertRegex(said, rb"nanwatch: exporting: 0 of \d+ requests taken\x1b\[K\r")
        self.assertTrue(said.endswith(b"\x1b[K"), "the line is erased at the end: " + repr(said))
        self.assertNotIn(b"\n", said)

    def test_what_goes_wrong_is_one_sentence(self):
        for status, advice in ((401, "--token-file"), (404, "without /v1/logs"), (503, "try again later"), (500, "its log says")):
            with Receiver(status, b"no\n") as receiver:
                said = self.fails("--to", receiver.url)
                self.assertIn(f"{receiver.url}/v1/logs answered {status} (no): ", said)
                self.assertIn(advice, said)
        with Receiver(200, b"<html>", "text/html") as receiver:
            self.assertIn("is no OTLP/HTTP receiver", self.fails("--to", receiver.url))
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            _, port = closed.getsockname()  # held, and not listened at
            said = self.fails("--to", f"http://127.0.0.1:{port}")
        self.assertIn("nothing was exported: http://127.0.0.1:", said)
        self.assertIn("see whether an OTLP/HTTP receiver listens there", said)

    def test_wrong_use_is_told_from_what_could_not_be_done(self):
        for options, sentence in ((["--to", "receiver.example.org"], "is no address"), (["--to", "http://127.0.0.1", "--output", "x"], "--to"), (["--token-file", "x"], "--to"),
                                  (["--to", "http://127.0.0.1", "--format", "csv"], "")):
            ran = self.export(*options)
            self.assertEqual((ran.returncode, ran.stdout), (2, ""), ran)
            self.assertIn(sentence, ran.stderr)

    def test_a_file_that_cannot_be_written_stays_as_it_was(self):
        self.assertIn("name a file in a directory that exists", self.fails("--output", str(self.workplace.folder / "absent/job.jsonl")))


if __name__ == "__main__":
    unittest.main()
