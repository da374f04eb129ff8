# SPDX-License-Identifier: Apache-2.0
"""Promise: a child process is watched from its first op; it is a run of its own once there is something to report, and none is disturbed."""
import collections
import json
import unittest

from watched_job import PromiseTest

TRAIN = """
import multiprocessing, os
import torch

def train(make_nan):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).pow(2).sum()
        if make_nan and step == 2:
            loss = loss + torch.log(torch.full((), -1.0))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()).hex())
    return " ".join(losses)
"""
FORKED = TRAIN + """
def in_child(work):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, str(work()).encode())
        os._exit(7)
    os.close(writing)
    _, status = os.waitpid(pid, 0)
    with open("pids", "a") as file:
        print(pid, file=file)
    print(os.read(reading, 1000).decode(), os.waitstatus_to_exitcode(status))

torch.set_num_threads(1)  # OpenMP does not survive a fork.
torch.ones(4).sum()
in_child(lambda: train(True))
in_child(lambda: float(torch.nn.Linear(4, 1)(torch.ones(2, 4)).mul(0).sum().detach()) == 0)
print(train(False))
"""
SPAWNED = TRAIN + """
def child(queue, make_nan):
    queue.put(train(make_nan))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue, True))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode, train(False))
"""


class Children(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {}
        for name, text in (("forked", FORKED), ("spawned", SPAWNED)):
            command = workplace.program(name, text)
            cls.jobs[name] = workplace.run_bare(command), workplace.run_watched(command)

    def check_two_runs(self, verdict):
        """The child's NaN is the child's alone."""
        self.assertEqual(len(verdict["runs"]), 2, verdict["runs"])
        origin = verdict["incidents"][0]["origin"]
        found = (verdict["verdict"], origin["op"], origin["class"], origin["phase"], int(origin["step"]))
        self.assertEqual(found, ("anomaly", "aten::log", "produce", "forward", 2))
        parent, child = sorted(verdict["runs"], key=lambda run: run["pid"] == verdict["run"]["pid"])
        self.assertEqual(origin["run"], child["id"])
        return parent, child

    def test_forked_children_work_as_without_us(self):
        self.assert_same(*self.jobs["forked"])

    def test_a_forked_child_that_trains_is_a_run_and_one_with_nothing_to_report_is_none(self):
        _, watched = self.jobs["forked"]
        _, child = self.check_two_runs(watched.verdict())
        training_child = int(watched.file("pids").split()[0])
        self.assertEqual(child["pid"], training_child)

    def test_spawned_children_work_as_without_us(self):
        self.assert_same(*self.jobs["spawned"])

    def test_a_spawned_child_that_trains_is_a_run(self):
        self.check_two_runs(self.jobs["spawned"][1].verdict())


# Children that compute and never train: each makes its NaN by an op of its own.
COMPUTE = """
import multiprocessing, os
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.ones(4).sum()

def actor(value):
    return torch.log(torch.full((2,), value)).tolist()[0]

def validate():
    layer = torch.nn.Linear(4, 1)
    with torch.no_grad():
        made = torch.sqrt(layer(torch.ones(2, 4)) * 0 - 1).mean()
    return made.item()

class Samples(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.acos(torch.ones(3) * (2.0 if index == 5 else 0.5))

def in_child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    os.waitpid(pid, 0)

if __name__ == "__main__":
    KIND
    print("done")
"""
KINDS = {
    "os.fork": ("in_child(lambda: actor(-1.0))", "aten::log"),
    "validation": ("in_child(validate)", "aten::sqrt"),
    "process": ("p = multiprocessing.get_context('fork').Process(target=actor, args=(-1.0,)); p.start(); p.join()", "aten::log"),
    "pool": ("with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(actor, [1.0, -1.0, 1.0]))", "aten::log"),
    "torch pool": ("with torch.multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map(actor, [-1.0]))", "aten::log"),
    "loader": ("print(sum(batch.isnan().sum().item() for batch in DataLoader(Samples(), 2, num_workers=2)))", "aten::acos"),
    "grandchild": ("in_child(lambda: in_child(lambda: actor(-1.0)))", "aten::log"),
}

# Forks (FORKS of them) while another thread records bad values all the time. The forking thread computes before its
# first fork: a thread's first op takes a lock of torch's (GlobalCallbackManager), which a child that
# was forked while another thread held it waits for until it is killed, with us and without.
STORM = """
import os, signal, threading
import torch
torch.set_num_threads(1)
torch.log(torch.ones(2))
over = False
def record():
    model = torch.nn.Linear(4, 4)
    while not over:
        model(torch.full((2, 4), float("nan"))).sum().backward()
thread = threading.Thread(target=record)
thread.start()
for i in range(int(os.environ.get("FORKS", "300"))):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        torch.log(torch.full((2,), -1.0))
        os._exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
over = True
thread.join()
"""


class ComputingChildren(PromiseTest):
    """A worker, an actor, a validation child: no backward pass, no optimizer."""

    @classmethod
    def start(cls, workplace):
        cls.jobs = {}
        for name, (work, _) in KINDS.items():
            command = workplace.program(name.replace(".", "_").replace(" ", "_"), COMPUTE.replace("KIND", work))
            cls.jobs[name] = workplace.run_bare(command), workplace.run_watched(command)
        storm = workplace.program("storm", STORM)
        cls.storm = workplace.run_bare(storm), workplace.run_watched(storm)

    def test_children_work_as_without_us(self):
        for name, job in self.jobs.items():
            with self.subTest(name):
                self.assert_same(*job)

    def test_what_a_child_computes_is_reported_with_its_op(self):
        for name, (_, op) in KINDS.items():
            with self.subTest(name):
                verdict = self.jobs[name][1].verdict()
                self.assertIn(op, [incident["origin"]["op"] for incident in verdict["incidents"]], json.dumps(verdict["runs"]))

    def test_a_number_that_a_validation_child_reads_is_a_metric(self):
        incident = self.jobs["validation"][1].verdict()["incidents"][0]
        self.assertEqual((incident["origin"]["op"], incident["severity"]), ("aten::sqrt", "warning"))
        self.assertIn("metric", incident["reach"])

    def test_children_forked_while_another_thread_records_run_to_their_end(self):
        bare, watched = self.storm
        self.assertEqual(bare.status(), 0, bare.stderr())
        self.assertEqual(watched.status(), 0, watched.stderr())
        self.assertEqual(collections.Counter(watched.stdout().split()), collections.Counter(bare.stdout().split()))
        self.assertEqual(set(watched.stdout().split()), {"5"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
