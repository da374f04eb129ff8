# SPDX-License-Identifier: Apache-2.0
"""batches_test.py GRID_FOR CPU_KERNEL FAKE_CUDA: batches.py, on a driver whose device is this CPU."""
import argparse
import math
import unittest
from unittest import mock

import batches
from kernels_test import Cpu


class Batches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.arguments = argparse.Namespace(machine=Cpu(), seconds=1000, ends_at=math.inf)

    def test_agree_with_torch(self):
        answer = batches.batches_are_right(self.arguments)
        self.assertEqual((answer.value["first_wrong"], answer.value["batches"], answer.met), ([], 35, True))

    def test_that_are_wrong_are_told(self):
        class OfStates(batches.BatchChecker):
            def check_batch(self, *arguments, **named):
                told = super().check_batch(*arguments, **named)
                return told and ([state & ~1 for state in told[0]], told[1])

        class OfFigures(batches.BatchChecker):
            def check_batch(self, *arguments, **named):
                told = super().check_batch(*arguments, **named)
                return told and (told[0], told[1][1:])

        class OfHits(batches.BatchChecker):
            def check_batch(self, *arguments, **named):
                return None

        for liar in (OfStates, OfFigures, OfHits):
            with mock.patch.object(batches, "BatchChecker", liar):
                self.assertFalse(batches.batches_are_right(self.arguments).met, liar.__name__)

    def test_samples_meet_each_element_once(self):
        answer = batches.samples_meet_all(self.arguments)
        self.assertTrue(answer.met, answer.value)

    def test_samples_that_meet_nothing_are_told(self):
        with mock.patch.object(batches, "PHASES", 0):
            self.assertFalse(batches.samples_meet_all(self.arguments).met)

    def test_speed_is_asked_of_small_and_large(self):
        rows = batches.speed(self.arguments).value["rows"]
        self.assertEqual([(row["type"], row["elements"]) for row in rows],
                         [("float32", 768), ("float32", (1 << 18) + 1), ("bfloat16", 768), ("bfloat16", (1 << 18) + 1)])
        self.assertTrue(all("failed" not in row for row in rows), rows)

    def test_hits_are_timed(self):
        self.assertEqual([row["case"] for row in batches.hit(self.arguments).value], ["beside_large_entries", "with_large_others"])


if __name__ == "__main__":
    unittest.main(argv=["batches_test.py"], verbosity=2)
