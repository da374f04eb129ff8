# SPDX-License-Identifier: Apache-2.0
"""nanwatch-gather with a PostgreSQL of its own: what it takes, from whom, and what is in the database then."""
import gzip
import http.client
import json
import socket
import subprocess
import threading
import unittest

import otlp
from cluster import BUILD, GATHER, PROGRAMS, Gatherer, await_condition, maintain
from fleet_case import FleetCase

NANWATCH = BUILD / "bin/nanwatch"
DAY_NS = 86_400 * 10**9


class Gather(FleetCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gatherer = Gatherer(cls.cluster, cls.folder)
        cls.addClassCleanup(cls.gatherer.stop)

    def setUp(self):
        self.empty_tables()

    def sequences(self, where="TRUE"):
        return [int(row[0]) for row in self.cluster.sql(f"SELECT sequence FROM nanwatch.fact WHERE {where} ORDER BY sequence")]

    def test_rows_are_there_once_when_it_has_answered_however_often_they_come(self):
        for records in ([1, 2, 3], [2, 3, 4], [1]):
            status, body, _ = self.gatherer.send(otlp.request([otlp.step(n) for n in records]))
            self.assertEqual((status, body), (200, b""))
        self.assertEqual(self.sequences(), [1, 2, 3, 4])
        self.assertEqual(self.cluster.sql("SELECT daemon, kind, job, run, rank, encode(body, 'hex') FROM nanwatch.fact WHERE sequence = 3"),
                         [[otlp.DAEMON, "3", "train", "00000000000000ab", "0", "0803"]])

    def test_the_newest_state_of_a_run_stays_whatever_comes_first(self):
        for records in ([otlp.run(5, 16, True)], [otlp.run(3, 8), otlp.run(4, 8)], [otlp.run(5, 16, True)]):
            self.assertEqual(self.gatherer.send(otlp.request(records))[0], 200)
        self.assertEqual(self.cluster.sql("SELECT sequence, world_size, ended, host FROM nanwatch.run"), [["5", "16", "t", "host7"]])
        self.assertEqual(self.sequences(), [])
        self.gatherer.send(otlp.request([otlp.run(6, 16), otlp.run(7, 17)]))
        self.assertEqual(self.cluster.sql("SELECT sequence, world_size FROM nanwatch.run"), [["7", "17"]])

    def test_several_daemons_may_use_the_same_numbers(self):
        for daemon in (otlp.DAEMON, otlp.DAEMON.replace("0f8f", "1f8f")):
            self.gatherer.send(otlp.request([otlp.step(1)], daemon))
        self.assertEqual(self.sequences(), [1, 1])

    def test_many_at_once_are_all_there_once(self):
        def send(first):
            for _ in range(3):
                statuses.append(self.gatherer.send(otlp.request([otlp.step(n) for n in range(first, first + 400)]))[0])
        statuses = []
        threads = [threading.Thread(target=send, args=(100 * i + 1,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(statuses, [200] * 24)
        self.assertEqual(self.sequences(), list(range(1, 1101)))

    def test_a_sender_hears_of_a_row_that_is_not_there(self):
        def is_missing(*held, records=(), **fields):
            status, body, headers = self.gatherer.send(otlp.request(records), **otlp.held(*held, **fields))
            self.assertEqual((status, body), (200, b""))
            return headers.get("nanwatch-held-row") == "missing"
        run = "00000000000000ab"
        self.gatherer.send(otlp.request([otlp.step(1), otlp.step(2, at_ns=0), otlp.run(5)]))
        for held in ((1,), (5, run), (4, run)):
            self.assertFalse(is_missing(*held), held)
        self.assertFalse(is_missing(2, at_ns=0), "of a day without a partition")
        for held in ((3,), (5,), (6, run), (5, run.replace("ab", "ac"))):
            self.assertTrue(is_missing(*held), held)
        self.assertTrue(is_missing(1, at_ns=otlp.NOW_NS + 3 * DAY_NS))
        self.assertTrue(is_missing(3, records=[otlp.step(3)]), "also where it comes with the question")
        self.assertFalse(is_missing(3))
        self.assertEqual(self.sequences(), [1, 2, 3])
        self.cluster.sql("DELETE FROM nanwatch.fact WHERE sequence = 3")
        self.assertTrue(is_missing(3))
        self.assertEqual(self.gatherer.send(otlp.request([]), **{"nanwatch-held-row": "'; DROP TABLE nanwatch.fact"})[0], 200)

    def test_rows_are_taken_though_the_schema_is_that_of_before(self):
        rights = "SELECT (day, daemon, sequence) ON nanwatch.fact {} nanwatch_ingest"
        self.cluster.sql("REVOKE " + rights.format("FROM"))
        self.addCleanup(self.cluster.sql, "GRANT " + rights.format("TO"))
        gatherer = Gatherer(self.cluster, self.folder)
        self.addCleanup(gatherer.stop)
        status, body, headers = gatherer.send(otlp.request([otlp.step(1)]), **otlp.held(3))
        self.assertEqual((status, body, headers.get("nanwatch-held-row")), (200, b"", None))
        self.assertEqual(self.sequences(), [1])

    def test_days_have_partitions_and_other_days_a_place(self):
        self.assertRegex(self.made, r"^schema was 0; 10 days made, 0 dropped\n$")
        self.assertRegex(maintain(self.cluster), r"^schema was 5; 0 days made, 0 dropped\n$")
        today = int(self.cluster.sql("SELECT CURRENT_DATE - DATE '1970-01-01'")[0][0])
        for sequence, at_ns in ((1, 0), (2, 2**63 - 1), (3, today * DAY_NS)):
            self.assertEqual(self.gatherer.send(otlp.request([otlp.step(sequence, at_ns=at_ns)]))[0], 200)
        self.assertEqual(self.cluster.sql("SELECT sequence FROM nanwatch.fact_other ORDER BY sequence"), [["1"], ["2"]])
        name = self.cluster.sql("SELECT tableoid::regclass FROM nanwatch.fact WHERE sequence = 3")[0][0]
        self.assertRegex(name, r"^nanwatch\.fact_\d{8}$")

    def test_old_days_are_dropped(self):
        self.cluster.sql("CREATE TABLE nanwatch.fact_20200131 PARTITION OF nanwatch.fact FOR VALUES FROM ('2020-01-31') TO ('2020-02-01')")
        self.gatherer.send(otlp.request([otlp.step(1, at_ns=1_580_428_800 * 10**9), otlp.step(2)]))
        self.assertEqual(self.sequences(), [1, 2])
        # It came just now, of a host whose clock is years behind.
        self.assertRegex(maintain(self.cluster), r"0 days made, 0 dropped\n1 older days have rows that stay")
        self.assertEqual(self.sequences(), [1, 2])
        self.cluster.sql("UPDATE nanwatch.fact SET received_at = received_at - INTERVAL '31 days' WHERE sequence = 1")
        self.assertRegex(maintain(self.cluster), r"0 days made, 1 dropped\n$")
        self.assertEqual(self.sequences(), [2])

    def test_findings_stay_as_long_as_the_state_of_their_run(self):
        self.cluster.sql("CREATE TABLE nanwatch.fact_20200131 PARTITION OF nanwatch.fact FOR VALUES FROM ('2020-01-31') TO ('2020-02-01')")
        old_ns = 1_580_428_800 * 10**9
        rows = [otlp.step(1, b"", otlp.FINDINGS, at_ns=old_ns), otlp.step(2, at_ns=old_ns), otlp.step(3, b"", otlp.FINDINGS, at_ns=0),
                otlp.step(4, b"", otlp.FINDINGS, run="00000000000000ac", at_ns=old_ns), otlp.run(5)]
        self.assertEqual(self.gatherer.send(otlp.request(rows))[:2], (200, b""))
        self.cluster.sql("UPDATE nanwatch.fact SET received_at = received_at - INTERVAL '31 days'")
        self.assertRegex(maintain(self.cluster), r"0 dropped\n1 older days have rows that stay")
        self.assertEqual(self.sequences(), [1, 3])
        self.cluster.sql("UPDATE nanwatch.run SET received_at = received_at - INTERVAL '31 days'")
        self.assertRegex(maintain(self.cluster), r"1 dropped\n$")
        self.assertEqual(self.sequences(), [])

    def test_days_are_dropped_while_rows_of_them_come(self):
        self.cluster.sql("CREATE TABLE nanwatch.fact_20200131 PARTITION OF nanwatch.fact FOR VALUES FROM ('2020-01-31') TO ('2020-02-01')")
        self.addCleanup(self.cluster.sql, "DROP TABLE IF EXISTS nanwatch.fact_20200131")
        self.gatherer.send(otlp.request([otlp.step(1, at_ns=1_580_428_800 * 10**9)]))
        self.cluster.sql("UPDATE nanwatch.fact SET received_at = received_at - INTERVAL '31 days'")
        with Holding(self.cluster, "LOCK TABLE ONLY nanwatch.fact IN ROW EXCLUSIVE MODE") as writer:
            maintaining = start_maintain(self.cluster)
            await_condition(lambda: self.cluster.sql("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == [["1"]],
                            "it waits for who writes")
            writer.ask("INSERT INTO nanwatch.fact SELECT day, daemon, 2, kind, job, run, rank, recorded_ns, CURRENT_TIMESTAMP, body, tenant FROM nanwatch.fact")
        self.assertEqual(maintaining.communicate(timeout=60)[1], "")
        self.assertEqual(self.sequences("sequence = 2"), [2])

    def test_several_may_maintain_it_at_once(self):
        self.cluster.sql("DO $$ DECLARE name text; BEGIN FOR name IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'nanwatch.fact'::regclass"
                         " AND inhrelid <> 'nanwatch.fact_other'::regclass LOOP EXECUTE 'DROP TABLE ' || name; END LOOP; END $$")
        started = [start_maintain(self.cluster) for _ in range(4)]
        said = [one.communicate(timeout=60) for one in started]
        self.assertEqual([errors for _, errors in said], [""] * 4)
        self.assertEqual(sum("10 days made" in text for text, _ in said), 1, said)

    def test_a_day_that_cannot_be_dropped_is_said_and_others_are_dropped(self):
        for day, after in (("0131", "0201"), ("0201", "0202")):
            self.cluster.sql(f"CREATE TABLE nanwatch.fact_2020{day} PARTITION OF nanwatch.fact"
                             f" FOR VALUES FROM ('2020{day}') TO ('2020{after}')")
        self.cluster.sql("CREATE VIEW of_somebody AS SELECT * FROM nanwatch.fact_20200131")
        self.addCleanup(self.cluster.sql, "DROP VIEW of_somebody; DROP TABLE nanwatch.fact_20200131")
        maintaining = start_maintain(self.cluster)
        self.assertIn("fact_20200131", maintaining.communicate(timeout=60)[1])
        self.assertEqual(maintaining.returncode, 1)
        self.assertEqual(self.cluster.sql("SELECT to_regclass('nanwatch.fact_20200201') IS NULL"), [["t"]])

    def test_runs_beyond_those_that_are_read_are_counted(self):
        gatherer = Gatherer(self.cluster, self.folder, "--read-database", self.cluster.connection("asker"))
        self.addCleanup(gatherer.stop)
        self.gatherer.send(otlp.request([otlp.run(1, 1, True, name="00000000000000aa")]))
        self.cluster.sql("INSERT INTO nanwatch.run SELECT daemon, LPAD(TO_HEX(n), 16, '0'), 1, job, launch, rank, world_size, attempt, host, ended,"
                         " recorded_ns, received_at, body, tenant FROM nanwatch.run, GENERATE_SERIES(1000, 101001) AS n")
        status, body, _ = gatherer.ask("GET", "/api/v1/jobs/train/verdict")
        self.assertEqual(status, 200, body)
        document = json.loads(body)
        self.assertEqual(document["fleet"]["runs_left_out"], 3)
        self.assertEqual(document["verdict"], "unknown")

    def test_hosts_that_began_it_in_several_launches_are_listed(self):
        gatherer = Gatherer(self.cluster, self.folder, "--read-database", self.cluster.connection("asker"))
        self.addCleanup(gatherer.stop)
        ask = [NANWATCH, "fleet", "hosts", "--fleet", gatherer.url, "--token-file", gatherer.token_file]
        self.assertIn("no host stands out", subprocess.run(ask, capture_output=True, text=True, timeout=60).stderr)
        for number, job in enumerate(("train", "tune")):
            name = f"{number + 1:016x}"
            origin = otlp.piece(2, "produce") + otlp.piece(5, "aten::log") + otlp.number(12, 4) + otlp.piece(21, name)
            incident = otlp.piece(1, "error") + otlp.piece(2, origin)
            rows = [otlp.run(10 * number + 1, 1, True, name=name, job=job), otlp.step(10 * number + 2, incident, otlp.INCIDENT, job=job, run=name)]
            self.assertEqual(gatherer.send(otlp.request(rows))[:2], (200, b""))
        # The answer before is kept for a moment.
        await_condition(lambda: b"host7" in gatherer.ask("GET", "/api/v1/hosts")[1], "the answer is made anew")
        said = subprocess.run(ask, capture_output=True, text=True, timeout=60)
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertRegex(said.stdout, r"HOST +LAUNCHES +INCIDENTS +OP +LAYER\nhost7 +2 +2 +aten::log\n")

    def test_who_sends_may_not_read_and_who_reads_may_not_write(self):
        self.gatherer.send(otlp.request([otlp.step(1), otlp.run(2)]))
        for statement in ("SELECT body FROM nanwatch.fact", "SELECT body FROM nanwatch.run", "SELECT job FROM nanwatch.run",
                          "SELECT run FROM nanwatch.fact", "DELETE FROM nanwatch.fact",
                          "UPDATE nanwatch.fact SET rank = 9", "TRUNCATE nanwatch.run", "DROP TABLE nanwatch.fact"):
            with self.assertRaises((PermissionError, AssertionError), msg=statement):
                self.cluster.sql(statement, "sender")
        self.assertEqual(self.cluster.sql("SELECT COUNT(*) FROM nanwatch.fact", "asker"), [["1"]])
        for statement in ("DELETE FROM nanwatch.fact", "INSERT INTO nanwatch.run SELECT * FROM nanwatch.run", "UPDATE nanwatch.run SET rank = 9"):
            with self.assertRaises(PermissionError, msg=statement):
                self.cluster.sql(statement, "asker")
        self.assertEqual(self.sequences(), [1])

    def test_compressed_bodies_are_taken_and_bombs_are_not(self):
        body = gzip.compress(otlp.request([otlp.step(n) for n in range(1, 500)]))
        self.assertEqual(self.gatherer.send(body, **{"Content-Encoding": "gzip"})[0], 200)
        self.assertEqual(len(self.sequences()), 499)
        bomb = gzip.compress(bytes(200_000_000))
        self.assertLess(len(bomb), 300_000)
        self.assertEqual(self.gatherer.send(bomb, **{"Content-Encoding": "gzip"})[0], 413)
        self.assertEqual(self.gatherer.send(b"\x1f\x8b no gzip", **{"Content-Encoding": "gzip"})[0], 408)
        self.assertEqual(self.gatherer.send(body, **{"Content-Encoding": "br"})[0], 415)

    def test_a_body_that_is_too_long_is_refused_before_it_is_read(self):
        with socket.create_connection(("127.0.0.1", self.gatherer.port), timeout=60) as connection:
            connection.sendall(b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef0123\r\n"
                               b"Content-Type: application/x-protobuf\r\nContent-Length: 1000000000\r\n\r\n")
            self.assertIn(b" 413 ", connection.recv(65536).split(b"\r\n")[0])

    def test_strangers_are_refused_and_hear_why(self):
        body = otlp.request([otlp.step(1)])
        for token in ("Bearer wrong", "", "Bearer 0123456789abcdef0124"):
            status, text, headers = self.gatherer.send(body, Authorization=token)
            self.assertEqual((status, "WWW-Authenticate" in headers), (401, True), token)
        for path in ("/metrics", "/healthz"):
            self.assertEqual(self.gatherer.ask("GET", path, Authorization="")[0], 401)
        self.assertEqual(self.sequences(), [])

    def test_records_of_others_are_rejected_and_ours_among_them_kept(self):
        spoiled = [otlp.step(2, run="no id"), otlp.step(3, body=b"\xff"), otlp.step(4, kind=99), otlp.piece(5, otlp.piece(1, "a line of text"))]
        status, body, _ = self.gatherer.send(otlp.request([otlp.step(1), *spoiled, otlp.step(5)]))
        self.assertEqual(status, 200)
        self.assertTrue(body.startswith(otlp.varint(10)))
        self.assertIn(otlp.number(1, 4), body)
        self.assertEqual(self.sequences(), [1, 5])
        self.assertEqual(self.gatherer.send(b"\x0a\xff")[0], 400)
        self.assertEqual(self.gatherer.send(otlp.request([otlp.step(6, job=b"\xff\xfe")]))[0], 400)

    def test_a_million_jobs_are_as_good_as_one(self):
        records = [otlp.step(n, job=f"job-{n}") for n in range(1, 5001)]
        self.assertEqual(self.gatherer.send(otlp.request(records))[0], 200)
        self.assertEqual(self.cluster.sql("SELECT COUNT(DISTINCT job) FROM nanwatch.fact"), [["5000"]])

    def test_a_database_that_is_away_is_said_and_comes_back_by_itself(self):
        gatherer = Gatherer(self.cluster, self.folder, "--pool", "1")
        self.addCleanup(gatherer.stop)
        self.assertEqual(gatherer.send(otlp.request([otlp.step(1)]))[0], 200)
        self.cluster.kill()
        try:
            status, _, headers = gatherer.send(otlp.request([otlp.step(2)]))
            self.assertEqual((status, headers.get("Retry-After")), (503, "1"))
            self.assertEqual(gatherer.ask("GET", "/healthz")[0], 503)
        finally:
            self.cluster.start_again()
        await_condition(lambda: gatherer.send(otlp.request([otlp.step(2)]))[0] == 200, "it takes rows again")
        self.assertEqual(self.sequences(), [1, 2])
        self.assertEqual(gatherer.ask("GET", "/healthz")[0], 200)
        lines = [line for line in gatherer.log().splitlines() if "rows" in line]
        self.assertEqual(len(lines), 2, lines)

    def test_a_full_queue_is_said(self):
        gatherer = Gatherer(self.cluster, self.folder, "--pool", "1")
        self.addCleanup(gatherer.stop)
        big = otlp.request([otlp.step(n, body=otlp.number(1, n) + otlp.piece(20, bytes(900_000))) for n in range(1, 16)])
        with Holding(self.cluster):
            senders = [threading.Thread(target=gatherer.send, args=(big,)) for _ in range(5)]
            senders[0].start()
            await_condition(lambda: self.cluster.sql("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == [["1"]],
                            "its one connection waits")
            for sender in senders[1:]:
                sender.start()
            await_condition(lambda: gatherer.metric("nanwatch_gather_queue_rows") == 60, "the queue is nearly full")
            status, _, headers = gatherer.send(big)
            self.assertEqual((status, headers.get("Retry-After")), (429, "1"))
            self.assertGreaterEqual(gatherer.metric("nanwatch_gather_rows_refused_total"), 15)
        for sender in senders:
            sender.join()
        self.assertEqual(self.sequences(), list(range(1, 16)))

    def test_it_ends_within_seconds_whatever_the_database_does(self):
        gatherer = Gatherer(self.cluster, self.folder, "--pool", "1")
        self.addCleanup(gatherer.kill)
        statuses = []
        with Holding(self.cluster):
            sender = threading.Thread(target=lambda: statuses.append(self.attempt(gatherer, otlp.request([otlp.step(1)]))))
            sender.start()
            await_condition(lambda: self.cluster.sql("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == [["1"]],
                            "its one connection waits")
            waiting = threading.Thread(target=lambda: statuses.append(self.attempt(gatherer, otlp.request([otlp.step(2)]))))
            waiting.start()
            await_condition(lambda: gatherer.metric("nanwatch_gather_queue_rows") == 1, "another waits for it")
            # Before a statement of its own is given up, which takes 30 s.
            self.assertEqual(gatherer.stop(timeout=20), 0)
            for thread in (sender, waiting):
                thread.join()
        self.assertNotIn(200, statuses)

    @staticmethod
    def attempt(gatherer, body):
        try:
            return gatherer.send(body)[0]
        except (OSError, http.client.HTTPException):
            return None

    def test_a_body_that_breaks_off_may_be_sent_again(self):
        with socket.create_connection(("127.0.0.1", self.gatherer.port), timeout=60) as connection:
            connection.sendall(b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef0123\r\n"
                               b"Content-Type: application/x-protobuf\r\nContent-Length: 1000\r\n\r\nsome")
            connection.shutdown(socket.SHUT_WR)
            self.assertIn(b" 408 ", connection.recv(65536).split(b"\r\n")[0])

    def test_each_answer_names_who_gives_it(self):
        request = otlp.request([otlp.step(1)])
        for answer in (self.gatherer.send(request), self.gatherer.send(b"\x0a\xff"), self.gatherer.send(request, Authorization=""),
                       self.gatherer.ask("GET", "/nothing"), self.gatherer.ask("POST", "/v1/logs", request)):
            self.assertEqual(answer[2]["nanwatch-gather"], "1", answer)

    def test_a_row_that_the_database_refuses_is_rejected_and_takes_no_other_with_it(self):
        self.cluster.sql("ALTER TABLE nanwatch.fact ADD CONSTRAINT no_rank_9 CHECK (rank <> 9)")
        self.addCleanup(self.cluster.sql, "ALTER TABLE nanwatch.fact DROP CONSTRAINT no_rank_9")
        status, body, _ = self.gatherer.send(otlp.request([otlp.step(n, rank=9 if n == 5 else 0) for n in range(1, 20)]))
        self.assertEqual(status, 200)
        self.assertIn(otlp.number(1, 1), body)
        self.assertEqual(self.sequences(), [n for n in range(1, 20) if n != 5])
        self.assertEqual(self.gatherer.ask("GET", "/healthz")[0], 200)

    def test_a_host_name_of_others_is_refused_with_its_own_advice(self):
        gatherer = Gatherer(self.cluster, self.folder, token=False)
        self.addCleanup(gatherer.stop)
        status, body, _ = gatherer.ask("GET", "/healthz", Host="gather.example.org")
        self.assertEqual(status, 421)
        self.assertIn(b"--token-file", body)
        self.assertNotIn(b"nanwatch serve", body)

    def test_what_is_no_database_is_said_at_once(self):
        said = subprocess.run([GATHER, "serve", "--database", "hots=db"], capture_output=True, text=True, timeout=60)
        self.assertEqual(said.returncode, 2)
        self.assertIn("hots", said.stderr)

    def test_it_does_not_listen_to_all_without_a_token(self):
        with self.assertRaises(TypeError):
            Gatherer(self.cluster, self.folder, token=False, listen="0.0.0.0:0")


def start_maintain(cluster):
    return subprocess.Popen([GATHER, "maintain", "--database", cluster.connection("owner")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Holding:
    """A transaction of somebody else: unless told otherwise, it keeps all others from writing."""

    def __init__(self, cluster, lock="LOCK TABLE nanwatch.fact IN ACCESS EXCLUSIVE MODE"):
        self._lock = lock
        self._psql = subprocess.Popen([f"{PROGRAMS[-1]}/psql", "-X", "-q", "-A", "-t", "-d", cluster.connection("owner")], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        self.ask(f"BEGIN; {self._lock}")
        return self

    def ask(self, statement):
        self._psql.stdin.write(f"{statement}; SELECT 'held';\n")
        self._psql.stdin.flush()
        assert self._psql.stdout.readline() == "held\n"

    def __exit__(self, *_):
        self._psql.stdin.write("COMMIT;\n")
        self._psql.stdin.close()
        self._psql.wait(60)
        self._psql.stdout.close()


if __name__ == "__main__":
    unittest.main()
