# SPDX-License-Identifier: Apache-2.0
"""forked_twins.py JOBS: runs programs of Python, each in a fork of this process, which has imported torch once for all of them.

JOBS is a JSON file: for each job its `folder`, and its `command`, which is a program and its arguments. A job runs in its folder and
writes `stdout` and `stderr` there. Its exit status stands in `status` once it has ended. No tensor is made before the forks: the threads
of a pool would not come along.
"""
import json
import os
import pathlib
import runpy
import sys
import traceback

import torch  # noqa: F401


def become(command):
    """Runs it as `python COMMAND...` would; returns the exit status."""
    program = command[0]
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
    sys.argv, sys.path[0] = command, str(pathlib.Path(program).parent)
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
        status = become(job["command"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    _, ended = os.waitpid(child, 0)
    pathlib.Path(job["folder"], "status").write_text(str(os.waitstatus_to_exitcode(ended)))
