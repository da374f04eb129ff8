# SPDX-License-Identifier: Apache-2.0
"""Prints what is right for generated programs, one JSON line per program: `oracle_all.py FIRST COUNT [--holes]`."""
import json
import os
import sys
import warnings

import torch

import oracle
import programs


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["NANWATCH"] = "true"  # where a program changes its level, nothing is to happen here
    first, count = int(sys.argv[1]), int(sys.argv[2])
    generate = programs.generator(sys.argv[3:])
    for seed in range(first, first + count):
        text, plan, parts = generate(seed)
        print(json.dumps({"seed": seed, "plan": plan, "parts": parts, "answer": oracle.run(text)}), flush=True)


if __name__ == "__main__":
    main()
