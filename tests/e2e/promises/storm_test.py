# SPDX-License-Identifier: Apache-2.0
"""A storm of bad values, every op for a million ops, is one incident, and what is kept of it is bounded."""
import unittest

from watched_job import PromiseTest

# The guard is what people write, and what GradScaler does: no update is made, so the storm goes on, and every value is
# one that nanwatch has to look at anew.
STORM = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(layer for _ in range(20) for layer in (nn.Linear(4, 4), nn.Tanh())))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(2, 4)
for step in range(1500):
    optimizer.zero_grad()
    h = torch.log(x * 0 - 1)
    loss = model(h).sum()
    loss.backward()
    if torch.isfinite(loss):
        optimizer.step()
print(step)
"""
# Whatever the storm's length: 1.6 MB of tables, and a write-ahead log that SQLite begins anew at 4 MB.
DATABASE_BYTES_MAX = 8 << 20


class Storm(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.job = workplace.run_watched(workplace.program("storm", STORM))
        cls.job.status()

    def test_a_million_bad_ops_are_one_incident(self):
        verdict = self.job.verdict()
        self.assertEqual(self.job.stdout(), "1499\n")
        self.assertGreater(int(verdict["coverage"]["ops_seen"]), 1_000_000)
        self.assertEqual(verdict["verdict"], "anomaly")
        incident, *others = verdict["incidents"]
        self.assertEqual(others, [])
        self.assertEqual((incident["origin"]["op"], incident["origin"]["class"], incident["origin"]["step"]),
                         ("aten::log", "produce", 0))

    def test_all_of_them_are_counted_and_none_is_lost(self):
        verdict = self.job.verdict()
        self.assertGreater(int(verdict["incidents"][0]["count"]), 150_000)
        self.assertEqual(int(verdict["coverage"]["lost_events"]), 0)
        self.assertLessEqual(len(verdict["incidents"][0]["chain"]), 16)

    def test_the_database_stays_small(self):
        self.job.status()
        size = sum(file.stat().st_size for file in self.workplace.state.rglob("nanwatch.db*"))
        self.assertGreater(size, 0)
        self.assertLess(size, DATABASE_BYTES_MAX)


if __name__ == "__main__":
    unittest.main(verbosity=2)
