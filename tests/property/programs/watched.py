"""Runs generated programs under nanwatch and prints what it said, one JSON line per program.

  LD_PRELOAD=PREFIX/lib/libnanwatch.so NANWATCH_DIR=... watched.py NANWATCH FIRST COUNT
"""
import json
import pathlib
import sys

import generate

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/families"))

from watched_program import prepare, watch  # noqa: E402


def main():
    nanwatch, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    environment = prepare()
    for seed in range(first, first + count):
        status, verdict = watch(nanwatch, generate.generate(seed)[0], environment)
        print(json.dumps({"seed": seed, "status": status, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
