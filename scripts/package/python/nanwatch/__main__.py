# SPDX-License-Identifier: Apache-2.0
"""Becomes the program of the same name that came with the package: `nanwatch`, `python -m nanwatch`."""
import os
import sys
from typing import NoReturn

PREFIX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prefix")


def _become(name: str) -> NoReturn:
    program = os.path.join(PREFIX, "bin", name)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot run {program}: {error.strerror}; install the wheel for this machine again")


def nanwatch() -> NoReturn:
    _become("nanwatch")


def nanwatchd() -> NoReturn:
    _become("nanwatchd")


if __name__ == "__main__":
    nanwatch()
