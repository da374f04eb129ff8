# SPDX-License-Identifier: Apache-2.0
"""Ranks on GPUs: a value that came by a collective is blamed on the rank that made it, as on the CPU.

The fake device's collectives are gloo's, announced as NCCL's are (tests/fakes/torch_cuda/collectives.cc)."""
import pathlib
import re
import sys
import unittest

import torch.distributed
from gpu_job import FAKE_GPU, GpuJobTest, LAGS

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "ranks/programs/ranks.py"
HERE = next(number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if re.search(r"# here$", line))
MADE = {"op": "aten::log", "class": "produce", "source": f"ranks.py:{HERE} in spoil"}
# Ranks, and where it began. "overlap" is for gloo.
CASES = {"average": (4, {"rank": 2, "step": 2, **MADE}), "pipeline": (3, {"rank": 1, "step": 1, **MADE}),
         "gather": (4, {"rank": 3, "step": 1, **MADE}), "parallel": (2, {"rank": 1, "step": 2, **MADE}),
         "overlap": (3, {"rank": 2, "step": 2, **MADE}), "broadcast": (2, {"rank": 0, "step": 0, "kind": "parameter", "param": "0.weight"})}


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed: ranks were NOT tried")
class Ranks(GpuJobTest):
    def assert_one(self, case, *options, **environment):
        """There is one incident, and it reached parameters."""
        count, expected = CASES[case]
        job = self.workplace.run_watched([sys.executable, FAKE_GPU, "--default-device", PROGRAM, case, str(count)], options, **environment)
        self.assertEqual(job.status(), 0, job.stderr())
        first, *others = job.verdict()["incidents"]
        self.assertEqual([other["origin"] for other in others], [])
        self.assertEqual({name: first["origin"][name] for name in expected} | {"exact": first["origin"]["exact"]}, expected | {"exact": True})
        self.assertIn("parameter", first["reach"])

    def test_every_op_watched(self):
        for case in CASES:
            with self.subTest(case):
                self.assert_one(case)

    def test_level_layer(self):
        for case in CASES:
            with self.subTest(case):
                self.assert_one(case, "--level", "sampled")

    def test_gloo_which_carries_a_gpu_s_tensors_by_the_cpu(self):
        for case in ("average", "overlap"):
            for lag in (LAGS[0], LAGS[-1]):
                with self.subTest(case, lag=lag):
                    self.assert_one(case, NANWATCH_FAKE_COLLECTIVES="gloo", NANWATCH_FAKE_LAG=lag)

    def test_gradients_that_are_views_of_what_is_averaged(self):
        for options in ((), ("--level", "sampled")):
            with self.subTest(options):
                self.assert_one("parallel", *options, AS_VIEW="1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
