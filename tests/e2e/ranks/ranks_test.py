# SPDX-License-Identifier: Apache-2.0
"""Of several ranks the one is named that was first, by step and collective and not by the clock.

What the others received is its incident."""
import pathlib
import re
import sys
import unittest

import torch.distributed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import PromiseTest  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/ranks.py"
HERE = next(number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if re.search(r"# here$", line))


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed: ranks were NOT tried")
class Ranks(PromiseTest):
    maxDiff = None

    def incidents(self, case, count, *unwatched):
        job = self.workplace.run_watched([sys.executable, PROGRAM, case, count, *unwatched])
        self.assertEqual(job.status(), 0, job.stderr())
        verdict = job.verdict()
        watched = [rank for rank in range(count) if rank not in unwatched]
        self.assertEqual((verdict["verdict"], sorted(run["rank"] for run in verdict["runs"])), ("anomaly", watched))
        return verdict["incidents"]

    def assert_one(self, incidents, **expected):
        """There is this one alone, and it reached parameters."""
        first, *others = incidents
        self.assertEqual({name: first["origin"][name] for name in expected}, expected)
        self.assertEqual([other["origin"] for other in others], [])
        self.assertIn("parameter", first["reach"])

    def test_gradients_that_four_ranks_average(self):
        self.assert_one(self.incidents("average", 4), rank=2, step=2, op="aten::log", phase="forward",
                        source=f"ranks.py:{HERE} in spoil", **{"class": "produce"})

    def test_ranks_that_only_the_process_group_knows(self):
        job = self.workplace.run_watched([sys.executable, PROGRAM, "parallel", "2"], BY_SPAWN="1")
        verdict = job.verdict()
        self.assertEqual({(run["rank"], run["world_size"]) for run in verdict["runs"]}, {(0, 2), (1, 2)}, job.stderr())
        self.assertEqual([(incident["origin"]["op"], incident["origin"]["rank"]) for incident in verdict["incidents"]], [("aten::log", 1)])

    def test_activations_that_four_ranks_hand_on(self):
        self.assert_one(self.incidents("pipeline", 4), rank=1, step=1, op="aten::log", source=f"ranks.py:{HERE} in spoil")

    def test_embeddings_that_four_ranks_gather(self):
        self.assert_one(self.incidents("gather", 4), rank=3, step=1, op="aten::log", source=f"ranks.py:{HERE} in spoil")

    def test_weights_that_one_rank_broadcasts(self):
        self.assert_one(self.incidents("broadcast", 2), rank=0, step=0, kind="parameter", param="0.weight")

    def test_value_of_a_rank_that_nobody_watches(self):
        (incident,) = self.incidents("average", 3, 2)
        self.assertEqual((incident["origin"]["class"], incident["origin"]["step"], incident["pattern"]["id"]),
                         ("received", 2, "received-from-another-rank"))

    def test_rank_that_was_first_by_step_though_last_by_the_clock(self):
        first, second = self.incidents("late", 2)
        self.assertEqual([(i["origin"]["rank"], i["origin"]["step"], i["origin"]["op"]) for i in (first, second)],
                         [(1, 1, "aten::log"), (0, 2, "aten::sqrt")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
