"""Prints what is right for generated programs, one JSON line per program: `oracle_all.py FIRST COUNT`."""
import json
import sys
import warnings

import torch

import generate
import oracle


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        text, plan, parts = generate.generate(seed)
        print(json.dumps({"seed": seed, "plan": plan, "parts": parts, "answer": oracle.run(text)}), flush=True)


if __name__ == "__main__":
    main()
