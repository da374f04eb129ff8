# SPDX-License-Identifier: Apache-2.0
"""A script as timm trains: its models, Mixup, optimizer factory, schedule and averaged model."""
import importlib.util
import unittest

from framework_job import FrameworkTest, HealthyCase, program, source_of

NAME = "timm_training"


@unittest.skipUnless(importlib.util.find_spec("timm"), "timm is not installed: it was NOT tried")
class Timm(HealthyCase, FrameworkTest):
    @classmethod
    def start(cls, workplace):
        command = program(NAME)
        cls.run_healthy(workplace, command)
        cls.faulty = workplace.run_watched([*command, "--fault"])

    def test_the_layer_before_the_backbone_is_named_and_not_the_averaged_copy_of_it(self):
        self.assert_origin(self.faulty, kind="op", op="aten::div", phase="forward", layer="contrast", layer_type="Contrast",
                           root="Net#0", step=4, rank=0, source=source_of(NAME))


if __name__ == "__main__":
    unittest.main(verbosity=2)
