# SPDX-License-Identifier: Apache-2.0
"""waiting_test.py TESTS: no test hopes for time, a port or an address.

Fails where a source of TESTS sleeps that is not listed here with its reason, names a port that is not 0, or loops until an object lies at
an address. It reads text, not meaning: a listed file may still use its pause badly, and a pause with another name is not found.
"""
import pathlib
import re
import sys
import unittest

TESTS = pathlib.Path(sys.argv[1]).resolve()
SOURCES = ("*.py", "*.cc", "*.c", "*.h", "*.sh", "*.cmake", "CMakeLists.txt")

POLL = "the pause of a poll that has a deadline"
RELEASED = "the pause of a program that its test releases by a file and ends in any case"
NEVER_ENDS = "programs that are to be killed"
DEVICE = "the pace of a fake device; who waits for it waits for its answer"
# How many pauses each file may have, and why.
PAUSES = {
    "bench/daemon/load.py": (1, "for what a tail prints last; nothing is asserted of it"),
    "bench/daemon/measured.py": (1, POLL),
    "bench/daemon/soak.py": (3, "the pace of jobs that come and go; " + POLL),
    "bench/daemon/writer.cc": (1, "the pace of a job's writer"),
    "bench/fleet/cost.py": (1, "how long is measured"),
    "bench/overhead/observer_switch.py": (1, POLL),
    "bench/serve/scrape.py": (2, "the pace of a job that is scraped; " + POLL),
    "corpus/process_groups_test.py": (2, NEVER_ENDS),
    "corpus/programs/c080.py": (1, "a job that is killed a moment after its loss went bad; nothing need happen in it"),
    "daemon/loop/daemon_test.cc": (1, POLL),
    "daemon/loop/killed_daemon_test.cc": (1, "a daemon is killed at any moment: what is asserted holds at each"),
    "daemon/loop/nanwatchd_test.cc": (1, POLL),
    "tools/capsule_test.cc": (1, "a job is killed at any moment: what is asserted holds at each"),
    "e2e/gpu/exit_soak.py": (3, NEVER_ENDS + "; and one that goes on for a while after a reset, in which it must not die"),
    "e2e/gpu/findings_test.py": (1, POLL),
    "e2e/gpu/kernels_test.py": (1, POLL),
    "e2e/gpu/lifetimes_test.py": (2, NEVER_ENDS),
    "e2e/promises/containers_test.py": (2, POLL),
    "e2e/promises/late_test.py": (2, RELEASED + "; " + POLL),
    "e2e/promises/programs/attended.py": (1, RELEASED),
    "e2e/promises/programs/starved_start.c": (1, POLL),
    "e2e/promises/starved_start_test.py": (1, POLL),
    "e2e/promises/unknown_test.py": (1, POLL),
    "e2e/promises/watched_job.py": (3, POLL),
    "e2e/ranks/launchers_test.py": (1, "ranks that wait for each other, in a launcher that is given up in time"),
    "e2e/serve/programs/goes_nan.py": (1, RELEASED),
    "e2e/ranks/slurm.py": (1, POLL),
    "e2e/promises/programs/children.py": (1, POLL),
    "e2e/ranks/programs/slow_threads.c": (1, "threads that are to be slow: whichever comes first, what is asserted holds"),
    "e2e/stats/programs/long_training.py": (1, POLL),
    "e2e/wrong_use/bad_input_test.cc": (1, POLL),
    "e2e/wrong_use/tool_process.cc": (1, POLL),
    "fakes/cuda/fake_cuda.cc": (2, DEVICE + "; and how long its driver takes to end"),
    "fakes/cupti/fake_cupti.cc": (1, "how long a flush takes, as a test asks for it"),
    "fakes/faulty_disk.cc": (1, "how long a sync takes, as a test asks for it"),
    "faults/fleet/fleet_faults.py": (1, "things are killed at any moment: what is asserted holds at each"),
    "faults/frozen_cgroup_test.cc": (2, "a job that asks what to write next; " + POLL),
    "faults/hostile_index_test.cc": (2, "the pace of a hostile writer; what is asserted holds at any"),
    "faults/stopped_daemon_test.cc": (1, POLL),
    "fakes/torch/libtorch_cpu.c": (1, "a constructor that takes as long as the real one; who waits for it waits for its end"),
    "fakes/torch_cuda/fake_device.cc": (1, DEVICE),
    "gpu/ends.py": (1, "a program that goes on for a while after a reset, in which it must not die"),
    "gpu/session_test.py": (3, NEVER_ENDS),
    "gpu/watched_test.py": (1, NEVER_ENDS),
    "proto/place_test.cc": (1, "what tells the starts of two processes apart: ticks of 10 ms"),
    "shim/entry/programs/host.c": (1, POLL),
    "shim/entry/start_test.cc": (1, POLL),
    "shim/observe/python/install_test.py": (2, "a thread that is to be busy at the end; and a while in which nothing is to happen"),
    "tools/child_test.cc": (1, "the pause of a poll that ends with its parent"),
    "tools/inject/kills_test.py": (3, "a tool is killed at any moment: what is asserted holds at each; " + POLL),
    "tools/inject/registers.c": (1, "the pace of a program that its test ends"),
    "tools/inject/soak_test.py": (2, "calls that wait are what is tested; " + POLL),
    "tools/inject/victim.py": (4, "calls that wait are what is tested; " + RELEASED),
}
PAUSE = re.compile(r"\b(?:time\.sleep|sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep)\s*\(")
PORT = re.compile(r"""MASTER_PORT[\]"'=:, ]+[1-9]|master[-_]port["'=, ]+[1-9]|(?:tcp://[\w.]+|localhost|127\.0\.0\.1):[1-9]"""
                  r"""|\.bind\(\(["'][^"']*["'], *[1-9]""")
# A port that was free may be another's a moment later.
BORROWED_PORT = re.compile(r"\.getsockname\(\)\[1\]")
BORROWED = {"corpus/naive_methods.py": "compare.py alone uses it, which no test runs",
            "e2e/ranks/slurm.py": "Slurm takes no port 0; a start that finds its port taken is tried again with others"}
WHILE = re.compile(r"^( *)while\b")
ADDRESS = re.compile(r"\bid\(|\bdata_ptr\(")


def sources():
    """The name of each source, and its text."""
    for pattern in SOURCES:
        for path in sorted(TESTS.rglob(pattern)):
            if path != pathlib.Path(__file__).resolve():
                yield path.relative_to(TESTS).as_posix(), path.read_text(errors="replace")


def loops(text):
    """Each `while` of Python's, in programs within strings too: the number of its line, and its text."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if found := WHILE.match(line):
            deeper = len(found[1])
            end = number + 1
            while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > deeper):
                end += 1
            yield number + 1, "\n".join(lines[number:end])


def pauses(text):
    return len(PAUSE.findall(text))


def ports(text):
    return [number for number, line in enumerate(text.splitlines(), 1) if PORT.search(line)]


def address_loops(text):
    return [number for number, loop in loops(text) if ADDRESS.search(loop)]


class Waiting(unittest.TestCase):
    maxDiff = None

    def test_no_source_sleeps_but_where_it_is_said_why(self):
        found = {name: pauses(text) for name, text in sources() if pauses(text)}
        self.assertEqual(found, {name: count for name, (count, _) in PAUSES.items()},
                         "wait for a condition, with a deadline (await_condition of e2e/promises/watched_job.py)")

    def test_no_source_names_a_port(self):
        self.assertEqual([(name, ports(text)) for name, text in sources() if ports(text)], [], "bind to port 0, or meet at a file")

    def test_no_source_borrows_a_port(self):
        self.assertEqual([name for name, text in sources() if BORROWED_PORT.search(text)], list(BORROWED), "meet at a file")

    def test_no_source_loops_until_something_has_an_address(self):
        self.assertEqual([(name, address_loops(text)) for name, text in sources() if name.endswith(".py") and address_loops(text)], [],
                         "an allocator need never give it: make so many objects and look among them")


class Finding(unittest.TestCase):
    """What it finds, and what it leaves alone."""

    def test_pauses(self):
        self.assertEqual([pauses(line) for line in ("time.sleep(1)", "std::this_thread::sleep_for(each);", "  usleep (20);", "nanosleep(&t, 0);",
                                                    "torch.cuda._sleep(9)", "sleeper()", "sleep 1")], [1, 1, 1, 1, 0, 0, 0])

    def test_ports(self):
        for line in ("os.environ['MASTER_PORT'] = '29500'", "env=dict(MASTER_PORT=29400)", 'init_method="tcp://127.0.0.1:23456"',
                     '"--master-port", "29511"', 's.bind(("", 8080))', "http://localhost:9464/"):
            self.assertEqual(ports(line), [1], line)
        for line in ("MASTER_PORT=str(port)", 's.bind(("127.0.0.1", 0))', "file:///tmp/store", "localhost:0"):
            self.assertEqual(ports(line), [], line)

    def test_address_loops(self):
        self.assertEqual(address_loops('PROGRAM = """\nwhile True:\n    made = Made()\n\n    if id(made) == address:\n        break\n"""'), [2])
        self.assertEqual(address_loops("while x.data_ptr() != p: x = torch.ones(1)"), [1])
        self.assertEqual(address_loops("while True:\n    step()\nseen = id(model)\n"), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
