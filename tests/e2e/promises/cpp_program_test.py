# SPDX-License-Identifier: Apache-2.0
"""Promise: a plain C++ LibTorch program is observed as a Python one is.

NANWATCH_CPP_PROGRAM is programs/plain_training.cc, built.
"""
import os
import unittest

from watched_job import PromiseTest


class CppProgram(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = [os.environ["NANWATCH_CPP_PROGRAM"]]
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)

    def test_it_computes_what_it_computes_without_us(self):
        self.assert_same(self.bare, self.watched)

    def test_the_op_that_made_the_nan_is_named_with_phase_and_step_and_no_layer(self):
        verdict = self.watched.verdict()
        origin = verdict["incidents"][0]["origin"]
        found = (verdict["verdict"], origin["op"], origin["class"], origin["phase"], origin["layer"])
        self.assertEqual(found, ("anomaly", "aten::sqrt", "produce", "forward", ""))
        self.assertEqual((int(origin["step"]), origin["step_source"]), (1, "backward"))
        self.assertLessEqual({"loss", "gradient"}, set(verdict["incidents"][0]["reach"]))

    def test_an_update_by_hand_that_took_the_nan_in_is_told_as_reaching_the_parameter(self):
        self.assertIn("parameter", self.watched.verdict()["incidents"][0]["reach"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
