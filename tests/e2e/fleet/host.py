# SPDX-License-Identifier: Apache-2.0
"""A host of a fleet: a daemon that is played, a forwarder beside it, and what of it has arrived."""
import contextlib
import os
import sqlite3
import subprocess

from cluster import BUILD

NANWATCH = BUILD / "bin/nanwatch"
PLAYER = BUILD / "tests/outbox_player"


def varint(body, at):
    value = shift = 0
    while True:
        value |= (body[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if body[at - 1] < 128:
            return value, at


def fields(body):
    """(number, value) of each field of a message: integers, or bytes."""
    at = 0
    while at < len(body):
        key, at = varint(body, at)
        if key & 7 == 0:
            value, at = varint(body, at)
        elif key & 7 == 1:
            value, at = body[at:at + 8], at + 8
        else:
            length, at = varint(body, at)
            value, at = body[at:at + length], at + length
        yield key >> 3, value


def tickets(body):
    """Those of the records (field 4) in RunFacts; a ticket of 0 is not written."""
    return [dict(fields(record)).get(1, 0) for number, record in fields(body) if number == 4]


class Host:
    """A daemon that is played, and a forwarder beside it."""

    def __init__(self, nonce, folder, url, token_file, *options, prefix=()):
        self.nonce, self.state = nonce, folder / f"state{nonce}"
        self.state.mkdir(mode=0o700)
        self._prefix = prefix  # what its forwarder is started with, as nsenter
        self._arguments = ["--to", url, "--token-file", token_file, *options]
        self.log_path = folder / f"forward{nonce}.log"
        self._log = open(self.log_path, "w")
        self.start_daemon()
        self.start_forwarder()

    def start_daemon(self):
        self._daemon = subprocess.Popen([PLAYER, self.state, str(self.nonce)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, what):
        self._daemon.stdin.write(f"{what}\n")
        self._daemon.stdin.flush()

    def finish(self):
        """How many records there are."""
        return int(self._daemon.stdout.readline())

    def put(self, what):
        self.begin(what)
        return self.finish()

    def kill_daemon(self):
        self._daemon.kill()
        self._close_daemon()

    def _close_daemon(self):
        self._daemon.wait(60)
        # What it was asked for last may not have reached it.
        with contextlib.suppress(BrokenPipeError):
            self._daemon.stdin.close()
        self._daemon.stdout.close()

    def let_go_of_sent(self):
        """As an outbox that is full, or after two days."""
        self.kill_daemon()
        with contextlib.closing(sqlite3.connect(next(self.state.glob("*.db")))) as database, database:
            sent = (self.state / "outbox.sent").read_text().split()[1:5]
            database.executemany("DELETE FROM outbox WHERE lane = ? AND sequence <= ?", enumerate(map(int, sent)))
        self.start_daemon()

    def environment(self):
        return {**os.environ, "NANWATCH_STATE_DIR": str(self.state), "NANWATCH_DIR": str(self.state)}

    def start_forwarder(self):
        self._forwarder = subprocess.Popen([*self._prefix, NANWATCH, "forward", *self._arguments], env=self.environment(), stderr=self._log)

    def kill_forwarder(self):
        self._forwarder.kill()
        self._forwarder.wait(60)

    def close(self):
        self.kill_forwarder()
        self.kill_daemon()
        self._log.close()

    def arrived(self, cluster):
        """Tickets of the records that the database has, in the order in which the daemon wrote them."""
        rows = cluster.sql(f"SELECT encode(body, 'hex') FROM nanwatch.fact WHERE kind = 2 AND run = '{self.nonce:016x}' ORDER BY sequence")
        return [ticket for row in rows for ticket in tickets(bytes.fromhex(row[0]))]
