"""The Trainer of transformers around a model of the user's: layer, and steps under gradient accumulation."""
import importlib.util
import math
import unittest

from framework_job import FrameworkTest, program, source_of

NAME = "hf_trainer"


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed: its Trainer was NOT tried")
class HuggingFaceTrainer(FrameworkTest):
    @classmethod
    def start(cls, workplace):
        command = program(NAME)
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)
        cls.bare.status(), cls.watched.status()
        cls.faulty = workplace.run_watched([*command, "--fault"])

    def test_healthy_training_is_as_without_us_and_called_clean(self):
        self.assert_healthy(self.bare, self.watched)

    def test_the_layer_is_the_user_s_and_the_step_counts_updates_not_batches(self):
        # The Trainer shuffles: in which update the empty text came is what its own log says.
        losses = [float.fromhex(loss) for loss in self.faulty.stdout().split()[:-1]]
        first_bad = [math.isnan(loss) for loss in losses].index(True)
        self.assertGreater(first_bad, 0)
        self.assert_origin(self.faulty, kind="op", op="aten::div", phase="forward", layer="pool", layer_type="MaskedMean",
                           root="TextClassifier#0", step=first_bad, rank=0, source=source_of(NAME))


if __name__ == "__main__":
    unittest.main(verbosity=2)
