# SPDX-License-Identifier: Apache-2.0
"""Programs run several at a time, each with all that it starts in a process group of its own; however the caller ends, none is left."""
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import threading

KILLED = -signal.SIGKILL


def kill_group(leader):
    """The group of a leader that nobody has waited for; so its number is nobody else's."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


class ProcessGroups:
    """Any number of threads may call run at once."""

    def __init__(self):
        self._lock, self._running, self._closed = threading.Lock(), set(), False

    def run(self, command, seconds_max, **options):
        """The exit status; None: it was killed when `seconds_max` were over. After close() nothing is started."""
        with self._lock:
            if self._closed:
                return KILLED
            process = subprocess.Popen([str(c) for c in command], start_new_session=True, **options)
            self._running.add(process)
        try:
            return process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:
                kill_group(process.pid)
                process.wait()
            with self._lock:
                self._running.discard(process)

    def close(self):
        """Kills what runs. The threads that wait for it see it end."""
        with self._lock:
            self._closed = True
            for process in self._running:
                if process.returncode is None:
                    kill_group(process.pid)


@contextlib.contextmanager
def at_once(count):
    """A pool of so many threads, and the groups in which they start programs. Whatever ends the block ends them too, at once."""
    groups, pool = ProcessGroups(), concurrent.futures.ThreadPoolExecutor(count)
    try:
        yield pool, groups
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        groups.close()
        raise
