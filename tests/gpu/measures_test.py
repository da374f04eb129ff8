# SPDX-License-Identifier: Apache-2.0
"""measures_test.py GRID_FOR CPU_KERNEL FAKE_CUDA: measures.py, on a driver whose device is this CPU."""
import argparse
import math
import unittest

import measures
from kernels_test import Cpu


class Measures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.arguments = argparse.Namespace(machine=Cpu(), seconds=1000, ends_at=math.inf)

    def test_agree_with_torch(self):
        answer = measures.measures_are_right(self.arguments)
        self.assertEqual(answer.value["first_wrong"], [])
        self.assertGreater(answer.value["tensors"], 100)

    def test_that_are_wrong_are_told(self):
        for figure, spoil in {"sum": lambda sum: sum + 1e-6, "squares": lambda squares: squares * (1 + 1e-9),
                              "largest": lambda largest: largest * (1 + 1e-15), "zeros": lambda zeros: zeros + 1}.items():
            class Liar(measures.Measurer):
                def ask(self, tensors, gate=None, figure=figure, spoil=spoil):
                    return [told | {figure: spoil(told[figure])} for told in super().ask(tensors, gate)]
            honest, measures.Measurer = measures.Measurer, Liar
            try:
                self.assertFalse(measures.measures_are_right(self.arguments).met, figure)
            finally:
                measures.Measurer = honest

    def test_samples_are_compared_with_what_they_were(self):
        self.assertEqual(measures.comparisons_are_right(self.arguments).value, {"tensors": 24, "wrong": 0, "first_wrong": []})

    def test_speed_is_asked_of_every_type(self):
        self.assertEqual([row["type"] for row in measures.bandwidth(self.arguments).value["rows"]], ["float64", "float32", "float16", "bfloat16"])


if __name__ == "__main__":
    unittest.main(argv=["measures_test.py"], verbosity=2)
