# SPDX-License-Identifier: Apache-2.0
"""How many instructions does nanwatch add to an op that is clean? Counted by callgrind, so the answer does not depend on the machine's mood.

Our own share is `full` minus an empty callback that asks for outputs: what we do, without what torch does to call anybody.
Exits 1 when a share is over its limit, or when the callbacks evidently were not there, and 77 when there is no valgrind.

Usage: instructions.py --preload libnanwatch.so --switch libcallgrind_switch.so [--python PYTHON]
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LATE_COMPILER = HERE.parents[1] / "fakes/late_compiler"  # an import that is of no use takes a minute under callgrind
CLEAN_OP_MAX = 400
SKIPPED_OP_MAX = 120
BERT_STEP_PERCENT_MAX = 1.0
LEVEL_PERCENT_MAX = 0.3  # of the BERT step, for the callbacks of idle and of canary
POISONED_RATIO_MAX = 1.05  # of a step whose parameters are NaN, at every level
STATS_INTERVAL = 100  # NANWATCH_STATS where nobody sets it (kStatsInterval of shim/observe/start.cc)
STATS_PERCENT_MAX = 0.05  # of the BERT step, averaged over so many steps
READING = re.compile(r"nanwatch::.*(SumOfSquares|SumWide|SumNarrow|ArithmeticScan|VectorScan|Avx2Scan|Avx512Scan|ScalarScan|HasNonFinite)")
CALLBACK_MIN = 100  # An empty callback costs several hundred instructions an op; less means that there was none.


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--switch", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cases", default="add,view,bert,levels,poisoned_mlp,poisoned_bert",
                        help="bert, and levels, which is the same step at level idle and canary and with its parameters looked at, take by far the longest; "
                        "poisoned_mlp and poisoned_bert, which come last, are steps whose parameters are NaN")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="leave callgrind's files here, for callgrind_annotate")
    return parser.parse_args()


def run_under_callgrind(arguments, workplace):
    environment = os.environ | {"LD_PRELOAD": arguments.preload, "NANWATCH_LEVEL": "full", "NANWATCH_DIR": str(workplace / "segments"),
                                "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                                "PYTHONHASHSEED": "0", "PYTHONPATH": str(LATE_COMPILER)}
    (workplace / "segments").mkdir(mode=0o700)
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={workplace}/count",
               "--quiet", arguments.python, HERE / "instructions_job.py", arguments.switch, arguments.cases]
    subprocess.run([str(c) for c in command], env=environment, check=True)


def read_counts(workplace):
    """(case, mode) to instructions per repeat, the median of the turns."""
    turns = collections.defaultdict(list)
    for path in workplace.glob("count.*"):
        text = path.read_text(errors="replace")
        label = re.search(r"^desc: Trigger: Client Request: (\w+) (\w+) (\d+)$", text, re.M)
        total = re.search(r"^(?:totals|summary): (\d+)$", text, re.M)
        if label and total:
            turns[label[1], label[2]].append(int(total[1]) / int(label[3]))
    return {key: statistics.median(values) for key, values in turns.items()}


def instructions_reading_values(workplace, case, mode):
    """What the loops over elements took themselves, in one stretch."""
    reading = 0
    for path in workplace.glob("count.*"):
        text = path.read_text(errors="replace")
        if not re.search(rf"^desc: Trigger: Client Request: {case} {mode} \d+$", text, re.M):
            continue
        names, name, skip = {}, "", False
        for line in text.splitlines():
            if found := re.match(r"fn=\((\d+)\)(?: (.*))?$", line):
                names[found[1]] = found[2] or names.get(found[1], "")
                name = names[found[1]]
            elif found := re.match(r"cfn=\((\d+)\) (.*)$", line):
                names[found[1]] = found[2]
            elif line.startswith("calls="):
                skip = True  # The next line is what the callee took.
            elif found := re.match(r"[+*\d-]\S* (\d+)$", line):
                if not skip and READING.search(name):
                    reading += int(found[1])
                skip = False
    return reading


def print_levels(counts, workplace, failures):
    """Each level beside the bare step; what is read of values shown apart. Of sampled and full the rest holds torch's share of a
    callback, which `bert` counts, and has no limit here."""
    bare = counts["levels", "bare"]
    print(f"\n| level | instructions beside the bare step of {bare:.0f} | of these reading values | the rest | limit |")
    print("|---|---|---|---|---|")
    for level in ("idle", "canary", "sampled", "full"):
        added = counts["levels", level] - bare
        reading = instructions_reading_values(workplace, "levels", level)
        rest = 100 * (added - reading) / bare
        limited = level in ("idle", "canary")
        print(f"| {level} | {added:.0f} ({100 * added / bare:.2f} %) | {reading} ({100 * reading / bare:.2f} %) | {rest:.2f} % | "
              f"{f'{LEVEL_PERCENT_MAX} %' if limited else ''} |")
        if limited and rest > LEVEL_PERCENT_MAX:
            failures.append(f"{level}: its callbacks are over their limit")
        if level != "idle" and reading <= 0:
            failures.append(f"{level}: no value was read")


def print_stats(counts, failures):
    """A step whose parameters are looked at, beside one at level canary that is like it in all else."""
    bare = counts["levels", "bare"]
    added = counts["levels", "stats"] - counts["levels", "canary"]
    percent = 100 * added / bare
    print(f"\nLooking at every parameter: {added:.0f} instructions a step ({percent:.2f} %), one step in {STATS_INTERVAL} "
          f"{percent / STATS_INTERVAL:.4f} % (limit {STATS_PERCENT_MAX} %)")
    if percent / STATS_INTERVAL > STATS_PERCENT_MAX:
        failures.append("looking at parameters is over its limit")
    if added <= 0:
        failures.append("looking at parameters cost nothing; none was looked at")


def print_poisoned(case, counts, failures):
    bare = counts[case, "bare"]
    print(f"\n| {case} | instructions of a step | of the bare one | limit |\n|---|---|---|---|")
    for level in ("bare", "idle", "canary", "sampled", "full", "auto"):
        ratio = counts[case, level] / bare
        print(f"| {level} | {counts[case, level]:.0f} | {ratio:.4f} | {POISONED_RATIO_MAX} |")
        if ratio > POISONED_RATIO_MAX:
            failures.append(f"{case}, {level}: a step whose parameters are NaN costs {ratio:.3f} of a bare one")


def main():
    arguments = parse_arguments()
    if not shutil.which("valgrind"):
        print("SKIPPED: there is no valgrind")
        sys.exit(77)
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        run_under_callgrind(arguments, pathlib.Path(scratch))
        counts = read_counts(pathlib.Path(scratch))
        if arguments.keep:
            shutil.copytree(scratch, arguments.keep, ignore=shutil.ignore_patterns("segments"), dirs_exist_ok=True)
        if "levels" in arguments.cases.split(","):
            print_levels(counts, pathlib.Path(scratch), failures)
            print_stats(counts, failures)
    for case in arguments.cases.split(","):
        if case.startswith("poisoned"):
            print_poisoned(case, counts, failures)
    print(f"\n| instructions | {'bare':>12} | {'+ callback':>10} | {'+ nanwatch':>10} | limit |\n|---|---|---|---|---|")
    limits = {"add": CLEAN_OP_MAX, "view": SKIPPED_OP_MAX, "bert": None}
    for case in (case for case in arguments.cases.split(",") if case in limits):
        limit = limits[case]
        bare, empty, full = (counts[case, mode] for mode in ("bare", "empty", "full"))
        own = full - empty
        share = f"{100 * own / bare:.2f} %" if limit is None else ""
        print(f"| {case} | {bare:12.0f} | {empty - bare:10.0f} | {own:10.0f} {share} | "
              f"{limit if limit is not None else f'{BERT_STEP_PERCENT_MAX} %'} |")
        if empty - bare < CALLBACK_MIN:
            failures.append(f"{case}: the callback cost {empty - bare:.0f} instructions; it was not there")
        if own > (limit if limit is not None else bare * BERT_STEP_PERCENT_MAX / 100):
            failures.append(f"{case}: our own share is over its limit")
        if own <= 0:
            failures.append(f"{case}: watching cost nothing; nothing was watched")
    sys.exit("\n".join(failures) or 0)


main()
