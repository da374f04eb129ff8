# SPDX-License-Identifier: Apache-2.0
"""Jobs of a known culprit through PostgreSQL: two gatherers get the rows in any order, and the fleet names who began it soon after the last.

    seeded_test.py [--count N] [--first SEED] [--ranks-max N]     a longer run by hand: prints how long the right answer took
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from cluster import BUILD, MISSING, Cluster, Gatherer

SEEDED_JOBS = BUILD / "tests/seeded_jobs"
SHORT = argparse.Namespace(first=1, count=6, ranks_max=256)
# From the last row until the right answer is there; besides, an answer takes as long as the machine's other work lets it.
ANSWERED_WITHIN_S = 2


def is_right(told, document):
    """Whether the answer is what is known of the job: its first rank, or that nobody knows."""
    incidents = [incident for incident in document["incidents"] if incident["severity"] in ("critical", "error")]
    origin = incidents[0]["origin"] if incidents else None
    if not told["culprits"]:
        return origin is None and document["verdict"] in ("clean", "expected", "unknown", "anomaly")
    named = origin is not None and any(
        origin["rank"] == one["rank"] and int(origin["step"]) == one["step"] and one["op"] in (origin["op"], "") and one["layer"] in (origin["layer"], "")
        for one in told["culprits"])
    if told["is_decided"]:
        return named and (origin["exact"] or told["silent"] > 0)
    return origin is None or named or (origin["class"] in ("received", "propagate") and not origin["exact"])


class Jobs:
    def __init__(self, options):
        self._folder = tempfile.TemporaryDirectory()
        self._path = pathlib.Path(self._folder.name)
        made = subprocess.run([SEEDED_JOBS, "--first", str(options.first), "--count", str(options.count), "--ranks-max", str(options.ranks_max),
                               "--write", self._path], capture_output=True, text=True, timeout=1200)
        assert made.returncode == 0, made.stdout
        self.told = [json.loads(path.read_text()) for path in sorted(self._path.glob("*.json"))]

    def requests(self, told):
        return [path.read_bytes() for path in sorted(self._path.glob(f"{told['job']}.*.request"))]

    def close(self):
        self._folder.cleanup()


def send_all(gatherers, requests):
    with ThreadPoolExecutor(4) as senders:
        answers = list(senders.map(lambda item: gatherers[item[0] % len(gatherers)].send(item[1]), enumerate(requests)))
    assert all(status == 200 and not body for status, body, _ in answers), [answer[:2] for answer in answers if answer[0] != 200][:3]


def seconds_until_right(gatherer, told, deadline_s):
    """Since the last row was acknowledged; None: it never was, with what was said instead."""
    began = time.monotonic()
    while True:
        status, body, _ = gatherer.ask("GET", f"/api/v1/jobs/{told['job']}/verdict")
        took = time.monotonic() - began
        if status == 200 and is_right(told, json.loads(body)):
            return took
        if took > deadline_s:
            raise AssertionError(f"{told}: {body[:2000]}")


def try_all(cluster, folder, options, deadline_s):
    """Seconds of each job."""
    gatherers = [Gatherer(cluster, folder, "--read-database", cluster.connection("asker")) for _ in range(2)]
    jobs = Jobs(options)
    try:
        took = []
        for told in jobs.told:
            requests = jobs.requests(told)
            send_all(gatherers, requests[:-1])
            # Somebody looks on all the time: what is kept for them must not keep the answer back.
            gatherers[0].ask("GET", f"/api/v1/jobs/{told['job']}/verdict")
            send_all(gatherers, requests[-1:])
            took.append(seconds_until_right(gatherers[0], told, deadline_s))
        return took
    finally:
        jobs.close()
        for gatherer in gatherers:
            gatherer.stop()


@unittest.skipIf(MISSING or not SEEDED_JOBS.exists(), MISSING or "seeded_jobs is not built")
class Seeded(unittest.TestCase):
    def test_the_first_rank_is_named_whatever_comes_when(self):
        cluster = Cluster()
        self.addCleanup(cluster.close)
        cluster.make_fleet()
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(try_all(cluster, pathlib.Path(folder), SHORT, deadline_s=120)), SHORT.count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("first", "count", "ranks_max"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(SHORT, name))
    options = parser.parse_args()
    cluster = Cluster()
    try:
        cluster.make_fleet()
        with tempfile.TemporaryDirectory() as folder:
            took = sorted(try_all(cluster, pathlib.Path(folder), options, deadline_s=120))
        late = sum(one > ANSWERED_WITHIN_S for one in took)
        print(f"{len(took)} jobs of up to {options.ranks_max:,} ranks: the right answer {took[len(took) // 2]:.2f} s after the last row,"
              f" p99 {took[len(took) * 99 // 100]:.2f} s, longest {took[-1]:.2f} s; {late} later than {ANSWERED_WITHIN_S} s")
    finally:
        cluster.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main()
    else:
        unittest.main()
