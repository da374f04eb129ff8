#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does it cost a training host to be part of a fleet? Eight ranks that go well, and eight whose model has diverged.

The same ranks are watched by a daemon without an outbox, then by one with an outbox and a forwarder beside it, which sends to a real gatherer
elsewhere on this machine. Counted is processor time, of the daemon what it takes more than without; so other work on the machine matters
little. Ranks are segments that a writer of ours fills (tests/bench/daemon/writer.cc): ten steps a second each, and records where they diverged.

    tests/bench/fleet/cost.py [--seconds 60] [--records 1000]
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "daemon"), str(HERE.parents[2] / "e2e/fleet")]
from cluster import MISSING, Cluster, Gatherer
from measured import BUILD, Daemon, until

RANKS = 8


def rss_mib(pid, field="VmRSS"):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


class Stretch:
    """Shares of a core, and MiB."""

    def __init__(self, seconds, rate, gatherer=None):
        daemon = Daemon(**({"NANWATCH_OUTBOX": "1"} if gatherer else {}))
        forwarder = None
        try:
            load = daemon.writer(nonce=0x20000, runs=RANKS, rate=rate, seconds=seconds + 10, job="cost")
            load.stdout.readline()
            if gatherer:
                forwarder = subprocess.Popen([BUILD / "bin/nanwatch", "forward", "--to", gatherer.url, "--token-file", gatherer.token_file],
                                             env=daemon.environment, stderr=subprocess.DEVNULL)
                until(lambda: gatherer.metric("nanwatch_gather_rows_written_total") >= RANKS, 60)
            self.rows = gatherer.metric("nanwatch_gather_rows_written_total") if gatherer else 0
            before, began = self._used(daemon, forwarder), time.monotonic()
            time.sleep(seconds)
            after, took = self._used(daemon, forwarder), time.monotonic() - began
            self.daemon, self.forwarder = ((b - a) / took for a, b in zip(before, after))
            self.daemon_mib = daemon.status("VmHWM") / 1024
            self.forwarder_mib = rss_mib(forwarder.pid) if forwarder else 0.0
            if gatherer:
                self.rows = gatherer.metric("nanwatch_gather_rows_written_total") - self.rows
            load.kill()
            load.wait()
        finally:
            if forwarder:
                forwarder.kill()
                forwarder.wait()
            daemon.close()

    @staticmethod
    def _used(daemon, forwarder):
        used = int(pathlib.Path(f"/proc/{forwarder.pid}/schedstat").read_text().split()[0]) / 1e9 if forwarder else 0.0
        return sum(daemon.cpu_ns().values()) / 1e9, used


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--records", type=int, default=1_000, help="a second, of those that diverged")
    options = parser.parse_args()
    if MISSING:
        raise SystemExit(MISSING)
    cluster = Cluster()
    try:
        cluster.make_fleet()
        with tempfile.TemporaryDirectory() as folder:
            gatherer = Gatherer(cluster, pathlib.Path(folder))
            print(f"{RANKS} ranks with 10 steps a second each, {options.seconds} s; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
            for what, rate in (("healthy", 0), (f"diverged, {options.records:,} records/s", options.records)):
                bare, fleet = Stretch(options.seconds, rate), Stretch(options.seconds, rate, gatherer)
                outbox = fleet.daemon - bare.daemon
                print(f"{what}: forwarder {fleet.forwarder:.3%} of a core, outbox {outbox:.3%} (daemon {bare.daemon:.3%} -> {fleet.daemon:.3%}),"
                      f" together {fleet.forwarder + outbox:.3%}; forwarder {fleet.forwarder_mib:.1f} MiB, daemon {bare.daemon_mib:.1f} ->"
                      f" {fleet.daemon_mib:.1f} MiB; {fleet.rows / options.seconds:.1f} rows/s", flush=True)
            gatherer.stop()
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
