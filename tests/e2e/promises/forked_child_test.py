"""Promise: a child process that trains is a run of its own, one that does not is none, and neither is disturbed."""
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

    def test_a_forked_child_that_trains_is_a_run_and_one_that_does_not_is_none(self):
        _, watched = self.jobs["forked"]
        _, child = self.check_two_runs(watched.verdict())
        training_child = int(watched.file("pids").split()[0])
        self.assertEqual(child["pid"], training_child)

    def test_spawned_children_work_as_without_us(self):
        self.assert_same(*self.jobs["spawned"])

    def test_a_spawned_child_that_trains_is_a_run(self):
        self.check_two_runs(self.jobs["spawned"][1].verdict())


if __name__ == "__main__":
    unittest.main(verbosity=2)
