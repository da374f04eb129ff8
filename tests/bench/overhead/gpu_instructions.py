# SPDX-License-Identifier: Apache-2.0
"""Question: how many instructions does nanwatch add, on the host, to a clean small op on a GPU, at each level; and to a step at canary?

  tests/bench/overhead/gpu_instructions.py --preload build/release/tests/bench/lib/libnanwatch.so \\
    --switch build/release/tests/libcallgrind_switch.so [--levels sampled,full] [--keep DIR]

Callgrind counts what the observer executes itself, on the fake CUDA device (tests/fakes/torch_cuda). Not in it: what libtorch takes to
call a callback and to free what was held for a batch, and what the driver takes, which is counted by calls (gpu_launches.py).
Exits 1 when a share is over its limit, or nothing was watched, and 77 when there is no valgrind.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FAKE_GPU = HERE.parents[1] / "fakes/torch_cuda/run.py"
STEP_MAX = 210_000  # of level canary
OP_MAX = {"canary": 20, "sampled": 2100, "full": 5700}
OURS = "libnanwatch_observer"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--switch", required=True)
    parser.add_argument("--levels", default="canary,sampled,full")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="leave callgrind's files here, for callgrind_annotate")
    return parser.parse_args()


def run_under_callgrind(arguments, workplace):
    (workplace / "segments").mkdir(mode=0o700)
    environment = os.environ | {"LD_PRELOAD": arguments.preload, "NANWATCH_LEVEL": "full", "NANWATCH_DIR": str(workplace / "segments"),
                                "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    # Answers are collected by a thread of its own now and then: by the clock, which a busy machine stretches.
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", f"--callgrind-out-file={workplace}/count", "--quiet",
               sys.executable, FAKE_GPU, HERE / "gpu_instructions_job.py", arguments.switch, arguments.levels]
    subprocess.run([str(part) for part in command], env=environment, check=True)


def own_cost(text):
    """Instructions of the observer's own file."""
    names, own, file, is_call = {}, 0, "", False
    for line in text.splitlines():
        if found := re.match(r"(c?ob)=\((\d+)\)(?: (.*))?$", line):
            names[found[2]] = found[3] or names.get(found[2], "")
            file = names[found[2]] if found[1] == "ob" else file
        elif line.startswith("calls="):
            is_call = True  # The next line is what the callee took.
        elif found := re.match(r"[+*\d-]\S* (\d+)$", line):
            own += int(found[1]) if OURS in file and not is_call else 0
            is_call = False
    return own


def read_counts(workplace):
    """(case, level) to instructions per repeat, on the program's thread."""
    counts = {}
    for path in workplace.glob("count.*-01"):
        text = path.read_text(errors="replace")
        if label := re.search(r"^desc: Trigger: Client Request: (\w+) (\w+) (\d+)$", text, re.M):
            counts[label[1], label[2]] = own_cost(text) / int(label[3])
    return counts


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
    print("\n| op | level | instructions | limit |\n|---|---|---|---|")
    expected = {(case, level) for case in ("mul", "mul_with_gradient") for level in arguments.levels.split(",")}
    expected.add(("step_of_148_parameters", "canary"))
    failures += [f"{case}, {level}: was not counted" for case, level in sorted(expected - set(counts))]
    for (case, level), own in sorted(counts.items()):
        limit = STEP_MAX if case.startswith("step") else OP_MAX[level]
        print(f"| {case} | {level} | {own:.0f} | {limit} |")
        if own > limit:
            failures.append(f"{case}, {level}: {own:.0f} instructions, over the limit")
        if own <= 0 and (level != "canary" or case.startswith("step")):
            failures.append(f"{case}, {level}: nothing was watched")
    sys.exit("\n".join(failures) or 0)


main()
