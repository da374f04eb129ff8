#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many rows a second a gatherer takes, with a PostgreSQL of its own beside it that syncs each commit; and how long a request waits.

Some connections send requests of as many daemons as fast as they are answered, then the same ones again. An answer means that the rows are
committed, so what a request waits is the time until its rows can be queried. Rows are counted in the database afterwards. To encode them is
not measured.

    tests/bench/fleet/rows.py [--rows 200000] [--daemons 1000] [--at-once 200] [--connections 8]
"""
import argparse
import http.client
import os
import pathlib
import queue
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/fleet"))
import otlp
from cluster import MISSING, TOKEN, Cluster, Gatherer

BODY_BYTES = 180  # about as long as a record of a finding


def requests(options):
    """Each of one daemon; a row in ten is the state of a run."""
    made, now_ns = [], time.time_ns()
    each = options.rows // options.daemons
    for number in range(options.daemons):
        daemon = f"0f8fad5b-d9cb-469f-a165-{number:012x}"
        records = []
        for sequence in range(1, each + 1):
            rank = sequence % 8
            name = f"{number * 8 + rank:016x}"
            if sequence % 10 == 0:
                records.append(otlp.run(sequence, options.daemons * 8, name=name, rank=rank, job=f"job-{number % 20}", at_ns=now_ns))
            else:
                body = otlp.number(1, sequence) + otlp.piece(20, bytes(BODY_BYTES))
                records.append(otlp.step(sequence, body, run=name, rank=rank, job=f"job-{number % 20}", at_ns=now_ns))
        made += [otlp.request(records[at:at + options.at_once], daemon) for at in range(0, len(records), options.at_once)]
    random.Random(1).shuffle(made)
    return made


def send_all(port, bodies, connections):
    """Seconds for all, and for each request, sorted."""
    left, took, failures = queue.SimpleQueue(), [], []
    for body in bodies:
        left.put(body)

    def send():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-protobuf"}
        while True:
            try:
                body = left.get_nowait()
            except queue.Empty:
                break
            began = time.perf_counter()
            connection.request("POST", "/v1/logs", body=body, headers=headers)
            answer = connection.getresponse()
            if answer.read() or answer.status != 200:
                failures.append(answer.status)
            took.append(time.perf_counter() - began)
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(connections)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if failures:
        raise SystemExit(f"{len(failures)} requests failed, the first with {failures[0]}")
    return seconds, sorted(took)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 200_000), ("daemons", 1_000), ("at-once", 200), ("connections", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if MISSING:
        raise SystemExit(MISSING)
    bodies = requests(options)
    cluster = Cluster()
    try:
        cluster.make_fleet()
        with tempfile.TemporaryDirectory() as folder:
            gatherer = Gatherer(cluster, pathlib.Path(folder))
            print(f"{options.rows:,} rows of {options.daemons:,} daemons in {len(bodies):,} requests, {sum(map(len, bodies)) / 2**20:.0f} MiB;"
                  f" {options.connections} connections, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
            for what in ("new", "sent again"):
                seconds, took = send_all(gatherer.port, bodies, options.connections)
                print(f"{what:<10} {options.rows / seconds:9,.0f} rows/s in {seconds:.1f} s; a request waits {took[len(took) // 2] * 1e3:.0f} ms,"
                      f" p99 {took[len(took) * 99 // 100] * 1e3:.0f} ms; {gatherer.metric('nanwatch_gather_commits_total'):,} commits so far")
            [[facts]] = cluster.sql("SELECT COUNT(*) FROM nanwatch.fact")
            [[runs]] = cluster.sql("SELECT COUNT(*) FROM nanwatch.run")
            each = options.rows // options.daemons
            # The newest of each run that has a state.
            expected = (options.daemons * (each - each // 10), options.daemons * len({n % 8 for n in range(10, each + 1, 10)}))
            print(f"in the database: {int(facts):,} facts and {int(runs):,} runs; expected {expected[0]:,} and {expected[1]:,}")
            gatherer.stop()
            if (int(facts), int(runs)) != expected:
                raise SystemExit("rows are missing or doubled")
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
