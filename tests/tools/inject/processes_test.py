# SPDX-License-Identifier: Apache-2.0
"""Loading into live processes: each is loaded once, and finds nothing disturbed."""
import ctypes
import json
import os
import struct
import subprocess
import unittest

from victims import MARGIN_MS, ONCE, VictimTest


def forbid_ptrace(*requests):
    """Has the kernel end this process, and the program it becomes, at one of these requests; at any when none is named."""
    load, equal, fall, kill, allow = 0x20, 0x15, 0x06, 0x80000000, 0x7FFF0000
    ptrace = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
    wanted = [(load, 0, 0, 16)]  # the low half of the first argument
    wanted += [(equal, len(requests) - n, 0, request) for n, request in enumerate(requests)]
    wanted += [(fall, 0, 0, allow if requests else kill), (fall, 0, 0, kill)]
    program = [(load, 0, 0, 0), (equal, 0, len(wanted), ptrace), *wanted, (fall, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, head) == 0


# PTRACE_GETREGS, SETREGS, GETFPREGS, SETFPREGS, GETFPXREGS, SETFPXREGS, SETREGSET
WHOLE_SETS = (12, 13, 14, 15, 18, 19, 0x4205)


class Processes(VictimTest):
    def attach_as(self, victim, prepare, limit_ms=MARGIN_MS):
        ran = subprocess.run(victim.command(limit_ms), capture_output=True, text=True, preexec_fn=prepare)
        self.assertIn(ran.returncode, (0, 1), ran)
        return json.loads(ran.stdout)

    def test_no_waiting_call_of_any_kind_is_interrupted_and_no_thread_is_stopped(self):
        victim = self.victim("waits")
        result = self.attach_as(victim, forbid_ptrace)
        self.assert_loaded_once(victim, result)
        self.assertEqual(result["stops"], 0)
        self.assert_fine(victim)

    def test_a_job_that_sleeps_computes_what_its_twin_does(self):
        victim = self.victim("sleeps")
        result = self.attach_as(victim, forbid_ptrace)
        self.assert_loaded_once(victim, result)
        self.assert_fine(victim)

    def test_a_thread_that_only_computes_is_asked_and_nobody_writes_its_registers_but_the_program_counter(self):
        victim = self.victim("computes")
        result = self.attach_as(victim, lambda: forbid_ptrace(*WHOLE_SETS))
        self.assert_loaded_once(victim, result)
        self.assertGreaterEqual(result["stops"], 1)
        self.assert_fine(victim)

    def test_registers_are_as_they_were_wherever_a_thread_is_borrowed(self):
        victim = self.victim("registers", 4.0)
        self.assert_loaded_once(victim, victim.attach())
        self.assert_fine(victim)

    def test_signals_arrive_all_of_them_and_in_order(self):
        victim = self.victim("signals")
        self.assert_loaded_once(victim, victim.attach())
        self.assert_fine(victim)

    def test_of_many_threads_one_loads(self):
        victim = self.victim("threads")
        self.assert_loaded_once(victim, victim.attach())
        self.assert_fine(victim)

    def test_children_load_nothing(self):
        victim = self.victim("forks")
        self.assert_loaded_once(victim, victim.attach())
        self.assert_fine(victim)

    def test_who_comes_to_no_point_is_let_go_as_often_as_one_likes(self):
        victim = self.victim("blocked", 4.0)
        for _ in range(20):
            result = victim.attach(30)
            self.assertEqual((result["called"], result["in_time"], result["stops"]), (False, False, 0))
        self.assertEqual(victim.loaded(), [])
        self.assert_fine(victim)
        self.assertEqual(victim.loaded(), [], "a hook stayed")

    def test_a_process_that_ends_or_becomes_another_program_meanwhile(self):
        for kind, end in (("blocked", lambda v: v.process.kill()), ("execs", lambda v: v.process.communicate("go\n"))):
            victim = self.victim(kind, 30.0)
            tool = subprocess.Popen(victim.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(tool.stderr.readline(), "waiting\n")
            end(victim)
            said, _ = tool.communicate()
            self.assertIn("it ended in the meantime", said)
            self.assertEqual(victim.loaded(), [])

    def test_a_library_that_cannot_be_loaded_is_named_by_the_loader(self):
        victim = self.victim("sleeps", 2.0)
        ran = subprocess.run([ONCE, str(victim.pid), "/no/such library.so", victim.answers, str(MARGIN_MS)], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("its loader refused the library: /no/such library.so: cannot open", ran.stdout)
        self.assert_loaded_once(victim, victim.attach())
        self.assert_fine(victim)

    def test_two_tools_at_once_do_not_meet(self):
        victim = self.victim("blocked", 4.0)
        first = subprocess.Popen(victim.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(first.stderr.readline(), "waiting\n")
        self.assertIn("somebody else is attaching", victim.attach(1000)["problem"])
        self.assert_fine(victim)
        first.communicate()


if __name__ == "__main__":
    unittest.main(verbosity=2)
