# SPDX-License-Identifier: Apache-2.0
"""Runs programs whose origin is an op under `nanwatch run --capsule op`, runs each origin again from its capsule, and says how often the
same elements were bad, with the same bits.

  tests/corpus/capsules.py
  tests/corpus/capsules.py --only c001,c042

Takes the options of run.py. Exits 1 where an origin has no capsule or comes out otherwise. A compiled region (c060) has none: it is no op
that could be called again.
"""
import argparse
import collections
import importlib.util
import pathlib
import sys
import tempfile

import run
import score

WITHOUT = ("c060",)
TIMES = 3
WORDS = ("mathematics", "range")  # what a program does that no machine is to blame for


def replay(folder):
    """What repro_op.py of this capsule says, in this process: to import torch for each takes longer than all else."""
    spec = importlib.util.spec_from_file_location("repro_op", pathlib.Path(folder) / "repro_op.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.replay(argparse.Namespace(capsule=str(folder), times=TIMES, child=False, imports=[]))


def trouble_of(verdict):
    """(what is wrong with the first origin's capsule or "", the word)."""
    incidents = (verdict or {}).get("incidents") or []
    if not incidents or not incidents[0]["capsule"]:
        return "has no capsule", ""
    result = replay(incidents[0]["capsule"])
    seen = result["as_it_was"]
    if seen["same_places"] != TIMES:
        return f"bad at the same places in {seen['same_places']} of {TIMES} runs", result["word"]
    if seen["same_bits"] != TIMES:
        return f"the same bits in {seen['same_bits']} of {TIMES} runs", result["word"]
    if result["word"] not in WORDS:
        return result["sentence"], result["word"]
    return "", result["word"]


def main():
    arguments = run.parse_arguments(__doc__)
    expectations = [e for e in run.chosen_programs(arguments)
                    if "op" in score.al((e.get("origin") or {}).get("kind")) and e["id"] not in WITHOUT]
    with tempfile.TemporaryDirectory(prefix="nanwatch-corpus-") as scratch:
        scratch = pathlib.Path(scratch)
        arguments.capsules = arguments.capsules or scratch / "state"
        run.run_programs(expectations, arguments, scratch)
        told = {e["id"]: trouble_of(run.read_verdict(scratch / f"{e['id']}.json")) for e in expectations}
    for name, (trouble, _) in told.items():
        if trouble:
            print(f"{name}: {trouble}")
    fine = sum(not trouble for trouble, _ in told.values())
    print(f"\norigins that come out as they were: {fine} of {len(told)}; {dict(collections.Counter(word for _, word in told.values()))}")
    sys.exit(fine != len(told))


if __name__ == "__main__":
    main()
