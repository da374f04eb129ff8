# SPDX-License-Identifier: Apache-2.0
"""A real nanwatchd of the bench's own, and what it uses: shared by load.py and soak.py."""
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time

BUILD = pathlib.Path(os.environ.get("NANWATCH_BUILD") or pathlib.Path(__file__).resolve().parents[3] / "build/release")
WRITER = BUILD / "bench/daemon_load_writer"


class Daemon:
    """Segments in shared memory, the database on a disk."""

    def __init__(self, state_parent=None, **environment):
        self.segments = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-load-", dir="/dev/shm"))
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-load-", dir=state_parent))
        self.state = self._folder / "state"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("NANWATCH_")}
        self.environment |= {"NANWATCH_DIR": str(self.segments), "NANWATCH_STATE_DIR": str(self.state), **environment}
        self.process = subprocess.Popen([BUILD / "bin/nanwatchd"], env=self.environment, stderr=subprocess.DEVNULL)
        until(lambda: (self.state / "nanwatch.log").exists() and " watches " in self.log(), 60)

    def writer(self, **asked):
        arguments = [part for name, value in asked.items() for part in ("--" + name.replace("_", "-"), str(value))]
        return subprocess.Popen([WRITER, "--dir", self.segments, *arguments], stdout=subprocess.PIPE, text=True)

    def cpu_ns(self):
        """Of each thread by its number; the first is the one that reads segments, the other judges."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        used = {}
        for task in sorted(tasks.iterdir(), key=lambda path: int(path.name)):
            try:
                used[int(task.name)] = int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # it has ended
        return used

    def status(self, field):
        return int(re.search(rf"^{field}:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text(), re.M)[1])

    def peak_reset(self):
        """VmHWM begins anew."""
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def segments_left(self):
        return sum(1 for path in self.segments.iterdir() if path.suffix == ".seg")

    def log(self):
        return (self.state / "nanwatch.log").read_text()

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.segments, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def until(holds, seconds):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("gave up waiting")
        time.sleep(0.02)


class Committed(threading.Thread):
    """When each probe of a run can be read out of the database: asked each two milliseconds whether anything was committed."""

    def __init__(self, database, run):
        super().__init__(daemon=True)
        self._database, self._run, self._ends = database, run, threading.Event()
        self.at = {}
        self.start()

    def run(self):
        connection = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=30)
        version, last = None, 0
        while not self._ends.is_set():
            now, = connection.execute("PRAGMA data_version").fetchone()
            if now != version:
                version = now
                rows = connection.execute("SELECT ticket FROM record JOIN run ON run.key = record.run WHERE run.id = ? AND ticket > ?",
                                          (self._run, last)).fetchall()
                seen = time.monotonic_ns()
                for ticket, in rows:
                    last = max(last, ticket)
                    self.at.setdefault(ticket, seen)
            self._ends.wait(0.002)

    def end(self):
        self._ends.set()
        self.join()


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
