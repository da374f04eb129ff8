# SPDX-License-Identifier: Apache-2.0
"""What does a daemon use, and how late is it, under load? The method, and figures: README.md.

    NANWATCH_BUILD=$PWD/build/release .venv/bin/python tests/bench/daemon/load.py [--seconds 20] [--only NAME,...]

Prints one row a case; with --limit-us it fails where a record takes more processor time than that. A case is a number of live runs and of records a second, of all runs together; `storm` is one job that writes as
fast as it can, `ranks` 64 ranks of one job that write 20,000 records each, beside a job of its own that is looked at.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import threading
import time

from measured import BUILD, Committed, Daemon, quantile, until

CASES = {
    "1x1k": (1, 1_000), "8x1k": (8, 8_000), "1x10k": (1, 10_000), "1x100k": (1, 100_000), "8x100k": (8, 100_000),
    "100x1k": (100, 1_000), "100x10k": (100, 10_000), "1000x0": (1_000, 0), "1000x1k": (1_000, 1_000), "1000x10k": (1_000, 10_000),
}
PROBE_NONCE = 0xfeed
PROBE_MS = 170  # no multiple of what the daemon waits
HEAD = "| case | records/s | CPU | CPU a record | judging | RSS | in the database p50, p99 | in `tail` p50, p99 | CPU of `tail` | lost |"


class Tail(threading.Thread):
    """`nanwatch tail -f` of the probed run: when each line came."""

    def __init__(self, daemon, run):
        super().__init__(daemon=True)
        self._process = subprocess.Popen([BUILD / "bin/nanwatch", "tail", "-f", "--json", "-n", "0", run], env=daemon.environment,
                                         stdout=subprocess.PIPE, text=True)
        self.at = {}
        self.start()

    def run(self):
        for line in self._process.stdout:
            seen = time.monotonic_ns()
            try:
                self.at.setdefault(int(json.loads(line)["ticket"]), seen)
            except (ValueError, KeyError):
                continue

    def cpu_ns(self):
        return int(pathlib.Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[0])

    def end(self):
        self._process.kill()
        self._process.wait()
        self.join()


class Probe:
    """A job that writes a finding now and then, and how late each is seen."""

    def __init__(self, daemon, seconds):
        self._daemon = daemon
        self._writer = daemon.writer(nonce=PROBE_NONCE, rate=0, job="probe", probe_ms=PROBE_MS, seconds=seconds)
        self._writer.stdout.readline()  # ready
        run = f"{PROBE_NONCE:016x}"
        until(lambda: daemon_knows(daemon, run), 60)
        self._committed = Committed(daemon.state / "nanwatch.db", run)
        self._tail = Tail(daemon, run)
        self._began = time.monotonic()
        self.tail_share = 0.0

    def latencies(self):
        """Milliseconds into the database, and into tail."""
        written = dict((int(ticket), int(at)) for _, ticket, at in
                       (line.split() for line in self._writer.stdout if line.startswith("probe")))
        until(lambda: all(ticket in self._committed.at for ticket in list(written)[:-2]), 60)
        time.sleep(1)
        self.tail_share = self._tail.cpu_ns() / 1e9 / (time.monotonic() - self._began)
        self._committed.end()
        self._tail.end()
        first = list(written)[5]  # those before it were written before anybody looked
        return [[(seen.at[ticket] - at) / 1e6 for ticket, at in written.items() if ticket >= first and ticket in seen.at]
                for seen in (self._committed, self._tail)]


def daemon_knows(daemon, run):
    known = subprocess.run([BUILD / "bin/nanwatch", "ps", "--json"], env=daemon.environment, capture_output=True, text=True)
    return run in known.stdout


def row(name, written, seconds, before, after, daemon, late, tail_share, lost):
    first = min(before)
    reading = after[first] - before[first]
    judging = sum(after.values()) - sum(before.values()) - reading
    each = f"{reading / written / 1e3:.1f} us" if written > 1_000 else ""
    texts = [", ".join(f"{quantile(part, share):.0f}" for share in (0.5, 0.99)) + f" ms (of {len(part)})" for part in late]
    cost_us = reading / max(1, written) / 1e3
    print(f"| {name} | {written / seconds:,.0f} | {reading / seconds / 1e7:.2f} % | {each} | {judging / seconds / 1e7:.2f} % "
          f"| {daemon.status('VmHWM') / 1024:.0f} MiB | {texts[0]} | {texts[1]} | {tail_share:.1%} | {lost} |", flush=True)
    return cost_us


def steady(name, runs, rate, seconds):
    daemon = Daemon()
    try:
        load = daemon.writer(nonce=0x10000, runs=runs, rate=rate, seconds=seconds + 8, job="load")
        load.stdout.readline()
        probe = Probe(daemon, seconds)
        before, began = daemon.cpu_ns(), time.monotonic()
        late = probe.latencies()
        after, took = daemon.cpu_ns(), time.monotonic() - began
        load.wait()
        words = load.stdout.read().split()
        written = int(words[-3]) * took / (seconds + 8)
        return row(name, written, took, before, after, daemon, late, probe.tail_share, words[-1])
    finally:
        daemon.close()


def storm(seconds, records):
    daemon = Daemon()
    try:
        probe = Probe(daemon, seconds)
        before, began = daemon.cpu_ns(), time.monotonic()
        load = daemon.writer(nonce=0x10000, rate="max", records=records, seconds=600, job="load")
        words = load.stdout.read().split()
        load.wait()
        until(lambda: daemon.segments_left() <= 1, 600)
        after, took = daemon.cpu_ns(), time.monotonic() - began
        late = probe.latencies()
        return row(f"storm of {records:,}", int(words[-3]), took, before, after, daemon, late, probe.tail_share, words[-1])
    finally:
        daemon.close()


def ranks(seconds):
    daemon = Daemon()
    try:
        probe = Probe(daemon, max(seconds, 60))
        before, began = daemon.cpu_ns(), time.monotonic()
        load = daemon.writer(nonce=0x10000, runs=64, rate=40_000, records=64 * 20_000, seconds=600, job="load")
        words = load.stdout.read().split()
        load.wait()
        late = probe.latencies()
        after, took = daemon.cpu_ns(), time.monotonic() - began
        return row("64 ranks x 20,000", int(words[-3]), took, before, after, daemon, late, probe.tail_share, words[-1])
    finally:
        daemon.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--records", type=int, default=10_000_000, help="of the storm")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit-us", type=float, default=float("inf"))
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else [*CASES, "storm", "ranks"]
    print(HEAD + "\n|" + "---|" * (HEAD.count("|") - 1), flush=True)
    costs_us = []
    for name in wanted:
        if name == "storm":
            costs_us.append(storm(arguments.seconds, arguments.records))
        elif name == "ranks":
            costs_us.append(ranks(arguments.seconds))
        else:
            costs_us.append(steady(name, *CASES[name], arguments.seconds))
    return 1 if max(costs_us) > arguments.limit_us else 0


if __name__ == "__main__":
    sys.exit(main())
