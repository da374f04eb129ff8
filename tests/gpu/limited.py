# SPDX-License-Identifier: Apache-2.0
"""A command that ends when its time is over, with all that it started, so that what comes after has the machine for itself."""
import os
import signal
import subprocess
import time

import descendants

TICK_S = 0.5
GRACE_S = 5  # after SIGTERM, and again after SIGKILL: one that hangs in the kernel is not waited for


def signal_group(process, number):
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def wait(process, seconds, tick):
    """The status; None: it has not ended by then."""
    ends_at = time.monotonic() + seconds
    while True:
        left = ends_at - time.monotonic()
        try:
            return process.wait(max(0.01, min(TICK_S, left)))
        except subprocess.TimeoutExpired:
            if left <= 0:
                return None
        tick()


def run(command, seconds_max, log, tick=lambda: None, **options):
    """The exit status, negative for a signal; None: it was stopped when `seconds_max` were over. What it prints goes to the file `log`;
    `tick` is called now and then meanwhile."""
    with open(log, "ab") as output:
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True, **options)
    try:
        status = wait(process, seconds_max, tick)
        if status is None:
            signal_group(process, signal.SIGTERM)
            wait(process, GRACE_S, lambda: None)
        return status
    finally:
        if process.poll() is None:
            signal_group(process, signal.SIGKILL)
            wait(process, GRACE_S, lambda: None)
        descendants.kill_all()
