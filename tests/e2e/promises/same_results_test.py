# SPDX-License-Identifier: Apache-2.0
"""Promise: the job's losses, weights, output and exit status are bit for bit what they are without us."""
import importlib.util
import pathlib
import shutil
import sys
import unittest

from watched_job import PromiseTest, origins

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
MODELS = [sys.executable, PROGRAMS / "small_models.py"]


class SmallModels(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = [*MODELS, "mlp", "transformer", "lstm", "gan"]
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)

    def test_an_mlp_a_transformer_an_lstm_and_a_gan_train_as_without_us(self):
        self.assert_same(self.bare, self.watched)
        self.assertEqual([line.split()[0] for line in self.bare.stdout().splitlines()], ["mlp", "transformer", "lstm", "gan"])

    def test_they_are_called_clean(self):
        self.assert_clean(self.watched)


class ModelThatGoesBad(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = [*MODELS, "nan_mlp"]
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)

    def test_it_goes_bad_exactly_as_without_us(self):
        self.assert_same(self.bare, self.watched)
        self.assertIn(" nan ", self.bare.stdout())

    def test_where_it_began_is_named(self):
        verdict = self.watched.verdict()
        self.assertEqual(verdict["verdict"], "anomaly")
        first = origins(verdict)[0]
        found = (first["op"], first["class"], first["phase"], first["layer"], int(first["step"]))
        self.assertEqual(found, ("aten::log", "produce", "forward", "0", 1))


@unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed: ResNet-18 was NOT compared")
class ResNet(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = [*MODELS, "resnet18"]
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)

    def test_resnet_18_trains_as_without_us_and_is_called_clean(self):
        self.assert_same(self.bare, self.watched)
        self.assert_clean(self.watched)


@unittest.skipUnless(shutil.which("g++") or shutil.which("c++"), "no C++ compiler: torch.compile was NOT compared")
class Compiled(PromiseTest):
    @classmethod
    def start(cls, workplace):
        # Each with an empty cache, so that compiling itself happens under observation too.
        command = [*MODELS, "compiled"]
        cls.bare = workplace.run_bare(command, TORCHINDUCTOR_CACHE_DIR=str(workplace.folder / "bare-cache"))
        cls.watched = workplace.run_watched(command, TORCHINDUCTOR_CACHE_DIR=str(workplace.folder / "watched-cache"))

    def test_a_compiled_model_trains_as_without_us_and_its_compile_workers_are_no_runs(self):
        self.assert_same(self.bare, self.watched)
        self.assert_clean(self.watched)


class Loader(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = [*MODELS, "loader"]
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)

    def test_batches_from_forked_workers_train_as_without_us_and_the_workers_are_no_runs(self):
        self.assert_same(self.bare, self.watched)
        self.assert_clean(self.watched, runs=1)


class Ranks(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = [sys.executable, PROGRAMS / "two_ranks.py"]
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)
        cls.bad = workplace.run_watched([*command, "nan"])

    def test_two_ranks_train_as_without_us_and_both_are_seen(self):
        self.assert_same(self.bare, self.watched)
        verdict = self.assert_clean(self.watched, runs=2)
        self.assertEqual({(run["rank"], run["world_size"]) for run in verdict["runs"]}, {(0, 2), (1, 2)})

    def test_the_rank_that_made_the_nan_is_the_origin_and_not_the_one_that_received_it(self):
        self.assertEqual(self.bad.status(), 0, self.bad.stderr())
        verdict = self.bad.verdict()
        self.assertEqual((verdict["verdict"], len(verdict["runs"])), ("anomaly", 2))
        first = origins(verdict)[0]
        self.assertEqual((first["op"], first["rank"], int(first["step"])), ("aten::log", 1, 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
