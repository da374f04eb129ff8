# SPDX-License-Identifier: Apache-2.0
"""Fault 28, by hand: binaries of an older release against these, in both directions.

    NANWATCH_BUILD=$PWD/build/release .venv/bin/python tests/faults/old_release.py --old-daemon OLD/bin/nanwatchd --old-writer OLD/writer

The writer is tests/bench/daemon/writer.cc, compiled in the older tree. Jobs of both releases write; one daemon reads, is replaced by
that of the other release while jobs of both live, and that one reads the rest, out of the same directory into the same database. Each
record is there once, and the database is sound.
"""
import argparse
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench/daemon"))
from measured import BUILD, WRITER, until  # noqa: E402

RUNS = 2  # of each writer


def write(writer, segments, nonce, records):
    return subprocess.Popen([writer, "--dir", segments, "--runs", str(RUNS), "--rate", "2000", "--records", str(records), "--seconds", "60",
                             "--nonce", str(nonce), "--job", f"job-{nonce}"], stdout=subprocess.PIPE, text=True)


def start(daemon, segments, state):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NANWATCH_")}
    environment |= {"NANWATCH_DIR": segments, "NANWATCH_STATE_DIR": str(state)}
    log = state / "nanwatch.log"
    said = log.read_text().count(" watches ") if log.exists() else 0
    process = subprocess.Popen([daemon], env=environment, stderr=subprocess.DEVNULL)
    until(lambda: log.exists() and log.read_text().count(" watches ") > said, 60)
    return process


def replace(first, second, writers):
    """What is wrong."""
    segments = tempfile.mkdtemp(prefix="nanwatch-old-", dir="/dev/shm")
    state = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-old-")) / "state"
    daemon = start(first, segments, state)
    ended = [write(writer, segments, 0x10 * (i + 1), 4_000) for i, writer in enumerate(writers)]
    dropped = [process.communicate()[0].split()[-1] for process in ended]
    live = [write(writer, segments, 0x100 * (i + 1), 12_000) for i, writer in enumerate(writers)]
    for process in live:
        process.stdout.readline()  # ready
    daemon.terminate()
    daemon.wait()
    daemon = start(second, segments, state)
    dropped += [process.communicate()[0].split()[-1] for process in live]
    until(lambda: not any(name.endswith(".seg") for name in os.listdir(segments)), 120)
    wrong = [] if daemon.poll() is None else ["the second daemon ended"]
    daemon.terminate()
    daemon.wait()
    database = sqlite3.connect(state / "nanwatch.db")
    if database.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
        wrong.append("the database is not sound")
    rows = database.execute("SELECT run.id, run.ended, count(DISTINCT ticket) FROM run JOIN record ON record.run = run.key"
                            " GROUP BY run.id").fetchall()
    expected = {f"{nonce + run:016x}": records // RUNS + 1  # and how it ended
                for nonce, records in ((0x10, 4_000), (0x20, 4_000), (0x100, 12_000), (0x200, 12_000)) for run in range(RUNS)}
    if {run: count for run, _, count in rows} != expected or any(ended != 1 for _, ended, _ in rows) or set(dropped) != {"0"}:
        wrong.append(f"runs, whether they ended, records: {rows}; dropped {dropped}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--old-daemon", required=True)
    parser.add_argument("--old-writer", required=True)
    arguments = parser.parse_args()
    new, writers = BUILD / "bin/nanwatchd", (arguments.old_writer, WRITER)
    wrong = replace(arguments.old_daemon, new, writers) + replace(new, arguments.old_daemon, writers)
    print("\n".join(wrong) or "16 runs of both releases, read by both daemons in both orders: each record once")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
