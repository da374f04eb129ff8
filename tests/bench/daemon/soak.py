# SPDX-License-Identifier: Apache-2.0
"""Jobs come and go: does anything of the daemon grow? Figures: README.md.

    NANWATCH_BUILD=$PWD/build/release .venv/bin/python tests/bench/daemon/soak.py --minutes 60

Groups of 1 to 20 runs live for 1 to 15 seconds each, several side by side; some are killed, some have no end record, some are never read
before they end. Each ten seconds everything is counted that a process can hold. What a database has to grow to first (500 runs) is
reached before the slopes begin, so they are of the second half. Exit status 1: one of them is larger than its bound.
"""
import argparse
import os
import pathlib
import random
import signal
import sqlite3
import sys
import time

from measured import Daemon

LOOK_EVERY_S = 10
GROUPS = 3  # side by side
# What an hour may add: nothing, but for the grain of one figure.
BOUNDS = {"descriptors": 2, "threads": 1, "maps": 20, "segments": 2, "shm KiB": 2_000, "files": 5, "RSS KiB": 4_000}


def look(daemon):
    process = pathlib.Path(f"/proc/{daemon.process.pid}")
    segments = list(daemon.segments.iterdir())
    return {
        "descriptors": len(os.listdir(process / "fd")),
        "threads": daemon.status("Threads"),
        "maps": len((process / "maps").read_text().splitlines()),
        "segments": sum(1 for path in segments if path.suffix == ".seg"),
        "shm KiB": sum(blocks(path) for path in segments),
        "files": sum(1 for path in daemon.state.rglob("*") if not path.name.startswith(("nanwatch.log", "events.jsonl"))),
        "RSS KiB": daemon.status("VmRSS"),
        "database KiB": (daemon.state / "nanwatch.db").stat().st_size // 1024,
        "log KiB": sum(path.stat().st_size for path in daemon.state.glob("*") if "nanwatch.db" not in path.name) // 1024,
    }


def blocks(path):
    try:
        return path.stat().st_blocks // 2
    except OSError:
        return 0


class Group:
    """Some runs of one process."""

    def __init__(self, daemon, number, rng):
        self._rng = rng
        seconds = rng.randint(1, 15)
        self.runs = rng.randint(1, 20)
        self._killed_at = time.monotonic() + rng.uniform(0.1, seconds) if rng.random() < 0.4 else None
        self._writer = daemon.writer(nonce=(number << 16) + 1, runs=self.runs, rate=rng.choice((0, 10, 100, 1000)), seconds=seconds,
                                     job=f"job-{number}")

    def over(self):
        if self._killed_at is not None and time.monotonic() > self._killed_at:
            self._writer.send_signal(signal.SIGKILL)
        return self._writer.poll() is not None

    def end(self):
        self._writer.kill()
        self._writer.wait()


def slope(values, seconds):
    """By least squares, an hour."""
    n = len(values)
    middle, mean = (n - 1) / 2, sum(values) / n
    spread = sum((i - middle) ** 2 for i in range(n))
    return sum((i - middle) * (value - mean) for i, value in enumerate(values)) / spread / seconds * 3600


def settle(daemon, groups):
    """Between looks nobody lives, or segments that are being read would count."""
    for group in groups:
        group.end()
    deadline = time.monotonic() + 60
    while daemon.segments_left() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)


def soak(daemon, minutes, seed):
    rng = random.Random(seed)
    looks, runs, groups, number = [], 0, [], 0
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        until = time.monotonic() + LOOK_EVERY_S
        while time.monotonic() < until:
            groups = [group for group in groups if not group.over()]
            while len(groups) < GROUPS:
                number += 1
                groups.append(Group(daemon, number, rng))
                runs += groups[-1].runs
            time.sleep(0.05)
        settle(daemon, groups)
        groups = []
        if daemon.process.poll() is not None:
            raise SystemExit(f"the daemon ended: {daemon.process.returncode}")
        looks.append((time.monotonic(), look(daemon)))
    return looks, runs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    daemon = Daemon()
    try:
        looks, runs = soak(daemon, arguments.minutes, arguments.seed)
        database = sqlite3.connect(daemon.state / "nanwatch.db")
        sound = database.execute("PRAGMA integrity_check").fetchone()[0]
        troubles = [line for line in daemon.log().splitlines() if " error " in line or "not read: " in line]
    finally:
        daemon.close()
    half = looks[len(looks) // 2:]
    between = (half[-1][0] - half[0][0]) / max(1, len(half) - 1)
    print(f"{runs} runs in {arguments.minutes:g} minutes, {len(looks)} looks, slopes of the last {len(half)}; database: {sound}; "
          f"{len(troubles)} lines of trouble in the log")
    print("| | first | middle | last | an hour adds | may |\n|---|---|---|---|---|---|")
    grown = []
    for name in looks[0][1]:
        values = [seen[name] for _, seen in half]
        adds = slope(values, between)
        print(f"| {name} | {looks[0][1][name]:,} | {values[0]:,} | {values[-1]:,} | {adds:+,.1f} | {BOUNDS.get(name, '')} |")
        if adds > BOUNDS.get(name, float("inf")):
            grown.append(name)
    for line in troubles[:10]:
        print(line)
    if sound != "ok" or grown:
        print(f"grows: {', '.join(grown) or 'nothing'}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
