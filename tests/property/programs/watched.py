# SPDX-License-Identifier: Apache-2.0
"""Runs generated programs under nanwatch and prints what it said, one JSON line per program.

  LD_PRELOAD=PREFIX/lib/libnanwatch.so NANWATCH_DIR=... watched.py NANWATCH FIRST COUNT [--holes]
"""
import glob
import json
import os
import pathlib
import sys

import programs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/families"))

from watched_program import prepare, watch  # noqa: E402


def main():
    nanwatch, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    generate = programs.generator(sys.argv[4:])
    os.environ["NANWATCH"] = nanwatch  # for programs that change their own level
    environment = prepare()
    for seed in range(first, first + count):
        status, verdict = watch(nanwatch, generate(seed)[0], environment)
        for left in glob.glob(os.path.join(environment["NANWATCH_DIR"], "nw-*.seg")):
            os.unlink(left)  # of the program's own children
        print(json.dumps({"seed": seed, "status": status, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
