# SPDX-License-Identifier: Apache-2.0
"""Runs random training programs under nanwatch and compares what it says with what an independent oracle says.

  run.py --first 1 --count 1000          programs of the seeds 1 to 1000
  run.py --first 17 --count 1 -v         one, with both answers; `generate.py 17` prints it
  run.py --min-agreement 99              exit 1 when fewer than 99 percent agree in class and origin
  run.py --holes --count 1000            programs that nanwatch cannot see whole (holes.py); exit 1 when it claims what is not so
  run.py --device cuda --level sampled     programs whose default device is a GPU; the oracle stays on the CPU
  run.py --level sampled --sample-limit 64   at another level, at which it may not claim what is not so either

Two processes work side by side: one forks a child per program under nanwatch (watched.py), one runs the oracle (oracle_all.py).
See tests/property/README.md.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

import agreement
from holes import HOLES

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
PROGRESS_EVERY_S = 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanwatch", type=pathlib.Path, default=ROOT / "build/release/bin/nanwatch")
    parser.add_argument("--python", default=sys.executable, help="runs the programs")
    parser.add_argument("--launcher", help="a Python program, with its arguments, that runs each program in a process of its own")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--holes", nargs="?", const=",".join(HOLES), metavar="NAME,NAME",
                        help="programs with holes, of all kinds or of these (holes.py); what counts is that no wrong answer is called exact")
    parser.add_argument("--level", help="the level that programs begin at, as for 'nanwatch run' (default: its own)")
    parser.add_argument("--sample-limit", type=int, metavar="BYTES",
                        help="at level sampled, larger results are read in part (default: the size of a cache, which few programs reach)")
    parser.add_argument("--device", help="the programs' default device, for example cuda; the oracle stays on the CPU, and those that cannot run so are not counted")
    parser.add_argument("--min-sure", type=float, default=0, metavar="PERCENT", help="with --holes: of programs whose origin is called exact")
    parser.add_argument("--min-agreement", type=float, default=0, metavar="PERCENT")
    parser.add_argument("--out", type=pathlib.Path, help="write every disagreement there, one JSON line each")
    parser.add_argument("-v", "--verbose", action="store_true", help="both answers of every program")
    return parser.parse_args()


def lines_of(process, found, arrived):
    """Collects the JSON lines of a process by seed."""
    for line in process.stdout:
        told = json.loads(line)
        with arrived:
            found[told["seed"]] = told
            arrived.notify()


class Pair:
    """The two processes, and what they said so far."""

    def __init__(self, arguments, segments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH") and k != "LD_PRELOAD"}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        library = arguments.nanwatch.parent.parent / "lib" / "libnanwatch.so"
        watched = environment | {"LD_PRELOAD": str(library), "NANWATCH_DIR": segments, "NANWATCH_STATE_DIR": segments + "/state"}
        if arguments.level:
            watched["NANWATCH_LEVEL"] = arguments.level
        if arguments.device:
            watched["NANWATCH_PROGRAMS_DEVICE"] = arguments.device
        if arguments.sample_limit is not None:
            watched["NANWATCH_TEST_SAMPLE_LIMIT"] = str(arguments.sample_limit)
        if "NANWATCH_PROGRAMS_VERBOSE" in os.environ:
            watched["NANWATCH_PROGRAMS_VERBOSE"] = "1"
        quiet = None if arguments.verbose else subprocess.DEVNULL
        numbers = [str(arguments.first), str(arguments.count)]
        holes = [f"--holes={arguments.holes}"] if arguments.holes else []
        watcher = [HERE / "watched.py", arguments.nanwatch, *numbers, *holes]
        if arguments.launcher:
            watcher = [HERE / "watched_apart.py", arguments.nanwatch, *numbers, *shlex.split(arguments.launcher)]
        self.processes = [
            subprocess.Popen([arguments.python, *watcher], env=watched,
                             stdout=subprocess.PIPE, stderr=quiet, text=True),
            subprocess.Popen([arguments.python, HERE / "oracle_all.py", *numbers, *holes], env=environment, stdout=subprocess.PIPE,
                             stderr=quiet, text=True)]
        self.said, self.right = {}, {}
        self.arrived = threading.Condition()
        self.readers = [threading.Thread(target=lines_of, args=(process, found, self.arrived), daemon=True)
                        for process, found in zip(self.processes, (self.said, self.right))]
        for reader in self.readers:
            reader.start()

    def take(self, seed):
        """What both say of a program; None when one of them ended before."""
        with self.arrived:
            while seed not in self.said or seed not in self.right:
                silent = [found for found, reader in zip((self.said, self.right), self.readers)
                          if seed not in found and not reader.is_alive()]
                if silent:
                    return None
                self.arrived.wait(1)
            return self.said.pop(seed), self.right.pop(seed)

    def stop(self):
        for process in self.processes:
            process.terminate()
            process.wait()


class Tally:
    def __init__(self):
        self.programs = 0
        self.unable = 0
        self.origins = 0
        self.right = 0
        self.by_field = collections.Counter()
        self.of_field = collections.Counter()
        self.verdicts = collections.Counter()
        self.disagreements = []
        self.sure = 0
        self.wrong_and_sure = collections.Counter()

    def add(self, seed, said, right):
        result = agreement.compare(right["answer"], said["verdict"])
        self.programs += 1
        self.origins += agreement.origin_agrees(result)
        self.right += agreement.agrees(result)
        self.verdicts[right["answer"]["verdict"][0]] += 1
        for field, agrees in result.items():
            self.of_field[field] += 1
            self.by_field[field] += agrees
        if not agreement.agrees(result):
            fields = ",".join(field for field, agrees in result.items() if not agrees)
            self.disagreements.append((seed, fields, right, said))
            print(f"seed {seed} differs in {fields}  [{right['plan']}: {', '.join(p for p in right['parts'] if 'healthy:' not in p)}]\n"
                  f"    oracle    {agreement.one_line(right['answer'])}\n    nanwatch  {agreement.said_line(said['verdict'])}", flush=True)
        return result

    def add_claim(self, seed, said, right):
        """What it was sure of: (whether it named an exact origin, what is wrong with its claim or "")."""
        verdict = said["verdict"]
        exact = bool(verdict and verdict["verdict"] == "anomaly") and verdict["incidents"][0]["origin"]["exact"]
        wrong = agreement.wrong_and_sure(right["answer"], verdict)
        self.sure += exact
        if wrong:
            self.wrong_and_sure[wrong] += 1
            print(f"seed {seed}: {wrong}  [{right['plan']}: {', '.join(p for p in right['parts'] if 'healthy:' not in p)}]\n"
                  f"    oracle    {agreement.one_line(right['answer'])}\n    nanwatch  {agreement.said_line(verdict)}", flush=True)
        return exact, wrong

    def claims(self):
        told = ", ".join(f"{count} {what}" for what, count in self.wrong_and_sure.most_common()) or "none"
        return f"origins called exact: {self.sure}; wrong and sure: {told}"

    def table(self, seconds):
        lines = ["", "field      agree     of", "-------  -------  -----"]
        for field in agreement.FIELDS:
            if self.of_field[field]:
                lines.append(f"{field:7}  {100 * self.by_field[field] / self.of_field[field]:6.2f} %  {self.of_field[field]:5}")
        told = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common())
        lines += ["", f"{self.programs} programs ({told}) in {seconds:.0f} s, {self.programs / seconds:.1f} a second",
                  f"class and origin agree: {self.origins} of {self.programs} ({self.percent():.2f} %); all fields: {self.right}"]
        if self.unable:
            lines.append(f"{self.unable} more could not run on that device")
        return "\n".join(lines)

    def percent(self):
        return 100 * self.origins / self.programs if self.programs else 0.0


class TallyOfLevel(Tally):
    """Of programs at a level that does not read everything: how often it was sure, and of what that is wrong."""

    def add(self, seed, said, right):
        result = super().add(seed, said, right)
        self.add_claim(seed, said, right)
        return result

    def table(self, seconds):
        return super().table(seconds) + "\n" + self.claims()


class TallyOfHoles(Tally):
    """Of programs that cannot be seen whole: an answer may be wrong, and must not be sure of it."""

    def __init__(self):
        super().__init__()
        self.by_hole = {name: collections.Counter() for name in HOLES}

    def add(self, seed, said, right):
        with contextlib.redirect_stdout(None):
            result = super().add(seed, said, right)
        verdict = said["verdict"]
        has_origin = bool(verdict and verdict["verdict"] == "anomaly")
        exact, wrong = self.add_claim(seed, said, right)
        for part in right["parts"]:
            if part.startswith("hole:"):
                of_hole = self.by_hole[part.removeprefix("hole:")]
                of_hole.update({"programs": 1, "origins": has_origin, "exact": exact, "right": exact and not wrong, "wrong": bool(wrong),
                                "unknown": bool(verdict and verdict["verdict"] == "unknown")})
        return result

    def table(self, seconds):
        lines = [super().table(seconds), "", "hole                 programs  anomalies  exact  unknown  wrong and sure",
                 "-------------------  --------  ---------  -----  -------  --------------"]
        lines += [f"{name:19}  {of['programs']:8}  {of['origins']:9}  {of['exact']:5}  {of['unknown']:7}  {of['wrong']:14}"
                  for name, of in self.by_hole.items() if of["programs"]]
        return "\n".join(lines + ["", self.claims()])


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what there is by then is told
    arguments = parse_arguments()
    arguments.nanwatch = arguments.nanwatch.resolve()
    if not arguments.nanwatch.exists():
        sys.exit(f"{arguments.nanwatch} does not exist: build it first, or say where it is with --nanwatch")
    if arguments.launcher:
        agreement.STEPS_BEFORE.clear()  # There is no healthy step before the program.
    segments = tempfile.mkdtemp(prefix="nanwatch-programs-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    tally = TallyOfHoles() if arguments.holes else TallyOfLevel() if arguments.level else Tally()
    began = told = time.monotonic()
    missing, stopped = [], False
    pair = Pair(arguments, segments)
    try:
        for seed in range(arguments.first, arguments.first + arguments.count):
            both = pair.take(seed)
            if both is None:
                missing.append(seed)
                break
            if (arguments.launcher or arguments.device) and both[0]["status"] and not both[1]["answer"]["raised"]:
                tally.unable += 1  # It needs something that the launcher's device does not have.
                continue
            tally.add(seed, *both)
            if arguments.verbose:
                print(f"seed {seed}\n    oracle    {agreement.one_line(both[1]['answer'])}\n"
                      f"    nanwatch  {agreement.said_line(both[0]['verdict'])}\n    {both[1]['answer']['raised']}")
            if time.monotonic() - told > PROGRESS_EVERY_S:
                told = time.monotonic()
                print(f"[{tally.programs}/{arguments.count}] {tally.percent():.2f} % agree, "
                      f"{tally.programs / (told - began):.1f} programs a second", flush=True)
    except KeyboardInterrupt:
        stopped = True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the end comes, and may be asked for twice
    finally:
        pair.stop()
        shutil.rmtree(segments, ignore_errors=True)
    print(tally.table(time.monotonic() - began))
    if arguments.out:
        with open(arguments.out, "w") as out:
            for seed, fields, right, said in tally.disagreements:
                out.write(json.dumps({"seed": seed, "fields": fields, "right": right, "said": said}) + "\n")
    if stopped:
        sys.exit(f"stopped after {tally.programs} of {arguments.count} programs")
    if missing:
        sys.exit(f"one of the two processes ended before the program of seed {missing[0]}")
    if tally.wrong_and_sure:
        sys.exit("nanwatch was sure of what is not so")
    if arguments.holes and 100 * tally.sure < arguments.min_sure * tally.programs:
        sys.exit(f"sure of fewer than the {arguments.min_sure:g} % that are asked for")
    if tally.percent() < arguments.min_agreement:
        sys.exit(f"fewer than the {arguments.min_agreement:g} % that are asked for")


if __name__ == "__main__":
    main()
