# SPDX-License-Identifier: Apache-2.0
"""Accelerate around a loop of the user's: its wrapped forward, optimizer and loader leave no trace in what is said."""
import importlib.util
import unittest

from framework_job import FrameworkTest, HealthyCase, program, source_of

NAME = "accelerate_loop"


@unittest.skipUnless(importlib.util.find_spec("accelerate"), "accelerate is not installed: it was NOT tried")
class Accelerate(HealthyCase, FrameworkTest):
    @classmethod
    def start(cls, workplace):
        command = program(NAME)
        cls.run_healthy(workplace, command)
        cls.log, cls.data = workplace.run_watched([*command, "--fault", "log"]), workplace.run_watched([*command, "--fault", "data"])

    def test_a_logarithm_of_zero_is_named_with_its_layer_and_update(self):
        self.assert_origin(self.log, kind="op", op="aten::log", phase="forward", layer="body.2", layer_type="LogGate",
                           root="Net#0", step=3, rank=0, source=source_of(NAME))

    def test_a_nan_in_a_batch_is_the_data_s_and_the_layer_that_met_it_is_named(self):
        self.assert_origin(self.data, kind="input_data", op="aten::addmm", phase="forward", layer="embed", layer_type="Linear",
                           root="Net#0", step=3, rank=0, source=source_of(NAME, "return self.head(self.body(self.embed(x)))"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
