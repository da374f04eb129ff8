# SPDX-License-Identifier: Apache-2.0
"""The tool is killed at any moment: the process goes on, and can be attached to afterwards.

NANWATCH_KILLS: how many moments are tried (100).
"""
import os
import random
import signal
import subprocess
import time
import unittest

from victims import VictimTest

KILLS = int(os.environ.get("NANWATCH_KILLS", "100"))


class Kills(VictimTest):
    def kill_tools(self, kind, kills, longest_s):
        """Of one victim: until it has the library, or so many tools are gone."""
        victim, moments = self.victim(kind, 600.0), random.Random(kills)
        for n in range(kills):
            tool = subprocess.Popen(victim.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(moments.random() * longest_s)
            tool.send_signal(signal.SIGKILL)
            tool.wait()
            self.assertIsNone(victim.process.poll(), f"killed at the {n}th")
        return victim

    def test_a_process_that_waits_survives_every_one_of_them_and_loads_nothing(self):
        victim = self.kill_tools("blocked", KILLS, 0.02)
        self.assertEqual(victim.loaded(), [])
        victim.kill()

    def test_a_process_that_computes_sleeps_or_has_threads_survives_and_loads_once_for_each_tool(self):
        for kind in ("computes", "sleeps", "threads", "registers"):
            done = 0
            while done < KILLS // 4:
                victim, moments = self.victim(kind, 600.0), random.Random(done)
                # As long as none has come through: then it is loaded, and the next one takes another.
                while done < KILLS // 4 and not victim.loaded():
                    tool = subprocess.Popen(victim.command(asked=f"-{done}"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    time.sleep(moments.random() * (0.4 if kind in ("computes", "registers") else 0.01))
                    tool.send_signal(signal.SIGKILL)
                    tool.wait()
                    self.assertIsNone(victim.process.poll(), f"{kind}: {victim.process.returncode}")
                    done += 1
                if not victim.loaded():
                    victim.attach()
                # A thread may have begun for a tool that was killed, and comes through only now: then two tools have asked.
                for lines in victim.loaded_for():
                    self.assertLessEqual(len(lines), 1)
                # It goes on: its processor time or its switches grow.
                self.assert_goes_on(victim)
                victim.kill()

    def assert_goes_on(self, victim):
        def used():
            with open(f"/proc/{victim.pid}/schedstat") as file:
                return file.read().split()[0]
        before, deadline = used(), time.monotonic() + 20
        while used() == before:
            self.assertLess(time.monotonic(), deadline, "it stands")
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main(verbosity=2)
