"""Which programs a run is about: generate.py's, or with --holes those of holes.py."""
import generate
import holes


def generator(arguments):
    """A function of the seed: (source text, what kind of fault was planned, what it was made of)"""
    return holes.generate_with_holes if "--holes" in arguments else generate.generate
