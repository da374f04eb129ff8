# SPDX-License-Identifier: Apache-2.0
"""How long does /metrics take under many scraping clients, and what does `nanwatch serve` use meanwhile?

    NANWATCH_BUILD=$PWD/build/release .venv/bin/python tests/bench/serve/scrape.py --seconds 300

The runs are real ones, `--live` of which go on training. Each client asks once in `--interval` seconds over a connection that it keeps,
as Prometheus does, at times drawn anew; with `--together` all of them at once. Between them one more asks for a path that is none: that is what a request costs that needs
nothing, and so the noise of the machine. Times are a client's: from the first byte sent (or the connect) to the last one received.
"""
import argparse
import heapq
import itertools
import json
import os
import pathlib
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/promises"))
from watched_job import NANWATCH, Workplace

TRAINING = '''
import pathlib, sys, time
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
while step < 12 or (len(sys.argv) > 1 and not pathlib.Path(sys.argv[1]).exists()):
    y = model(torch.rand(16, 4))
    loss = (torch.log(y - 1e6) if step == 5 else y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step > 12:
        time.sleep(0.1)
'''


class Client:
    """One connection, and at most one request on it."""

    def __init__(self, port, path):
        self._port, self._path, self._socket = port, path, None
        self._sent_at, self._got, self.reconnects = 0.0, b"", 0

    def start(self, selector):
        self._sent_at, self._got = time.perf_counter(), b""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.reconnects += 1
        try:
            self._socket.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n" % self._path)
        except ConnectionError:
            return self.reopen(selector)
        selector.register(self._socket, selectors.EVENT_READ, self)
        return None

    def reopen(self, selector):
        began = self._sent_at
        self._socket.close()
        self._socket = None
        self.start(selector)
        self._sent_at = began

    def read(self, selector):
        """Milliseconds once the answer is whole, else None."""
        try:
            piece = self._socket.recv(1 << 20)
        except ConnectionError:
            piece = b""
        self._got += piece
        if not piece and not self._got:  # The server had closed it before it saw the request.
            selector.unregister(self._socket)
            self.reopen(selector)
            return None
        head, _, body = self._got.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        if piece and (length is None or len(body) < int(length[1])):
            return None
        selector.unregister(self._socket)
        if b"Connection: close" in head or not piece:
            self._socket.close()
            self._socket = None
        status = int(head.split()[1])
        if status != (200 if self._path == b"/metrics" else 404):
            raise SystemExit(f"{self._path} was answered {status}")
        return (time.perf_counter() - self._sent_at) * 1e3


def used(pid):
    """Seconds of CPU time, and MiB that are resident."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    rss = int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), rss / 1024


def scrape(port, arguments):
    selector = selectors.DefaultSelector()
    scrapers = [Client(port, b"/metrics") for _ in range(arguments.clients)]
    plain = Client(port, b"/nothing")
    times = {scraper: [] for scraper in (*scrapers, plain)}
    start = time.perf_counter()

    def next_at(is_plain):
        now = time.perf_counter()
        if is_plain:
            return now + 0.1 * (0.5 + random.random())
        if arguments.together:
            return start + ((now - start) // arguments.interval + 1) * arguments.interval
        return now + arguments.interval * (0.5 + random.random())

    order = itertools.count()
    due = [(start + random.random() * arguments.interval, next(order), client) for client in times]
    heapq.heapify(due)
    while time.perf_counter() < start + arguments.seconds or selector.get_map():
        while due and due[0][0] <= time.perf_counter() < start + arguments.seconds:
            heapq.heappop(due)[2].start(selector)
        wait = (due[0][0] if due else start) - time.perf_counter()
        for key, _ in selector.select(max(0, min(wait, 1))):
            took = key.data.read(selector)
            if took is None:
                continue
            times[key.data].append(took)
            heapq.heappush(due, (next_at(key.data is plain), next(order), key.data))
    return [took for scraper in scrapers for took in times[scraper]], times[plain], sum(scraper.reconnects for scraper in scrapers)


def quantiles(times):
    times = sorted(times)
    return {name: round(times[min(len(times) - 1, int(len(times) * share))], 2) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--live", type=int, default=2)
    parser.add_argument("--interval", type=float, default=1)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--together", action="store_true", help="all clients ask at the same moment")
    parser.add_argument("--tool", action="append", help="another build's nanwatch to serve with, one after the other")
    arguments = parser.parse_args()
    workplace = Workplace()
    try:
        folder = pathlib.Path(tempfile.mkdtemp(dir=workplace.folder))
        program = folder / "training.py"
        program.write_text(TRAINING)
        for _ in range(arguments.runs - arguments.live):
            workplace.run_watched([sys.executable, program]).status()
        live = [workplace.run_watched([sys.executable, program, folder / "gate"]) for _ in range(arguments.live)]
        while json.loads(workplace.tool("top", "--once", "--json"))["runs"].__len__() < arguments.live:
            time.sleep(0.1)
        for tool in arguments.tool or [NANWATCH]:
            server = subprocess.Popen([tool, "serve", "--listen", "127.0.0.1:0"], env=workplace.watched, stderr=subprocess.PIPE, text=True)
            port = int(re.search(r":(\d+)/", server.stderr.readline())[1])
            before = used(server.pid)[0]
            began = time.perf_counter()
            scrapes, plain, reconnects = scrape(port, arguments)
            seconds, resident = used(server.pid)
            print(json.dumps({"tool": str(tool), "scrapes": len(scrapes), "connects": reconnects, "metrics_ms": quantiles(scrapes), "nothing_ms": quantiles(plain),
                              "core_percent": round(100 * (seconds - before) / (time.perf_counter() - began), 2), "resident_mib": round(resident, 1)}), flush=True)
            server.send_signal(signal.SIGTERM)
            server.wait(60)
        (folder / "gate").touch()
        for job in live:
            job.status()
    finally:
        workplace.close()


if __name__ == "__main__":
    main()
