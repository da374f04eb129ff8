# SPDX-License-Identifier: Apache-2.0
"""How long does the observer take to build for the torch of this machine? In a folder of its own: the one in use stays."""
import os
import pathlib
import subprocess
import sys
import time

import answers
from answers import Answer, CannotAsk, Question

GOAL_S = 300


def observer(arguments):
    if arguments.dry_run:
        raise CannotAsk("a dry run builds nothing")
    build = pathlib.Path("build") / f"observer-{'.'.join(torch_version().split('.')[:2])}"
    if build.exists():
        raise CannotAsk(f"{build} is there already, and would make it quick")
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 2), "CCACHE_DISABLE": "1",
                   "CPATH": os.pathsep.join([str((arguments.parts / "include").resolve()), *filter(None, [os.environ.get("CPATH")])])}
    began = time.monotonic()
    built = subprocess.run(["scripts/build-observer.sh", "--python", sys.executable, "--prefix", arguments.prefix, "--no-setup"], env=environment,
                           check=False)
    seconds = time.monotonic() - began
    return Answer({"seconds": round(seconds, 1), "jobs": os.cpu_count(), "exit_status": built.returncode}, built.returncode == 0 and seconds < GOAL_S)


def torch_version():
    import importlib.metadata
    return importlib.metadata.version("torch")


QUESTIONS = [Question("build.observer", "does the observer build here in less than 5 minutes?", observer, "it does")]


def add_options(parser):
    parser.add_argument("--parts", type=pathlib.Path, default=pathlib.Path("build/gpu/parts"), help="has include/boost")
    parser.add_argument("--prefix", type=pathlib.Path, default=pathlib.Path("build/gpu/built"))


if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
