# SPDX-License-Identifier: Apache-2.0
"""forked_twins.py JOBS: runs programs of Python, each in a fork of this process, which has imported torch once for all of them.

JOBS is a JSON file: for each job its `folder` and its `program`. A job runs in its folder, writes `stdout` and `stderr` there, and its exit
status stands in `status` once it has ended. No tensor is made before the forks: the threads of a pool would not come along.
"""
import json
import os
import pathlib
import runpy
import sys
import traceback

import torch
import torch._dynamo  # what a first optimizer would import


def become(program):
    """Runs it as `python PROGRAM` would; returns the exit status."""
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
    sys.argv, sys.path[0] = [program], str(pathlib.Path(program).parent)
    try:
        runpy.run_path(program, run_name="__main__")
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


for job in json.loads(pathlib.Path(sys.argv[1]).read_text()):
    child = os.fork()
    if child == 0:
        os.chdir(job["folder"])
        status = become(job["program"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    _, ended = os.waitpid(child, 0)
    pathlib.Path(job["folder"], "status").write_text(str(os.waitstatus_to_exitcode(ended)))
