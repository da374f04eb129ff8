# SPDX-License-Identifier: Apache-2.0
"""Which programs a run is about: generate.py's, or with --holes=NAME,NAME those of holes.py with holes of these kinds."""
import generate
import holes


def generator(arguments):
    """A function of the seed: (source text, what kind of fault was planned, what it was made of)"""
    for argument in arguments:
        if argument.startswith("--holes="):
            chosen = argument.partition("=")[2].split(",")
            return lambda seed: holes.generate_with_holes(seed, chosen)
    return generate.generate
