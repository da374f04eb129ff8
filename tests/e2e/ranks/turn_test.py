# SPDX-License-Identifier: Apache-2.0
"""A rank whose gradients an all_reduce has made NaN is not called their origin, however slow the thread is that records it.

The threads of the process group wait at each lock of the observer's (programs/slow_threads.c), so that the main thread meets the
value before it is recorded.
"""
import os
import unittest

import torch
from torch import nn

import forked_ranks

JOBS, STEPS, BAD_STEP = 6, 4, 2


def train(bad_rank):
    def work(rank, count):
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = parallel(torch.randn(8, 6)).square().mean()
            if (rank, step) == (bad_rank, BAD_STEP):
                loss = torch.log(-loss)
            loss.backward()
            optimizer.step()
    return work


class Turn(unittest.TestCase):
    def test_the_healthy_rank_is_never_the_origin(self):
        for job in range(JOBS):
            with self.subTest(job=job):
                statuses, verdict = forked_ranks.run_job(train(job % 2), 2, f"turn-{os.getpid()}-{job}", environment)
                self.assertEqual(statuses, [0, 0])
                found = [(i["origin"]["rank"], int(i["origin"]["step"]), i["origin"]["op"]) for i in forked_ranks.anomalies(verdict)]
                self.assertEqual(found, [(job % 2, BAD_STEP, "aten::log")])


def run(of_reports):
    global environment
    environment = of_reports
    unittest.main(verbosity=2)


forked_ranks.main(run, preload=os.environ["SLOW_THREADS"])
