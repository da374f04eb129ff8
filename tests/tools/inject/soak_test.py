# SPDX-License-Identifier: Apache-2.0
"""Attaches many times, each time to a fresh job, and compares what the job computed with a twin.

Each job is a fork of this program, which sleeps, waits, reads, passes locks, or computes until it is told to stop; it says how many steps
it made, what came out, how many of its calls were interrupted, and the longest gap of a heartbeat that needs no GIL.

    soak_test.py [NUMBER]       NANWATCH_SOAK: the same; 24 when neither is given
"""
import collections
import ctypes
import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from victims import MARGIN_MS, ONCE, REGISTERS, STAND_IN, time_to_wait, was_interrupted

NUMBER = int(sys.argv.pop(1) if sys.argv[1:] and sys.argv[1].isdigit() else os.environ.get("NANWATCH_SOAK", "24"))
FILE = __file__


def loss_after(steps):
    loss = 1.0
    for step in range(steps):
        loss = loss * 0.999 + step * 1e-3
    return loss.hex()


def sleeping(libc, _):
    time.sleep(0.001)
    return was_interrupted(libc.nanosleep, time_to_wait(0.001), None)


def polling(libc, state):
    if "epoll" not in state:
        reading, _ = os.pipe()
        state["epoll"] = select.epoll()
        state["epoll"].register(reading, select.EPOLLIN)
        state["fds"] = struct.pack("ihh", reading, select.POLLIN, 0)
    return was_interrupted(libc.epoll_wait, state["epoll"].fileno(), ctypes.create_string_buffer(12), 1, 1) or \
        was_interrupted(libc.poll, state["fds"], 1, 1)


def reading(_, state):
    with open(FILE, "rb") as file:
        state.setdefault("text", file.read())
        file.seek(0)
        return file.read() != state["text"]


def locking(_, state):
    if "other" not in state:
        state["ours"], state["theirs"] = threading.Semaphore(0), threading.Semaphore(0)

        def hand_back():
            while True:
                state["theirs"].acquire()
                state["ours"].release()
        state["other"] = threading.Thread(target=hand_back, daemon=True)
        state["other"].start()
    state["theirs"].release()
    state["ours"].acquire()
    return False


def computing(_, state):
    state["x"] = sum(i * i for i in range(2000))
    return state["x"] != 2664667000


def holding(_, state):
    """Values in all registers, while the GIL is kept."""
    return ctypes.PyDLL(str(REGISTERS)).nanwatch_spin(ctypes.c_long(20)) != 0


KINDS = [sleeping, polling, reading, locking, computing, holding]


def job(kind, told_to_stop, result):
    """In the child: never returns."""
    libc = ctypes.CDLL(None, use_errno=True)
    beats = ctypes.PyDLL(str(REGISTERS))
    beats.nanwatch_heartbeat_start()
    loss, steps, disturbed, state = 1.0, 0, 0, {}
    # Asks without giving the GIL back: who only computes must not pass the hook by this.
    stop = ctypes.create_string_buffer(1)
    os.set_blocking(told_to_stop, False)
    while beats.read(told_to_stop, stop, 1) < 0:
        disturbed += bool(kind(libc, state))
        loss = loss * 0.999 + steps * 1e-3
        steps += 1
    os.write(result, json.dumps({"steps": steps, "loss": loss.hex(), "disturbed": disturbed,
                                 "gap_us": beats.nanwatch_heartbeat_gap_us()}).encode())
    os._exit(0)


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Soak(unittest.TestCase):
    def run_job(self, kind, folder, attach):
        """What the tool said (None for a twin that nobody attaches to), and what the job did."""
        stop_read, stop_write = os.pipe()
        result_read, result_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            job(kind, stop_read, result_write)
        os.close(stop_read)
        os.close(result_write)
        answers, said = os.path.join(folder, f"answers-{pid}"), None
        try:
            if attach:
                said = json.loads(subprocess.run([ONCE, str(pid), STAND_IN, answers, str(MARGIN_MS)],
                                                 capture_output=True, text=True).stdout)
                self.assertTrue(said["called"], f"{kind.__name__}: {said}")
                with open(answers) as file:
                    self.assertEqual(file.read(), f"idle /a b {pid}\n")
                os.unlink(answers)
            else:
                time.sleep(0.05)
            os.write(stop_write, b".")
            with os.fdopen(result_read) as file:
                did = json.loads(file.read() or "{}")
        finally:
            os.close(stop_write)
            if sys.exc_info()[0]:
                os.kill(pid, 9)
            status = os.waitpid(pid, 0)[1]
        self.assertEqual(status, 0, f"{kind.__name__}: it died")
        return said, did

    def test_losses_are_a_twins_and_nothing_is_disturbed(self):
        gaps, twins, took, stopped = (collections.defaultdict(list) for _ in range(4))
        with tempfile.TemporaryDirectory() as folder:
            for n in range(NUMBER):
                kind = KINDS[n % len(KINDS)]
                said, did = self.run_job(kind, folder, attach=True)
                self.assertEqual(did["loss"], loss_after(did["steps"]), kind.__name__)
                self.assertEqual(did["disturbed"], 0, kind.__name__)
                gaps[kind.__name__].append(did["gap_us"])
                took[kind.__name__].append(said["took_us"])
                stopped[kind.__name__] += [said["stopped_us"]] * (said["stops"] > 0)
                if n < 20 * len(KINDS):
                    twins[kind.__name__].append(self.run_job(kind, folder, attach=False)[1]["gap_us"])
        print(f"{NUMBER} attachments; microseconds, p99 / max")
        for name in gaps:
            line = f"  {name:10} {len(gaps[name]):4} jobs, loaded after {percentile(took[name], .99)} / {max(took[name])}; " \
                   f"heartbeat's gap {percentile(gaps[name], .99)} / {max(gaps[name])}, a twin's {percentile(twins[name], .99)} / {max(twins[name])}; "
            stops = stopped[name]
            print(line + (f"{len(stops)} stopped, for {percentile(stops, .99)} / {max(stops)}" if stops else "none stopped"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
