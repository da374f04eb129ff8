# SPDX-License-Identifier: Apache-2.0
"""Promise: a NaN that another process has made is reported there, by the memory that carried it, or its maker is a candidate."""
import unittest

from watched_job import PromiseTest

LOADER = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        sample = torch.randn(8, generator=torch.Generator().manual_seed(i))
        return self.normalize(sample * 0 if i == 21 else sample)
    def normalize(self, sample):
        return (sample - sample.mean()) / sample.std()  # normalizes

def collate(samples):
    batch = torch.stack(samples)
    if COLLATES and batch.isnan().any():
        batch = torch.log(torch.nan_to_num(batch) * 0 - 1)  # collates
    return batch

if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(DATASET, 4, num_workers=2, multiprocessing_context=CONTEXT, collate_fn=collate if COLLATES else None,
                        **OPTIONS)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    print(model.weight.isnan().all().item())
"""
ACTOR = """
import multiprocessing
import torch
import torch.multiprocessing

def act(channel, taken):
    for i in range(8):
        made = torch.sqrt(torch.arange(4.0) - (9 if i == 5 else 0))  # acts
        SEND
    taken.wait()

if __name__ == "__main__":
    torch.manual_seed(0)
    context = torch.multiprocessing.get_context("CONTEXT")
    taken = context.Event()
    receiving, sending = CHANNEL
    process = context.Process(target=act, args=(sending, taken))
    process.start()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for i in range(8):
        batch = RECEIVE
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    taken.set()
    process.join()
    print(model.weight.isnan().all().item())
"""
QUEUE = ACTOR.replace("CHANNEL", "(lambda queue: (queue, queue))(context.Queue())").replace(
    "SEND", "channel.put(made)").replace("RECEIVE", "receiving.get()")
PIPE = ACTOR.replace("CHANNEL", "context.Pipe(duplex=False)").replace("SEND", "channel.send(made.numpy())").replace(
    "RECEIVE", "torch.from_numpy(receiving.recv())")
# A Python number of before: a replay memory.
MEMORY = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
memory = []
for i in range(12):
    spread = torch.arange(3.0) * (i != 4)
    with torch.set_grad_enabled(GRAD):
        memory.append(float((spread / spread.std()).mean()))  # remembers
    if i < 8: continue
    target = torch.tensor(memory[i - 6:i - 2])
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(torch.randn(4, 4)).squeeze(1), target).backward()
    optimizer.step()
print(model.weight.isnan().all().item())
"""


# A pool inherits a value, or is given it, and reads numbers of it by different ops.
POOL = """
import multiprocessing
import torch

def work(number, bad):
    with torch.no_grad():
        bad = kept if bad is None else torch.from_numpy(bad)
        return float((bad * number if number % 2 else bad + number).mean())

if __name__ == "__main__":
    with torch.no_grad():
        kept = torch.log(torch.arange(5.0) - 2)  # makes
        print(float(kept.mean()))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.starmap(work, [(number, GIVEN) for number in range(4)], 1))
"""


def loader(collates, context, dataset="Samples()", options="{}"):
    return LOADER.replace("COLLATES", str(collates)).replace("CONTEXT", repr(context)).replace("DATASET", dataset).replace(
        "OPTIONS", options)


# What carries the value, in which program, by which op of which line, and in which step of the training.
FOLLOWED = {
    "loader_fork": (loader(False, "fork"), "aten::div", "normalizes", 5),
    "loader_spawn": (loader(False, "spawn"), "aten::div", "normalizes", 5),
    "collate": (loader(True, "fork"), "aten::log", "collates", 5),
    "subset": (loader(False, "fork", "torch.utils.data.Subset(Samples(), [30, 31, 21, 29])", "{'shuffle': True}"),
               "aten::div", "normalizes", 0),
    "queue_fork": (QUEUE.replace("CONTEXT", "fork"), "aten::sqrt", "acts", 5),
    "queue_spawn": (QUEUE.replace("CONTEXT", "spawn"), "aten::sqrt", "acts", 5),
}
NOT_FOLLOWED = {
    "pipe": (PIPE.replace("CONTEXT", "fork"), "aten::sqrt", "acts", 5),
}
# Which samples the loader had asked its dataset for: indices, size of the batch, whether only the batch is known.
SAMPLES = {
    "loader_fork": (["21"], 4, False),
    "loader_spawn": (["21"], 4, False),
    "collate": (["20", "21", "22", "23"], 4, True),
    "subset": (["2"], 4, False),
    "rows": (["21"], 4, False),
    "queue_fork": None,
}
# A batch of NumPy's, which no op made.
ROWS = """
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return numpy.full(8, numpy.nan if i == 21 else i / 32, dtype="float32")

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(Rows(), 4, num_workers=2):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    print(model.weight.isnan().all().item())
"""
# Two trainings of one model in shared memory: what one has ruined the other meets in its forward.
SHARED = """
import torch
import torch.multiprocessing

def train(model, number, healthy, ruined):
    torch.manual_seed(number)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for i in range(6):
        x = torch.randn(8, 4)
        y = x.sum(1, keepdim=True)
        if i == 3 and number == 1:
            healthy.wait()
            y = y / torch.zeros_like(y)  # divides
        elif i == 3:
            healthy.set()
            ruined.wait()
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    ruined.set()

if __name__ == "__main__":
    context = torch.multiprocessing.get_context("spawn")
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).share_memory()
    events = context.Event(), context.Event()
    processes = [context.Process(target=train, args=(model, number, *events)) for number in range(2)]
    for process in processes: process.start()
    for process in processes: process.join()
    print(model[0].weight.isnan().all().item())
"""
# Numbers that Python read, and that a tensor was built of later: that they are the same is a guess.
GUESSED = {
    "memory": (MEMORY.replace("GRAD", "True"), "aten::div", "remembers", 0),
    "memory_without_gradients": (MEMORY.replace("GRAD", "False"), "aten::div", "remembers", 0),
}


def line_of(text, comment):
    """Its number, counted from 1."""
    return [("# " + comment) in line for line in text.split("\n")].index(True) + 1


class OtherProcesses(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.jobs = {name: workplace.run_watched(workplace.program(name, text))
                    for name, (text, *_) in (FOLLOWED | NOT_FOLLOWED | GUESSED).items()}
        for name, given in (("pool_inherits", "None"), ("pool_is_given", "kept.numpy()")):
            cls.jobs[name] = workplace.run_watched(workplace.program(name, POOL.replace("GIVEN", given)))
        cls.jobs["shared"] = workplace.run_watched(workplace.program("shared", SHARED))
        cls.jobs["rows"] = workplace.run_watched(workplace.program("rows", ROWS))

    def first(self, name):
        self.assertEqual(self.jobs[name].stdout().strip(), "True")
        verdict = self.jobs[name].verdict()
        self.assertEqual(verdict["verdict"], "anomaly")
        return verdict["incidents"][0]

    def test_what_came_by_shared_memory_is_reported_where_it_was_made(self):
        for name, (text, op, comment, step) in FOLLOWED.items():
            with self.subTest(name):
                incident = self.first(name)
                origin = incident["origin"]
                self.assertEqual((origin["op"], origin["class"], int(origin["step"]), origin["exact"]), (op, "produce", step, True))
                self.assertIn(f"{name}.py:{line_of(text, comment)} ", origin["source"])
                self.assertIn("parameter", incident["reach"])

    def test_what_a_loader_fetched_names_its_samples(self):
        for name, expected in SAMPLES.items():
            with self.subTest(name):
                found = self.first(name)["origin"]["samples"]
                self.assertEqual(found and (found["indices"], found["of_batch"], found["whole_batch"]), expected)
                if expected is not None and not expected[2]:
                    self.assertIn(f"sample    dataset index {expected[0][0]} was being fetched, for a batch of 4\n", self.jobs[name].stderr())

    def test_what_came_in_otherwise_has_its_maker_for_a_candidate_and_is_not_exact(self):
        for name, (text, op, comment, step) in NOT_FOLLOWED.items():
            with self.subTest(name):
                origin = self.first(name)["origin"]
                self.assertEqual((origin["kind"], origin["class"], int(origin["step"]), origin["exact"]),
                                 ("input_data", "external", step, False))
                self.assertIn(op, [each["op"] for each in origin["candidates"]])
                self.assertIn(f"{name}.py:{line_of(text, comment)} ", origin["candidates"][0]["source"])

    def test_weights_that_another_process_has_ruined_are_no_second_incident(self):
        origin = self.first("shared")["origin"]
        self.assertEqual((origin["op"], int(origin["step"])), ("aten::div", 3))
        self.assertIn(f"shared.py:{line_of(SHARED, 'divides')} ", origin["source"])
        others = [each["origin"] for each in self.jobs["shared"].verdict()["incidents"][1:] if each["severity"] != "info"]
        self.assertEqual(others, [])

    def test_what_a_pool_reads_of_one_value_is_one_incident(self):
        for name in ("pool_inherits", "pool_is_given"):
            with self.subTest(name):
                found = [(each["severity"], each["origin"]["op"], each["origin"]["source"])
                         for each in self.jobs[name].verdict()["incidents"] if each["severity"] != "info"]
                self.assertEqual([each[:2] for each in found], [("warning", "aten::log")])
                self.assertIn(f"{name}.py:{line_of(POOL, 'makes')} ", found[0][2])

    def test_what_a_replay_memory_kept_as_numbers_leads_to_its_maker_and_is_not_exact(self):
        for name, (text, op, comment, step) in GUESSED.items():
            with self.subTest(name):
                origin = self.first(name)["origin"]
                self.assertEqual((origin["op"], origin["class"], int(origin["step"]), origin["exact"]), (op, "produce", step, False))
                self.assertIn(f"{name}.py:{line_of(text, comment)} ", origin["source"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
