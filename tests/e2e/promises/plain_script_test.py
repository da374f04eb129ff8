# SPDX-License-Identifier: Apache-2.0
"""Promise: a script of ops alone, without module, backward pass or optimizer, gets its answer, too."""
import unittest

from watched_job import PromiseTest

SUM = """
import torch
x = torch.randn(4, 4)
(x @ x).sum()
"""
FAILS = SUM + "raise RuntimeError('of its own')\n"
NOTHING = "import torch\n"
REFUSED = """
import torch
loc = torch.log(torch.tensor([1.0, -1.0]))
torch.distributions.Normal(loc, 1.0)
"""
REPAIRED = """
import torch
loc = torch.log(torch.tensor([1.0, -1.0]))
loc = torch.where(torch.isnan(loc), 0.0, loc)
print(torch.distributions.Normal(loc, 1.0).sample().shape)
raise ValueError("of something else")
"""
LOADER = """
import torch

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([float(index)]).square()

if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="spawn"):
        batch.sum()
"""


class PlainScripts(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def job(name, text):
            return workplace.run_watched(workplace.program(name, text))
        cls.refused, cls.repaired = job("refused", REFUSED), job("repaired", REPAIRED)
        cls.sum, cls.fails, cls.nothing, cls.loader = job("sum", SUM), job("fails", FAILS), job("nothing", NOTHING), job("loader", LOADER)

    def test_is_clean_where_its_ops_were(self):
        self.assert_clean(self.sum)

    def test_is_answered_where_it_ends_with_an_error(self):
        self.assertEqual(self.fails.status(), 1)
        self.assert_clean(self.fails)

    def test_is_unknown_where_it_ran_no_op(self):
        self.assertEqual((self.nothing.verdict()["verdict"], self.nothing.verdict()["runs"]), ("unknown", []))

    def test_that_dies_of_a_distribution_that_refuses_nan_is_an_anomaly(self):
        verdict = self.refused.verdict()
        self.assertEqual((self.refused.status(), verdict["verdict"]), (1, "anomaly"))
        self.assertEqual((verdict["incidents"][0]["origin"]["op"], verdict["incidents"][0]["ended_job"]), ("aten::log", True))
        self.assertNotIn("step unknown", self.refused.stderr().split("origin")[0])

    def test_that_repairs_nan_and_dies_of_something_else_has_none(self):
        self.assertEqual((self.repaired.status(), self.repaired.verdict()["verdict"]), (1, "expected"))

    def test_has_no_runs_of_spawned_workers_with_nothing_to_report(self):
        self.assert_clean(self.loader)


if __name__ == "__main__":
    unittest.main()
