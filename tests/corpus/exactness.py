# SPDX-License-Identifier: Apache-2.0
"""Of runs at a level that does not read everything: which origins were named rightly, and which of them were called exact.

  tests/corpus/run.py --level sampled --out DIR; tests/corpus/exactness.py DIR

An anomaly is right when op, phase, layer and step of its origin are, all together. Exits 1 when an origin that is wrong was
called exact, when a healthy program was called an anomaly, or when fewer than --min-right percent of the anomalies are right.
"""
import argparse
import collections
import json
import pathlib
import sys

import run
import score

KINDS = ("right exact", "right inexact", "wrong inexact", "wrong exact", "missed")


def kind_of(expected, verdict):
    result = run.judge(expected, verdict)
    if not result.pop("verdict"):
        return "missed"
    exact = verdict["incidents"][0]["origin"]["exact"]
    return f"{'right' if all(result.values()) else 'wrong'} {'exact' if exact else 'inexact'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verdicts", type=pathlib.Path, help="what run.py left with --out")
    parser.add_argument("--expect", type=pathlib.Path, default=run.HERE / "programs/expect.json")
    parser.add_argument("--min-right", type=float, default=0, metavar="PERCENT")
    arguments = parser.parse_args()
    counts, alarms, healthy = collections.Counter(), 0, 0
    for expected in json.loads(arguments.expect.read_text()):
        verdict = run.read_verdict(arguments.verdicts / f"{expected['id']}.json")
        if "anomaly" not in score.al(expected["verdict"]):
            healthy += 1
            alarms += bool(verdict) and verdict["verdict"] == "anomaly"
            continue
        kind = kind_of(expected, verdict)
        counts[kind] += 1
        if kind != "right exact":
            print(f"{expected['id']} {kind}: {run.describe(verdict)}")
    total = sum(counts.values())
    print("\n| " + " | ".join(KINDS) + " | false alarms |\n|" + "---|" * (len(KINDS) + 1))
    print("| " + " | ".join(f"{counts[kind]} of {total}" for kind in KINDS) + f" | {alarms} of {healthy} |")
    right = counts["right exact"] + counts["right inexact"]
    if counts["wrong exact"] or alarms or 100 * right < arguments.min_right * total:
        sys.exit(1)


if __name__ == "__main__":
    main()
