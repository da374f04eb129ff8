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
CLEAN_OP_MAX = 400
SKIPPED_OP_MAX = 120
BERT_STEP_PERCENT_MAX = 1.0
CALLBACK_MIN = 100  # An empty callback costs several hundred instructions an op; less means that there was none.


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--switch", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cases", default="add,view,bert", help="bert takes by far the longest")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="leave callgrind's files here, for callgrind_annotate")
    return parser.parse_args()


def run_under_callgrind(arguments, workplace):
    environment = os.environ | {"LD_PRELOAD": arguments.preload, "NANWATCH_LEVEL": "full", "NANWATCH_DIR": str(workplace / "segments"),
                                "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                                "PYTHONHASHSEED": "0"}
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


def main():
    arguments = parse_arguments()
    if not shutil.which("valgrind"):
        print("SKIPPED: there is no valgrind")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        run_under_callgrind(arguments, pathlib.Path(scratch))
        counts = read_counts(pathlib.Path(scratch))
        if arguments.keep:
            shutil.copytree(scratch, arguments.keep, ignore=shutil.ignore_patterns("segments"), dirs_exist_ok=True)

    failures = []
    print(f"\n| instructions | {'bare':>12} | {'+ callback':>10} | {'+ nanwatch':>10} | limit |\n|---|---|---|---|---|")
    limits = {"add": CLEAN_OP_MAX, "view": SKIPPED_OP_MAX, "bert": None}
    for case in arguments.cases.split(","):
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
