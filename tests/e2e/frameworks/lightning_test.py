# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer: the module path under the outermost module that is called (a LightningModule never is), and steps that run inside the optimizer's closure."""
import importlib.util
import unittest

from framework_job import FrameworkTest, HealthyCase, program, source_of

NAME = "lightning_trainer"


class LightningTest(FrameworkTest):
    precision = None

    @classmethod
    def start(cls, workplace):
        command = [*program(NAME), "--precision", cls.precision]
        cls.run_healthy(workplace, command)
        cls.faulty = workplace.run_watched([*command, "--fault"])


class Cases(HealthyCase):
    def test_the_layer_is_named_from_the_module_that_training_step_calls(self):
        self.assert_origin(self.faulty, kind="op", op="aten::div", phase="forward", layer="layers.1", layer_type="Shares",
                           root="Classifier#0", step=4, rank=0, source=source_of(NAME))


@unittest.skipUnless(importlib.util.find_spec("lightning"), "lightning is not installed: its Trainer was NOT tried")
class FullPrecision(Cases, LightningTest):
    precision = "32-true"


# On the CPU Lightning turns 16-mixed into bf16-mixed, because CPU autocast there is bfloat16 alone: one case stands for both.
@unittest.skipUnless(importlib.util.find_spec("lightning"), "lightning is not installed: its mixed precision was NOT tried")
class MixedPrecision(Cases, LightningTest):
    precision = "bf16-mixed"


if __name__ == "__main__":
    unittest.main(verbosity=2)
