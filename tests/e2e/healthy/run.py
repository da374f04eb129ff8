# SPDX-License-Identifier: Apache-2.0
"""Trains healthy models under nanwatch and says whether any of them raised an alarm.

  tests/e2e/healthy/run.py                      eight architectures, 1000 steps each, with the nanwatch of build/release
  tests/e2e/healthy/run.py --steps 60 --only vit,gan --level canary

`clean` and `expected` (masks of -Inf) are right; `anomaly` is a false alarm, and the exit status 1. So it is for an early warning that is
more than information, and when a model diverged, ended with another status, was watched for fewer steps than it took, or records were lost.
"""
import argparse
import importlib.util
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import Workplace  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "architectures.py"
NEEDS = {"mlp": None, "resnet18": "timm", "vit": "torchvision", "bert": "transformers", "gpt2": "transformers",
         "lstm": None, "unet": None, "gan": None}
# One thread: the models are tiny. Some virtual machines announce AMX, which oneDNN then dies of in bfloat16, with us and without.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
ROW = "{:12} {:>6} {:>10} {:>15} {:>10} {:>9} {:>8}  {}"


def troubles(job, verdict, steps):
    """What is wrong with a run, in words; empty when nothing is."""
    wrong = []
    if job.status() != 0:
        wrong.append(f"exit status {job.status()}")
    if verdict["verdict"] not in ("clean", "expected"):
        wrong += [f"{i['origin']['op'] or i['origin']['param']} in '{i['origin']['layer']}' at step {i['origin']['step']}, {i['origin']['source']}"
                  for i in verdict["incidents"] if i["severity"] != "info"]
    wrong += [f"warned: {w['evidence']}" for w in verdict["warnings"] if w["severity"] != "info"]
    coverage = verdict["coverage"]
    if int(coverage["steps"]) < steps:
        wrong.append(f"only {coverage['steps']} steps were seen")
    if int(coverage["lost_events"]) != 0:
        wrong.append(f"{coverage['lost_events']} records were lost")
    if len(verdict["runs"]) != 1:
        wrong.append(f"{len(verdict['runs'])} processes were watched")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", help="names, separated by commas", default=",".join(NEEDS))
    parser.add_argument("--level", default="full")
    parser.add_argument("--stats", default="2", help="steps between two looks at the parameters, of which warnings are raised too")
    arguments = parser.parse_args()
    workplace, failed = Workplace(timeout_s=3600), False
    print(ROW.format("architecture", "steps", "ops seen", "tensors checked", "verdict", "incidents", "seconds", ""), flush=True)
    try:
        for name in arguments.only.split(","):
            if NEEDS[name] and not importlib.util.find_spec(NEEDS[name]):
                print(f"SKIPPED {name}: this Python has no {NEEDS[name]}", flush=True)
                continue
            began = time.monotonic()
            job = workplace.run_watched([sys.executable, PROGRAM, name, str(arguments.steps)],
                                        options=["--level", arguments.level, "--stats", arguments.stats], **ENVIRONMENT)
            verdict = job.verdict()
            coverage = verdict["coverage"]
            wrong = troubles(job, verdict, arguments.steps)
            failed |= bool(wrong)
            print(ROW.format(name, coverage["steps"], coverage["ops_seen"], coverage["tensors_checked"], verdict["verdict"],
                             len(verdict["incidents"]), f"{time.monotonic() - began:.1f}", "; ".join(wrong)), flush=True)
    finally:
        workplace.close()
    sys.exit(failed)


main()
