# SPDX-License-Identifier: Apache-2.0
"""A sender that means harm: what it sends is refused, takes bounded memory and time, is logged once and counted; others are served meanwhile."""
import gzip
import os
import socket
import threading
import unittest

import otlp
from cluster import TOKEN, Gatherer, await_condition
from fleet_case import FleetCase

MIB = 1 << 20
# A million with NANWATCH_FAULTS_LONG.
JOBS = 1_000_000 if os.environ.get("NANWATCH_FAULTS_LONG") else 20_000


class Hostile(FleetCase):
    def setUp(self):
        self.empty_tables()
        self.gatherer = Gatherer(self.cluster, self.folder, "--read-database", self.cluster.connection("asker"))
        self.addCleanup(self.gatherer.stop)

    def rows(self):
        return int(self.cluster.sql("SELECT COUNT(*) FROM nanwatch.fact")[0][0])

    def said(self, words):
        return [line for line in self.gatherer.log().splitlines() if words in line]

    def refused(self):
        return self.gatherer.metric("nanwatch_gather_requests_refused_total")

    def serves_others(self):
        self.assertEqual(self.gatherer.send(otlp.request([otlp.step(1)]))[0], 200)

    def test_a_wrong_token_is_logged_once(self):
        for _ in range(50):
            self.assertEqual(self.gatherer.send(otlp.request([otlp.step(1)]), Authorization="Bearer of another")[0], 401)
        self.assertEqual((self.rows(), self.refused(), len(self.said("without the right token"))), (0, 50, 1))
        self.serves_others()

    def test_bombs_take_bounded_memory(self):
        bomb = gzip.compress(bytes(256 * MIB), 9)
        self.assertLess(len(bomb), MIB)
        before = self.gatherer.memory()

        def throw():
            try:
                statuses.append(self.gatherer.send(bomb, **{"Content-Encoding": "gzip"})[0])
            except OSError:
                statuses.append(413)  # it had hung up before all was sent

        statuses = []
        throwers = [threading.Thread(target=throw) for _ in range(16)]
        for thrower in throwers:
            thrower.start()
        self.serves_others()
        for thrower in throwers:
            thrower.join()
        # 429: the others took all the room that there is for bodies.
        self.assertLessEqual(set(statuses), {413, 429})
        self.assertIn(413, statuses)
        self.assertLess(self.gatherer.peak_memory() - before, 500 * MIB)
        self.assertEqual(len(self.said("too long")), 1)

    def test_a_body_of_a_gigabyte_is_not_read(self):
        before = self.gatherer.memory()
        for head in (b"Content-Length: 1073741824", b"Transfer-Encoding: chunked"):
            with socket.create_connection(("127.0.0.1", self.gatherer.port), timeout=60) as connection:
                connection.sendall(b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode() +
                                   b"\r\nContent-Type: application/x-protobuf\r\n" + head + b"\r\n\r\n")
                sent = 0
                piece = b"100000\r\n" + bytes(MIB) + b"\r\n"
                try:
                    while sent < 1024:
                        connection.sendall(piece)
                        sent += 1
                    self.fail("it took all of it")
                except OSError:
                    pass
                self.assertLess(sent, 64, head)
        self.assertLess(self.gatherer.peak_memory() - before, 100 * MIB)
        self.serves_others()

    def test_text_that_is_no_utf8_is_refused_and_others_are_taken(self):
        for _ in range(5):
            self.assertEqual(self.gatherer.send(otlp.request([otlp.step(1, job=b"\xff\xfe")]))[0], 400)
        self.assertEqual((self.rows(), len(self.said("no OTLP logs"))), (0, 1))
        # What is UTF-8 and harmful elsewhere: NUL is refused, the rest is text.
        status, body, _ = self.gatherer.send(otlp.request([otlp.step(2, job="a\0b"), otlp.step(3, job="'; DROP TABLE nanwatch.fact; --\t\\.\n")]))
        self.assertEqual(status, 200)
        self.assertIn(otlp.number(1, 1), body)
        self.assertEqual(self.rows(), 1)

    def test_very_many_jobs_are_taken_and_the_list_stays_short(self):
        before = self.gatherer.memory()
        for first in range(1, JOBS + 1, 5_000):
            records = [otlp.run(n, 1, name=f"{n:016x}", job=f"job-{n}") for n in range(first, first + 5_000)]
            self.assertEqual(self.gatherer.send(otlp.request(records))[:2], (200, b""))
        self.assertEqual(self.cluster.sql("SELECT COUNT(DISTINCT job) FROM nanwatch.run"), [[str(JOBS)]])
        status, body, _ = self.gatherer.ask("GET", "/api/v1/jobs")
        self.assertEqual((status, body.count(b'"job":')), (200, 1_000))
        self.assertLess(len(body), MIB)
        self.assertLess(self.gatherer.peak_memory() - before, 200 * MIB)

    def test_slow_and_silent_connections_keep_nobody_out(self):
        silent = [socket.create_connection(("127.0.0.1", self.gatherer.port), timeout=60) for _ in range(200)]
        for connection in silent[:100]:
            connection.sendall(b"POST /v1/logs HTTP/1.1\r\nHost: lo")
        self.serves_others()
        # They are not kept for ever.
        silent[0].settimeout(60)
        await_condition(lambda: silent[0].recv(4096) is not None, "it hangs up")
        for connection in silent:
            connection.close()


if __name__ == "__main__":
    unittest.main()
