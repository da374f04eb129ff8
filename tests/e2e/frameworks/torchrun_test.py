# SPDX-License-Identifier: Apache-2.0
"""torchrun with two ranks over gloo: DDP and FSDP2. The rank that made the value is named, and not the one it was sent to."""
import unittest

import torch.distributed

from framework_job import FrameworkTest, on_two_ranks, source_of

# One thread a rank: torchrun says so itself for want of anything better, and says it on stderr.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
# A rank on a busy machine is aborted by torch's own teardown of a process group, with and without nanwatch.
TEARDOWN_ABORT = "terminate called without an active exception"


def to_the_end(run, command):
    """The finished job; one that torch's teardown has aborted says nothing and is run again, twice at most."""
    for _ in range(3):
        job = run(command, **ENVIRONMENT)
        if job.status() == 0 or TEARDOWN_ABORT not in job.stderr():
            break
    return job


class TorchrunTest(FrameworkTest):
    name = None

    @classmethod
    def start(cls, workplace):
        command = on_two_ranks(cls.name)
        cls.bare = to_the_end(workplace.run_bare, command)
        cls.watched = to_the_end(workplace.run_watched, command)
        cls.faulty = to_the_end(workplace.run_watched, [*command, "--fault"])


class Cases:
    def test_healthy_ranks_train_as_without_us_and_are_called_clean(self):
        verdict = self.assert_healthy(self.bare, self.watched, runs=2)
        self.assertEqual({(run["rank"], run["world_size"]) for run in verdict["runs"]}, {(0, 2), (1, 2)})


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed: torchrun was NOT tried")
class Ddp(Cases, TorchrunTest):
    name = "ddp"

    def test_the_rank_that_divided_by_zero_is_named_and_the_layer_without_its_wrapper(self):
        self.assert_origin(self.faulty, kind="op", op="aten::div", phase="forward", layer="encoder.0", layer_type="Direction",
                           root="Net#0", step=3, rank=1, source=source_of("ddp"))


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed: torchrun was NOT tried")
class Fsdp2(Cases, TorchrunTest):
    name = "fsdp2"

    @classmethod
    def start(cls, workplace):
        super().start(workplace)
        def at_canary(command, **environment):
            return workplace.run_watched(command, options=("--level", "canary"), **environment)
        cls.canary = to_the_end(at_canary, [*on_two_ranks(cls.name), "--fault"])

    def test_the_shards_that_the_update_ruins_are_reached(self):
        reach = self.faulty.verdict()["incidents"][0]["reach"]
        self.assertLessEqual({"gradient", "parameter", "optimizer_state"}, set(reach))

    def test_canary_reads_the_shards(self):
        verdict = self.canary.verdict()
        self.assertEqual(verdict["verdict"], "anomaly", verdict["incidents"])
        self.assertIn("parameter", verdict["incidents"][0]["reach"])

    def test_the_rank_with_the_masked_row_is_named_and_the_layer_as_it_was_before_sharding(self):
        self.assert_origin(self.faulty, kind="op", op="aten::_softmax", phase="forward", layer="blocks.0.attention",
                           layer_type="Attention", root="Net#0", step=3, rank=1, source=source_of("fsdp2"))

    # gloo's own threads unpack the shards that are NaN by then.
    def test_what_the_ranks_gather_of_bad_shards_is_no_batch_from_outside(self):
        others = self.faulty.verdict()["incidents"][1:]
        self.assertEqual([each for each in others if each["origin"]["class"] == "external"], [])
        self.assertEqual([each for each in others if each["severity"] != "info" and each["origin"]["exact"]], [])


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed: torchrun was NOT tried")
class Refused(FrameworkTest):
    """Which rank the exit status is about, torchrun does not say. Each rank says what it died of."""

    def test_what_a_rank_died_of_is_the_anomaly(self):
        job = self.workplace.run_watched(on_two_ranks("refused"), **ENVIRONMENT)
        incident = self.assert_origin(job, status=1, kind="op", op="aten::log", rank=1, source=source_of("refused").removesuffix(" in ") + " in <module>")
        self.assertTrue(incident["ended_job"], incident)

    def test_what_it_had_left_behind_is_not(self):
        job = self.workplace.run_watched([*on_two_ranks("refused"), "--late"], **ENVIRONMENT)
        self.assertEqual((job.status(), job.verdict()["verdict"]), (1, "expected"), job.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=2)
