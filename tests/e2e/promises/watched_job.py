# SPDX-License-Identifier: Apache-2.0
"""Runs programs with and without nanwatch, in directories of their own, and reads what was said about them.

A test makes one Workplace, starts its programs in it and closes it at its end. A daemon that `nanwatch run` starts for it is
the workplace's own, so one of the user's is neither used nor disturbed. NANWATCH_BUILD names the build tree under test.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("NANWATCH_BUILD") or pathlib.Path(__file__).resolve().parents[3] / "build/release")
NANWATCH = BUILD / "bin/nanwatch"
DAEMON = BUILD / "bin/nanwatchd"
PRELOAD = BUILD / "lib/libnanwatch.so"
LATE_COMPILER = pathlib.Path(__file__).resolve().parents[2] / "fakes/late_compiler"
TWINS = pathlib.Path(__file__).resolve().parent / "programs/forked_twins.py"
TIMEOUT_S = 1100  # below NANWATCH_HANGS_AFTER_S of tests/CMakeLists.txt, so that a job that hangs is named
JOBS_AT_ONCE = 6


def await_condition(holds, what, seconds=60):
    """Polls until `holds()` is true; a failure that names `what` where it does not become so in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"never so: {what}")
        time.sleep(0.01)


class Job:
    """A program that was started; everything else waits for its end."""

    def __init__(self, command, folder, environment, verdict_path, timeout_s):
        folder.mkdir()
        self._folder, self._verdict_path, self._timeout_s = folder, verdict_path, timeout_s
        self._out, self._err = folder / "stdout", folder / "stderr"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self._process = subprocess.Popen([str(part) for part in command], cwd=folder, env=environment,
                                             stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)

    def status(self):
        """As subprocess counts it: minus the signal's number when one ended it."""
        return self._process.wait(self._timeout_s)

    def runs(self):
        return self._process.poll() is None

    def stdout(self):
        self.status()
        return self._out.read_text()

    def stderr(self):
        self.status()
        return self._err.read_text()

    def file(self, name):
        """What the program left under this name in the folder it ran in."""
        self.status()
        return (self._folder / name).read_text()

    def verdict(self):
        self.status()
        if not self._verdict_path.exists():
            raise AssertionError(f"no verdict was written; stderr was:\n{self.stderr()}")
        return json.loads(self._verdict_path.read_text())

    def kill(self):
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Twin(Job):
    """One of the programs of forked_twins.py, which run one after another."""

    def __init__(self, folder, all_of_them):
        self._folder, self._all = folder, all_of_them
        self._out, self._err = folder / "stdout", folder / "stderr"

    def status(self):
        await_condition(lambda: (self._folder / "status").exists() or not self._all.runs(), f"{self._folder} ends", TIMEOUT_S)
        if not (self._folder / "status").exists():
            raise AssertionError(f"the twins ended early: {self._all.stderr()}")
        return int((self._folder / "status").read_text())


class Workplace:
    """At most JOBS_AT_ONCE of its jobs run side by side, so that a test that starts dozens needs no memory for all of them; one that has
    waited for a minute starts in any case, for those before it may wait for the test."""

    def __init__(self, timeout_s=TIMEOUT_S):
        self._timeout_s = timeout_s
        shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.segments = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-test-", dir=shared_memory))
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-test-"))
        self.state = self.folder / "state"
        self.state.mkdir(mode=0o700)
        self._jobs = []
        ours = ("NANWATCH_DIR", "NANWATCH_STATE_DIR", "NANWATCH_JOB", "NANWATCH_LEVEL", "NANWATCH_BUDGET", "NANWATCH",
                "NANWATCH_IGNORE", "NANWATCH_LOG", "NANWATCH_STATS", "NANWATCH_MEASURE", "NANWATCH_KERNELS", "NANWATCH_ON_ANOMALY",
                "NANWATCH_VET_CHECKPOINTS", "LD_PRELOAD")
        self.bare = {name: value for name, value in os.environ.items() if name not in ours}
        # A rank's place must come from the test alone.
        self.bare = {name: value for name, value in self.bare.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        # Threads of OpenMP that find no work spin, and jobs that share two cores spin in each other's way. Results stay the same.
        self.bare.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        self.bare["PYTHONPATH"] = os.pathsep.join([str(LATE_COMPILER), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.watched = self.bare | {"NANWATCH_DIR": str(self.segments), "NANWATCH_STATE_DIR": str(self.state)}

    def program(self, name, text):
        """Writes a Python program and returns the command that runs it."""
        path = self.folder / f"{name}.py"
        path.write_text(text)
        return [sys.executable, path]

    def run_bare(self, command, **environment):
        return self._start(command, self.bare | environment, None)

    def run_bare_twins(self, commands):
        """Jobs as of run_bare, for commands of Python by name, for which torch is imported only once: for results, not for start or end."""
        folder = self.folder / f"twins-{len(self._jobs)}"
        folder.mkdir()
        listed = {name: {"folder": str(folder / str(number)), "command": [str(part) for part in command[1:]]}
                  for number, (name, command) in enumerate(commands.items())}
        for job in listed.values():
            pathlib.Path(job["folder"]).mkdir()
        (folder / "jobs.json").write_text(json.dumps(list(listed.values())))
        together = self.run_bare([sys.executable, TWINS, folder / "jobs.json"])
        return {name: Twin(pathlib.Path(job["folder"]), together) for name, job in listed.items()}

    def run_watched(self, command, options=(), **environment):
        """Under `nanwatch run`."""
        verdict = self.folder / f"verdict-{len(self._jobs)}.json"
        return self._start([NANWATCH, "run", "--verdict", verdict, *options, "--", *command], self.watched | environment, verdict)

    def run_preloaded(self, command, **environment):
        """With the library preloaded and nothing else: no tool, no daemon."""
        return self._start(command, self.watched | {"LD_PRELOAD": str(PRELOAD)} | environment, None)

    def tool(self, *arguments):
        """The standard output of `nanwatch ARGUMENTS`."""
        ran = subprocess.run([NANWATCH, *arguments], env=self.watched, capture_output=True, text=True, timeout=TIMEOUT_S)
        if ran.returncode:
            raise AssertionError(f"nanwatch {' '.join(arguments)} ended with {ran.returncode}: {ran.stderr}")
        return ran.stdout

    def close(self):
        for job in self._jobs:
            job.kill()
        for lock in self.segments.glob("daemon*.lock"):  # in a container its name has a key
            self._stop_daemon(lock)
        shutil.rmtree(self.segments, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, command, environment, verdict):
        deadline = time.monotonic() + 60
        while sum(job.runs() for job in self._jobs) >= JOBS_AT_ONCE and time.monotonic() < deadline:
            time.sleep(0.01)
        job = Job(command, self.folder / f"job-{len(self._jobs)}", environment, verdict, self._timeout_s)
        self._jobs.append(job)
        return job

    def _stop_daemon(self, lock):
        try:
            pid = int(lock.read_text().split()[0])
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() != "nanwatchd":
                return
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 10
            while pathlib.Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        except (OSError, ValueError, IndexError):
            pass  # None was started, or it has left.


class PromiseTest(unittest.TestCase):
    """One workplace for the cases of a class: they start their programs together in `start`, and each waits for its own."""

    WORKPLACE = Workplace

    @classmethod
    def setUpClass(cls):
        cls.workplace = cls.WORKPLACE()
        cls.addClassCleanup(cls.workplace.close)
        cls.start(cls.workplace)

    @classmethod
    def start(cls, workplace):
        pass

    def assert_same(self, bare, watched):
        """Output and exit status are what they are without us."""
        self.assertEqual(bare.status(), 0, bare.stderr())
        self.assertEqual(watched.status(), bare.status(), watched.stderr())
        self.assertNotEqual(bare.stdout(), "")
        self.assertEqual(watched.stdout(), bare.stdout())

    def assert_clean(self, watched, runs=1):
        """And it was really looked at."""
        verdict = watched.verdict()
        seen = {part: verdict[part] for part in ("unknown_because", "coverage", "unwatched", "incidents")}
        self.assertEqual(verdict["verdict"], "clean", seen)
        self.assertEqual(len(verdict["runs"]), runs, verdict["runs"])
        self.assertGreater(int(verdict["coverage"]["tensors_checked"]), 0)
        self.assertEqual(int(verdict["coverage"]["lost_events"]), 0)
        return verdict


def origins(verdict):
    return [incident["origin"] for incident in verdict["incidents"]]
