# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers around a model of the user's: layer, and steps under gradient accumulation."""
import importlib.util
import math
import unittest

from framework_job import FrameworkTest, HealthyCase, program, source_of

NAME = "hf_trainer"


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed: its Trainer was NOT tried")
class HuggingFaceTrainer(HealthyCase, FrameworkTest):
    @classmethod
    def start(cls, workplace):
        command = program(NAME)
        cls.run_healthy(workplace, command)
        cls.faulty = workplace.run_watched([*command, "--fault"])

    def test_the_layer_is_the_user_s_and_the_step_counts_updates_not_batches(self):
        # The Trainer shuffles: in which update the empty text came is what its own log says.
        losses = [float.fromhex(loss) for loss in self.faulty.stdout().split()[:-1]]
        first_bad = [math.isnan(loss) for loss in losses].index(True)
        self.assertGreater(first_bad, 0)
        self.assert_origin(self.faulty, kind="op", op="aten::div", phase="forward", layer="pool", layer_type="MaskedMean",
                           root="TextClassifier#0", step=first_bad, rank=0, source=source_of(NAME))


if __name__ == "__main__":
    unittest.main(verbosity=2)
