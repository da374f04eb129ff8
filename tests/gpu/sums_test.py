# SPDX-License-Identifier: Apache-2.0
"""sums_test.py GRID_FOR CPU_KERNEL FAKE_CUDA: sums.py, on a driver whose device is this CPU."""
import argparse
import math
import unittest

import sums
from kernels_test import Cpu


class Sums(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.arguments = argparse.Namespace(machine=Cpu(), seconds=1000, ends_at=math.inf)

    def ask_by(self, liar):
        honest, sums.SumChecker = sums.SumChecker, liar
        try:
            return sums.sums_are_right(self.arguments)
        finally:
            sums.SumChecker = honest

    def test_agree_with_torch(self):
        answer = sums.sums_are_right(self.arguments)
        self.assertEqual((answer.value["first_wrong"], answer.value["lists"]), ([], 36))

    def test_that_are_wrong_are_told(self):
        class OfSquares(sums.SumChecker):
            def sums(self):
                told = super().sums()
                return told | {"squares": told["squares"] * (1 + 1e-6)}

        class OfFirst(sums.SumChecker):
            def sums(self):
                return super().sums() | {"first": 0.0}

        class OfZeros(sums.SumChecker):
            def sums(self):
                told = super().sums()
                return told | {"nonzero": told["nonzero"][1:]}

        class OfBad(sums.SumChecker):
            def check_list(self, tensors, gate):
                found, counted = super().check_list(tensors, gate)
                return found[1:], counted

        for liar in (OfSquares, OfFirst, OfZeros, OfBad):
            self.assertFalse(self.ask_by(liar).met, liar.__name__)

    def test_speed_is_asked_of_every_part_that_is_summed(self):
        rows = sums.bandwidth(self.arguments).value["rows"]
        self.assertEqual([row["type"] for row in rows], ["float64", "float32", "float16", "bfloat16", "float32", "bfloat16"])


if __name__ == "__main__":
    unittest.main(argv=["sums_test.py"], verbosity=2)
