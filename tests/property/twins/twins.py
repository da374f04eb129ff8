# SPDX-License-Identifier: Apache-2.0
"""Random training programs, each run twice: as it is, and watched. Bits, output and exit status are the same, and none hangs.

  twins.py --first 1 --count 14        the programs of the seeds 1 to 14; the seed also chooses how it ends, and the level
  twins.py --count 1000 --seconds 3600 -v
  twins.py --first 17 --count 1 --ending abort --level full
  twins.py --fake-gpu --count 60       each on the fake device of tests/fakes/torch_cuda, which is as late as the seed says

A program is one of tests/property/programs with one of endings.py behind it. It runs in a process of its own, with a real daemon that
reads what it writes. Where the two differ, the bare one is run once more: programs that read memory that nobody has written differ from
themselves, and are counted apart. Exit status 1: one was different, or took more than 1.5 times as long and a start.
"""
import argparse
import collections
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))

import generate  # noqa: E402
from endings import DIGEST, ENDINGS  # noqa: E402

BUILD = pathlib.Path(os.environ.get("NANWATCH_BUILD") or HERE.parents[2] / "build/release")
LATE_COMPILER = HERE.parents[1] / "fakes/late_compiler"
FAKE_GPU = HERE.parents[1] / "fakes/torch_cuda/run.py"
# How late the fake device is: launches behind, how long what we launch takes, and whether memory can be registered with it.
LATENESS = ({"NANWATCH_FAKE_LAG": "0"}, {"NANWATCH_FAKE_LAG": "50"}, {"NANWATCH_FAKE_LAG": "1500"}, {"NANWATCH_FAKE_OWN_LAG_MS": "100"},
            {"NANWATCH_FAKE_LAG": "50", "NANWATCH_FAKE_NO_REGISTRATION": "1"})
LEVELS = ("full", "sampled", "canary", "idle", "auto")
TIMES_MAX = 1.5
START_S = 30  # of a watched process, next to other work
HANGS_AFTER_S = 300


@dataclasses.dataclass
class Ended:
    status: int
    out: bytes
    err: bytes
    seconds: float

    def differs(self, other):
        """What is not the same. Addresses never are."""
        return [name for name in ("status", "out", "err") if getattr(self, name) != getattr(other, name)]


class Twins:
    def __init__(self, fake_gpu=False):
        self._fake_gpu = fake_gpu
        shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._segments = tempfile.mkdtemp(prefix="nanwatch-twins-", dir=shared_memory)
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-twins-"))
        self._state = self._folder / "state"
        bare = {name: value for name, value in os.environ.items() if not name.startswith("NANWATCH") and name != "LD_PRELOAD"}
        self._bare = bare | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(LATE_COMPILER)}
        self._watched = self._bare | {"LD_PRELOAD": str(BUILD / "lib/libnanwatch.so"), "NANWATCH_DIR": self._segments,
                                      "NANWATCH_STATE_DIR": str(self._state), "NANWATCH_LOG": str(self._folder / "log")}
        environment = {name: value for name, value in self._watched.items() if name != "LD_PRELOAD"}
        self._daemon = subprocess.Popen([BUILD / "bin/nanwatchd"], env=environment, stderr=subprocess.DEVNULL)

    def run(self, seed, ending, level):
        """The bare one and the watched one, whichever comes first."""
        program = self._folder / "train.py"
        program.write_text(generate.generate(seed)[0] + DIGEST + ENDINGS[ending])
        device = self._device(seed)
        watched = self._watched | device | {"NANWATCH_LEVEL": level} | ({"NANWATCH_BUDGET": "5"} if level == "auto" else {})
        both = {}
        for name, environment in random.Random(f"order {seed}").sample([("bare", self._bare | device), ("watched", watched)], 2):
            both[name] = self._run(program, environment)
        return both["bare"], both["watched"]

    def again(self, seed):
        return self._run(self._folder / "train.py", self._bare | self._device(seed))

    def _device(self, seed):
        if not self._fake_gpu:
            return {}
        library = BUILD / "tests/fakes/torch_cuda/libfake_torch_cuda.so"
        return {"NANWATCH_FAKE_TORCH_CUDA": str(library)} | random.Random(f"device {seed}").choice(LATENESS)

    def _run(self, program, environment):
        began = time.monotonic()
        launcher = [FAKE_GPU, "--default-device"] if self._fake_gpu else []
        process = subprocess.Popen([sys.executable, *launcher, program], env=environment, cwd=self._folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = process.communicate(timeout=HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            err += b"HANGS"
        return Ended(process.returncode, *(re.sub(rb"0x[0-9a-f]{6,}", b"0x...", text) for text in (out, err)), time.monotonic() - began)

    def close(self):
        """What is wrong with the daemon or its database; how many runs it has."""
        alive = self._daemon.poll() is None
        self._daemon.terminate()
        status = self._daemon.wait(120)
        database = sqlite3.connect(self._state / "nanwatch.db")
        sound = database.execute("PRAGMA integrity_check").fetchone()[0]
        runs = database.execute("SELECT count(*) FROM run").fetchone()[0]
        database.close()
        said = (self._folder / "log").read_text(errors="replace") if (self._folder / "log").exists() else ""
        shutil.rmtree(self._segments, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        wrong = [] if alive and status == 0 and sound == "ok" else [f"the daemon: alive {alive}, status {status}, database {sound}"]
        return wrong, runs, said


def chosen(seed, arguments):
    """How the program of this seed ends, and its level: all pairs in turn."""
    endings, levels = tuple(ENDINGS), LEVELS
    return (arguments.ending or endings[seed % len(endings)],
            arguments.level or levels[(seed + seed // len(endings)) % len(levels)])


def compare(twins, seed, ending, level, counts, wrong):
    bare, watched = twins.run(seed, ending, level)
    name = f"seed {seed}, {ending}, level {level}"
    differs = watched.differs(bare)
    if differs and twins.again(seed).differs(bare):
        counts["differ from themselves"] += 1
        return f"{name}: differs from itself in {', '.join(differs)}: {bare}", bare, watched
    counts["the same" if not differs else "different"] += 1
    if differs:
        wrong.append(f"{name}: {', '.join(differs)} differ\n  bare    {bare}\n  watched {watched}")
    if watched.seconds > TIMES_MAX * bare.seconds + START_S:
        wrong.append(f"{name}: took {watched.seconds:.1f} s, and {bare.seconds:.1f} s bare")
    return f"{name}: {', '.join(differs) or 'the same'}; {bare.seconds:.1f} s, {watched.seconds:.1f} s", bare, watched


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further program after so long")
    parser.add_argument("--ending", choices=tuple(ENDINGS))
    parser.add_argument("--level", choices=LEVELS)
    parser.add_argument("--fake-gpu", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    twins, counts, wrong, ratios, trained = Twins(arguments.fake_gpu), collections.Counter(), [], [], 0
    deadline = time.monotonic() + arguments.seconds
    for seed in range(arguments.first, arguments.first + arguments.count):
        if time.monotonic() > deadline:
            break
        line, bare, watched = compare(twins, seed, *chosen(seed, arguments), counts, wrong)
        trained += b"trained" in bare.out
        ratios.append(watched.seconds / bare.seconds)
        if arguments.verbose:
            print(line, flush=True)
    daemon_wrong, runs, said = twins.close()
    wrong += daemon_wrong
    ratios.sort()
    print(f"{sum(counts.values())} twins: {dict(counts)}; {trained} trained to their end; {runs} runs in the database; watched over bare: median "
          f"{ratios[len(ratios) // 2]:.2f}, largest {ratios[-1]:.2f}")
    print("\n".join(wrong + ([said] if wrong and said else [])))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
