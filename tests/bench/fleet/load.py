#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fleet of 1,000 hosts against two gatherers and a PostgreSQL of their own: steady load, then a storm. None lost, none doubled.

One process plays all daemons' forwarders, by events. Each has eight ranks and a connection, sends a request with a row of each rank when its
time has come, and repeats what is not acknowledged. Each request asks whether the newest row is still there, as a forwarder's does. What a row waits is counted from when it was due to be sent, not from when it was, until
the answer, which means that it is committed and can be queried.

In the storm all have rows waiting, and send them as forwarders do: conclusions first, then states, then the others, at most 2,000 a request.

    tests/bench/fleet/load.py [--seconds 60] [--rate 8000] [--daemons 1000] [--storm 200000]
"""
import argparse
import asyncio
import contextlib
import os
import pathlib
import random
import re
import resource
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/fleet"))
import otlp
from cluster import MISSING, TOKEN, Cluster, Gatherer

RANKS = 8
FIRST_SEQUENCE = 1 << 21  # from here on a number takes four bytes, so that a template can be filled in
BODY = otlp.piece(20, bytes(180))  # about as long as a record of a finding
ROWS_PER_REQUEST = 2_000


def four_bytes(sequence):
    return bytes((sequence & 127 | 128, sequence >> 7 & 127 | 128, sequence >> 14 & 127 | 128, sequence >> 21))


def run_name(daemon, rank):
    return f"{daemon * RANKS + rank:016x}"


class Template:
    """Requests that differ in numbers and in the daemon they are of; made once, because to encode them takes longer than to send them."""

    _DAEMON = 0xfffffff

    def __init__(self, kinds):
        self._at_ns = now_ns = time.time_ns()
        self._fact = max(i for i, kind in enumerate(kinds) if kind != otlp.RUN)  # no state: they are replaced
        marks = [FIRST_SEQUENCE + (1 << 20) + i for i in range(len(kinds))]
        records = []
        for i, (kind, mark) in enumerate(zip(kinds, marks)):
            rank = i % RANKS
            row = {"run": run_name(self._DAEMON, rank), "rank": rank, "job": job_name(self._DAEMON), "at_ns": now_ns}
            if kind == otlp.RUN:
                records.append(otlp.run(mark, RANKS, name=row.pop("run"), **row))
            else:
                records.append(otlp.step(mark, otlp.piece(1, "error") if kind == otlp.INCIDENT else BODY, kind, **row))
        self._body = otlp.request(records, daemon_name(self._DAEMON))
        self._places = [self._body.index(four_bytes(mark)) for mark in marks]

    def of(self, daemon):
        body = self._body
        for rank in range(RANKS):
            body = body.replace(run_name(self._DAEMON, rank).encode(), run_name(daemon, rank).encode())
        for name in (daemon_name, job_name):
            body = body.replace(name(self._DAEMON).encode(), name(daemon).encode())
        return Filled(bytearray(body), self._places, otlp.held(self._fact, daemon=daemon_name(daemon), at_ns=self._at_ns))


class Filled:
    def __init__(self, body, places, held):
        self._body, self._places = body, places
        [(self._header, text)] = held.items()
        self._daemon, fact, self._at_ns = text.split()
        self._fact = int(fact)

    def filled(self, first):
        """A body, and the header that asks for one of its rows later."""
        for i, place in enumerate(self._places):
            self._body[place:place + 4] = four_bytes(first + i)
        return bytes(self._body), f"{self._header}: {self._daemon} {first + self._fact} {self._at_ns}\r\n".encode()


def daemon_name(number):
    return f"0f8fad5b-d9cb-469f-a165-{number:012x}"


def job_name(number):
    return f"job-{number % 20:02}"


class Daemon(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, number, ports):
        self.number, self._ports = number, ports
        self.sequence = FIRST_SEQUENCE
        self._transport = self._answer = None
        self._data = self._held = b""

    def data_received(self, data):
        self._data += data
        head, separator, body = self._data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if separator and len(body) >= int(length[1] if length else 0):
            status, self._data = int(head.split(b" ", 2)[1]), b""
            if b"connection: close" in head.lower():
                self._transport.close()
            if self._answer and not self._answer.done():
                self._answer.set_result((status, body, b"nanwatch-held-row: missing" in head))

    def connection_lost(self, _):
        self._transport = None
        if self._answer and not self._answer.done():
            self._answer.set_result((0, b"", False))

    async def ask(self, body):
        if self._transport is None or self._transport.is_closing():
            await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._ports[self.number % len(self._ports)])
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n" + self._held +
                              b"Content-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return await self._answer

    def connection_made(self, transport):
        self._transport = transport

    async def deliver(self, request, counts):
        """Until it is acknowledged."""
        pause = 0.25
        body, held = request
        while True:
            try:
                status, answer, is_missing = await self.ask(body)
            except OSError:
                status, answer, is_missing = 0, b"", False
            if is_missing:
                raise SystemExit("a row that was acknowledged is missing")
            if status == 200 and not answer:
                self._held = held
                return
            counts[status] = counts.get(status, 0) + 1
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, 8)


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)] if values else 0.0


async def steady(daemons, options, counts):
    """Seconds that rows waited."""
    waited, period = [], options.daemons * RANKS / options.rate
    # Findings, and now and then the state of a run and a step.
    shared = Template([otlp.FINDINGS] * 5 + [otlp.STEP] * 2 + [otlp.RUN])
    templates = {daemon: shared.of(daemon.number) for daemon in daemons}
    began = time.perf_counter() + 1

    async def play(daemon):
        due = began + period * random.random()
        while due < began + options.seconds:
            await asyncio.sleep(max(0, due - time.perf_counter()))
            await daemon.deliver(templates[daemon].filled(daemon.sequence), counts)
            waited.append(time.perf_counter() - due)
            daemon.sequence += RANKS
            due += period

    await asyncio.gather(*map(play, daemons))
    return waited, time.perf_counter() - began


async def storm(daemons, options, counts):
    """Seconds until all incidents were in, and until all was; for each daemon its incidents are sent first."""
    each = options.storm // options.daemons
    incidents_in, all_in, began = [], [], time.perf_counter()

    kinds = [otlp.INCIDENT] * 2 + [otlp.RUN] * RANKS + [otlp.STEP] * (each - 2 - RANKS)
    parts = [(0, Template(kinds[:2]))] + [(at, Template(kinds[at:at + ROWS_PER_REQUEST])) for at in range(2, each, ROWS_PER_REQUEST)]

    def prepared(daemon):
        first, *rest = (template.of(daemon.number).filled(daemon.sequence + at) for at, template in parts)
        daemon.sequence += each
        return first, rest

    async def play(daemon, requests):
        first, rest = requests
        await daemon.deliver(first, counts)
        incidents_in.append(time.perf_counter() - began)
        for body in rest:
            await daemon.deliver(body, counts)
        all_in.append(time.perf_counter() - began)

    made = [prepared(daemon) for daemon in daemons]
    began = time.perf_counter()
    await asyncio.gather(*(play(daemon, requests) for daemon, requests in zip(daemons, made)))
    return incidents_in, all_in


def check_sums(cluster, daemons):
    """What was committed is what was acknowledged: each number of each daemon once, but for states that a newer one has replaced."""
    [[facts, distinct]] = cluster.sql("SELECT COUNT(*), COUNT(DISTINCT (daemon, sequence)) FROM nanwatch.fact")
    [[runs, replaced]] = cluster.sql("SELECT COUNT(*), COUNT(*) - COUNT(DISTINCT (daemon, run)) FROM nanwatch.run")
    sent = sum(daemon.sequence - FIRST_SEQUENCE for daemon in daemons)
    return int(facts), int(distinct), int(runs), int(replaced), sent


class Processors:
    """Of each part, since it was asked last."""

    def __init__(self, cluster, gatherers):
        self._ask = {"gatherers": lambda: sum(gatherer.processor_seconds() for gatherer in gatherers), "PostgreSQL": cluster.processor_seconds,
                     "player": lambda: time.process_time()}
        self._before = {name: ask() for name, ask in self._ask.items()}

    def __str__(self):
        now = {name: ask() for name, ask in self._ask.items()}
        used = ", ".join(f"{name} {now[name] - self._before[name]:.1f} s" for name in now)
        self._before = now
        return f"of processors {used}"


async def play_all(ports, options, cluster, processors):
    counts = {}
    daemons = [Daemon(number, ports) for number in range(options.daemons)]
    waited, took = await steady(daemons, options, counts)
    print(f"steady: {len(waited) * RANKS / took:,.0f} rows/s of {options.rate:,} for {took:.0f} s; queryable after {percentile(waited, 50) * 1e3:.0f} ms,"
          f" p99 {percentile(waited, 99) * 1e3:.0f} ms, longest {max(waited) * 1e3:.0f} ms; repeated: {counts or 'none'}; {processors}", flush=True)
    states = len(waited)
    if options.storm:
        counts = {}
        incidents_in, all_in = await storm(daemons, options, counts)
        states += options.daemons * RANKS
        print(f"storm: {options.storm:,} rows are in after {max(all_in):.1f} s; incidents after {percentile(incidents_in, 50):.1f} s, all of them after"
              f" {max(incidents_in):.1f} s; repeated: {counts or 'none'}; {processors}", flush=True)
    facts, distinct, runs, replaced, sent = check_sums(cluster, daemons)
    [[size]] = cluster.sql("SELECT SUM(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'nanwatch.fact'::regclass")
    print(f"in the database: {facts:,} facts, {distinct:,} distinct, of {sent - states:,} sent, {int(size) / max(1, facts):.0f} bytes each with keys and"
          f" indexes; {runs:,} runs, {replaced} of them replaced")
    if facts != distinct or facts != sent - states or replaced:
        raise SystemExit("rows are missing or doubled")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seconds", 60), ("rate", 8_000), ("daemons", 1_000), ("storm", 200_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if MISSING:
        raise SystemExit(MISSING)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if hard > soft else (soft, hard))
    with contextlib.ExitStack() as ending:
        cluster = Cluster()
        ending.callback(cluster.close)
        cluster.make_fleet()
        folder = pathlib.Path(ending.enter_context(tempfile.TemporaryDirectory()))
        gatherers = [Gatherer(cluster, folder) for _ in range(2)]
        for gatherer in gatherers:
            ending.callback(gatherer.stop)
        print(f"{options.daemons:,} daemons with {RANKS} ranks, two gatherers; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        asyncio.run(play_all([gatherer.port for gatherer in gatherers], options, cluster, Processors(cluster, gatherers)))


if __name__ == "__main__":
    main()
