# SPDX-License-Identifier: Apache-2.0
"""Runs programs with known verdicts under nanwatch and says how many it explained rightly.

  tests/corpus/run.py                       all of programs/, with the nanwatch of build/release
  tests/corpus/run.py --only c006,c029      some of them
  tests/corpus/run.py --min-right 60        exit 1 when fewer than 60 percent are right

A program counts as right when its verdict is, and for an anomaly the origin's op, phase, layer and step as well, all together.
What is accepted stands in programs/expect.json; score.py compares. One directory for segments and one for state, both
temporary, serve the whole run, so a daemon of the user's is neither used nor disturbed. Programs whose packages this Python
does not have are left out and named.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import score
from process_groups import at_once

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIMEOUT_S = 600
# Of a program that was not run to its end because the caller's time was over: neither right nor wrong.
LEFT_OUT = "left out for time"
WORTHWHILE_S = 5  # with less time left none is begun
RIGHT_FIELDS = ("verdict", "op", "phase", "layer", "step")
OPTIONAL_PACKAGES = ("lightning", "transformers", "torchvision")


def parse_arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanwatch", type=pathlib.Path, default=ROOT / "build/release/bin/nanwatch")
    parser.add_argument("--python", default=sys.executable, help="runs the programs")
    parser.add_argument("--launcher", help="a Python program, with its arguments, that runs each program given to it")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE / "programs", help="a folder with expect.json")
    parser.add_argument("--only", help="names of programs, separated by commas")
    parser.add_argument("--out", type=pathlib.Path, help="keep verdicts and logs here")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="programs at a time")
    parser.add_argument("--level", help="what is checked, as for 'nanwatch run' (default: its own)")
    parser.add_argument("--sample-limit", type=int, metavar="BYTES",
                        help="at level sampled, larger results are read in part (default: the size of a cache, which no program here reaches)")
    parser.add_argument("--without", default="", help="names of programs that are left out, separated by commas")
    parser.add_argument("--share", default="1/1", metavar="K/N", help="the K-th of N equal shares of the programs")
    parser.add_argument("--exactness", action="store_true", help="say also which origins were called exact, and exit 1 as exactness.py does")
    parser.add_argument("--capsules", type=pathlib.Path, metavar="FOLDER", help="keep a capsule of each origin, in this state directory")
    parser.add_argument("--min-right", type=float, default=0, metavar="PERCENT")
    parser.add_argument("-v", "--verbose", action="store_true", help="what was got and wanted, where they differ")
    return parser.parse_args()


def missing_packages(python):
    """Those of OPTIONAL_PACKAGES that this Python cannot import."""
    code = "import importlib.util, sys; print(*[p for p in sys.argv[1:] if not importlib.util.find_spec(p)])"
    found = subprocess.run([python, "-c", code, *OPTIONAL_PACKAGES], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def imported_packages(program):
    return set(re.findall(r"(?:import|from|,)\s+(" + "|".join(OPTIONAL_PACKAGES) + r")\b", program.read_text()))


def run_program(program, arguments, out, environment, groups, deadline):
    """Runs one program to its end and returns (seconds, what went wrong or "")."""
    started = time.monotonic()
    left = deadline - started
    if left < WORTHWHILE_S:
        return 0, LEFT_OUT
    options = [*(["--level", arguments.level] if arguments.level else []), *(["--capsule", "op"] if arguments.capsules else [])]
    command = [arguments.nanwatch, "run", *options, "--verdict", out / f"{program.stem}.json", "--", arguments.python,
               *shlex.split(arguments.launcher or ""), program]
    # Trainers leave files in the directory they run in.
    with tempfile.TemporaryDirectory() as workplace, open(out / f"{program.stem}.log", "wb") as log:
        status = groups.run(command, min(TIMEOUT_S, left), cwd=workplace, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                            stderr=subprocess.STDOUT)
    trouble = "" if status is not None else LEFT_OUT if left < TIMEOUT_S else f"did not end within {TIMEOUT_S} s"
    return time.monotonic() - started, trouble


def stop_daemon(directory):
    """Ends the daemon that `nanwatch run` started for our directory, and no other."""
    wanted = b"NANWATCH_DIR=" + os.fsencode(directory)
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() == "nanwatchd" and wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGTERM)
        except OSError:
            continue  # Gone meanwhile, or another user's.


def read_verdict(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def judge(expected, verdict):
    """One value per field of RIGHT_FIELDS that applies to this program."""
    result = {"verdict": bool(verdict) and verdict.get("verdict") in score.al(expected["verdict"])}
    if "anomaly" in score.al(expected["verdict"]):
        incidents = (verdict or {}).get("incidents") or []
        fields = score.fields(expected, incidents[0] if incidents else None)
        result |= {name: bool(incidents) and bool(fields[name]) for name in RIGHT_FIELDS[1:]}
    return result


def describe(verdict):
    """The origin in one line, as it was reported."""
    if verdict is None:
        return "no verdict document"
    incidents = verdict.get("incidents") or []
    if not incidents:
        return verdict.get("verdict")
    origin = incidents[0].get("origin") or {}
    name = origin.get("op") or origin.get("param") or ""
    return (f"{verdict.get('verdict')}: {origin.get('kind')} {name}, {origin.get('phase')}, "
            f"layer '{origin.get('layer') or ''}', step {origin.get('step')}")


def print_table(expectations, out, troubles):
    """Prints one line per program and returns how many are right."""
    right = 0
    print(f"\n{'program':8} right  " + " ".join(RIGHT_FIELDS) + "  what was said")
    for expected in expectations:
        verdict = read_verdict(out / f"{expected['id']}.json")
        result = judge(expected, verdict)
        right += all(result.values())
        marks = " ".join(("yes" if result[f] else "NO").ljust(len(f)) if f in result else "-".ljust(len(f)) for f in RIGHT_FIELDS)
        said = describe(verdict) + (f" ({troubles[expected['id']]})" if troubles.get(expected["id"]) else "")
        print(f"{expected['id']:8} {'yes' if all(result.values()) else 'NO':5}  {marks}  {said}")
    return right


def chosen_programs(arguments):
    """The expectations of the programs to run: those asked for whose packages are there. The others are named."""
    arguments.nanwatch = arguments.nanwatch.resolve()
    if not arguments.nanwatch.exists():
        sys.exit(f"{arguments.nanwatch} does not exist: build it first, or say where it is with --nanwatch")
    expectations = json.loads((arguments.programs / "expect.json").read_text())
    if arguments.only:
        expectations = [e for e in expectations if e["id"] in arguments.only.split(",")]
    expectations = [e for e in expectations if e["id"] not in arguments.without.split(",")]
    turn, shares = (int(number) for number in arguments.share.split("/"))
    expectations = expectations[turn - 1::shares]
    missing = missing_packages(arguments.python)
    runnable = []
    for expected in expectations:
        lacking = imported_packages(arguments.programs / f"{expected['id']}.py") & missing
        if lacking:
            print(f"SKIPPED {expected['id']}: {arguments.python} has no {', '.join(sorted(lacking))}", flush=True)
        else:
            runnable.append(expected)
    return runnable


def run_programs(expectations, arguments, out, deadline=math.inf):
    """Runs them under nanwatch; verdicts and logs lie in `out` afterwards. Returns what went wrong, by program; past `deadline`, by the
    monotonic clock, none is begun and those that run are ended."""
    scratch = tempfile.mkdtemp(prefix="nanwatch-corpus-")
    segments = tempfile.mkdtemp(prefix="nanwatch-corpus-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH")}
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # programs that share cores spin in each other's way otherwise
    environment |= {"NANWATCH_DIR": segments, "NANWATCH_STATE_DIR": str(arguments.capsules or f"{scratch}/state")}
    if arguments.sample_limit is not None:
        environment["NANWATCH_TEST_SAMPLE_LIMIT"] = str(arguments.sample_limit)
    troubles = {}
    try:
        with at_once(arguments.jobs) as (pool, groups):
            runs = {pool.submit(run_program, arguments.programs.resolve() / f"{e['id']}.py", arguments, out, environment, groups, deadline): e["id"]
                    for e in expectations}
            for done, run in enumerate(concurrent.futures.as_completed(runs), 1):
                seconds, troubles[runs[run]] = run.result()
                print(f"[{done}/{len(runs)}] {runs[run]} {seconds:.1f} s {troubles[runs[run]]}", flush=True)
    finally:
        stop_daemon(segments)
        shutil.rmtree(segments, ignore_errors=True)
        shutil.rmtree(scratch, ignore_errors=True)
    return troubles


def main():
    arguments = parse_arguments(__doc__)
    expectations = chosen_programs(arguments)
    with tempfile.TemporaryDirectory(prefix="nanwatch-corpus-") as scratch:
        out = (arguments.out or pathlib.Path(scratch) / "out").resolve()
        out.mkdir(parents=True, exist_ok=True)
        troubles = run_programs(expectations, arguments, out)
        chosen = pathlib.Path(scratch) / "expect.json"
        chosen.write_text(json.dumps(expectations))
        subprocess.run([sys.executable, HERE / "score.py", out, chosen] + (["-v"] if arguments.verbose else []), check=True)
        right = print_table(expectations, out, troubles)
        if arguments.exactness:
            told = subprocess.run([sys.executable, HERE / "exactness.py", out, "--expect", chosen], check=False)

    percent = 100 * right / len(expectations) if expectations else 0
    print(f"\nright in verdict, origin op, phase, layer and step together: {right} of {len(expectations)} ({percent:.0f} %)")
    if percent < arguments.min_right:
        sys.exit(f"fewer than the {arguments.min_right:g} % that are asked for")
    if arguments.exactness and told.returncode:
        sys.exit("an origin that is wrong was called exact, or a healthy program an anomaly")


if __name__ == "__main__":
    main()
