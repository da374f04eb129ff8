# SPDX-License-Identifier: Apache-2.0
"""How a forwarder gets to its gatherer: TLS, the gatherer's and its own certificate, a token from a file, proxies."""
import http.client
import http.server
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "faults/fleet"))
import authority
from cluster import TOKEN, Gatherer, await_condition
from fleet_case import FleetCase
from host import NANWATCH, Host
from passage import Passage


class Proxy:
    """A web proxy: CONNECT for https, whole addresses for http. Counts what goes through."""

    def __init__(self):
        proxy = self
        self.tunnels, self.requests = 0, 0

        class Handle(http.server.BaseHTTPRequestHandler):
            def do_CONNECT(self):
                proxy.tunnels += 1
                host, port = self.path.rsplit(":", 1)
                with socket.create_connection((host, int(port)), timeout=60) as there:
                    self.send_response(200)
                    self.end_headers()
                    ends = [self.connection, there]
                    while True:
                        for source in select.select(ends, [], [])[0]:
                            piece = source.recv(65536)
                            if not piece:
                                return
                            ends[1 - ends.index(source)].sendall(piece)

            def do_POST(self):
                proxy.requests += 1
                host, port = self.path.split("/")[2].rsplit(":", 1)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                connection = http.client.HTTPConnection(host, int(port), timeout=60)
                connection.request("POST", "/" + self.path.split("/", 3)[3], body, dict(self.headers))
                answer = connection.getresponse()
                text = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() != "content-length":
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                connection.close()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handle)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@unittest.skipIf(authority.MISSING, authority.MISSING)
class Transport(FleetCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gatherer = Gatherer(cls.cluster, cls.folder)
        cls.addClassCleanup(cls.gatherer.stop)
        cls.authority = authority.Authority()
        cls.addClassCleanup(cls.authority.close)

    def setUp(self):
        self.empty_tables()
        self.host = Host(1, pathlib.Path(tempfile.mkdtemp(dir=self.folder)), self.gatherer.url, self.gatherer.token_file)
        self.addCleanup(self.host.close)
        self.host.kill_forwarder()
        self.host.put(5)

    def passage(self, context=None):
        passage = Passage(self.gatherer.port, context)
        self.addCleanup(passage.close)
        return passage

    def forward(self, url, *options, token=None, **environment):
        clean = {name: value for name, value in self.host.environment().items() if not name.lower().endswith("_proxy")}
        return subprocess.run([NANWATCH, "forward", "--once", "--to", url, "--token-file", token or self.gatherer.token_file, *options],
                              env=clean | environment, capture_output=True, text=True, timeout=120)

    def assert_sent(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.host.arrived(self.cluster), list(range(5)))

    def assert_kept(self, done, words):
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, words)
        self.assertEqual(self.host.arrived(self.cluster), [])

    def test_a_gatherer_is_trusted_by_the_authority_that_is_named(self):
        passage = self.passage(self.authority.server_context())
        self.assert_kept(self.forward(passage.url), "certificate")
        self.assert_sent(self.forward(passage.url, "--ca", self.authority.file))

    def test_a_certificate_for_another_name_is_refused(self):
        context = self.authority.server_context()
        context.load_cert_chain(*self.authority.issue("other", host="gather.example.org"))
        self.assert_kept(self.forward(self.passage(context).url, "--ca", self.authority.file), "127.0.0.1|certificate")

    def test_a_certificate_that_has_expired_is_refused_and_named(self):
        context = self.authority.server_context()
        context.load_cert_chain(*self.authority.issue("server", expired=True))
        self.assert_kept(self.forward(self.passage(context).url, "--ca", self.authority.file), "expired")

    def test_it_shows_its_own_certificate_where_that_is_asked_for(self):
        passage = self.passage(self.authority.server_context(wants_client=True))
        self.assert_kept(self.forward(passage.url, "--ca", self.authority.file), "rows wait")
        certificate, key = self.authority.issue("host1")
        self.assert_sent(self.forward(passage.url, "--ca", self.authority.file, "--cert", certificate, "--key", key))

    def test_a_token_is_read_from_its_file_and_read_again_when_it_has_changed(self):
        token = self.folder / "other-token"
        token.write_text("fedcba9876543210fedc\n")
        token.chmod(0o644)
        self.assert_kept(self.forward(self.gatherer.url, token=token), "0600|others|mode")
        token.chmod(0o600)
        self.assert_kept(self.forward(self.gatherer.url, token=token), "401")
        # One that runs need not be started again.
        forwarder = subprocess.Popen([NANWATCH, "forward", "--to", self.gatherer.url, "--token-file", token], env=self.host.environment(),
                                     stderr=subprocess.PIPE, text=True)
        self.assertIn("401", forwarder.stderr.readline())
        token.write_text(TOKEN + "\n")
        await_condition(lambda: self.host.arrived(self.cluster) == list(range(5)), "the rows arrive")
        forwarder.terminate()
        self.assertEqual(forwarder.communicate(timeout=60)[1].count("\n"), 1)  # that they are taken again

    def test_https_goes_through_the_proxy_of_the_environment(self):
        passage, proxy = self.passage(self.authority.server_context()), Proxy()
        self.addCleanup(proxy.close)
        self.assert_sent(self.forward(passage.url, "--ca", self.authority.file, https_proxy=proxy.url))
        self.assertEqual((proxy.tunnels, proxy.requests), (1, 0))

    def test_http_goes_through_a_proxy_and_no_proxy_leaves_it_out(self):
        proxy = Proxy()
        self.addCleanup(proxy.close)
        self.assert_sent(self.forward(self.gatherer.url, http_proxy=proxy.url))
        self.assertEqual(proxy.requests, 1)
        self.host.put(1)
        self.assertEqual(self.forward(self.gatherer.url, http_proxy=proxy.url, no_proxy="127.0.0.1").returncode, 0)
        self.assertEqual(proxy.requests, 1)

    def test_a_proxy_that_is_away_is_said_and_rows_wait(self):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address, port = closed.getsockname()
        self.assert_kept(self.forward(self.gatherer.url, http_proxy=f"http://{address}:{port}"), "rows wait")


if __name__ == "__main__":
    unittest.main()
