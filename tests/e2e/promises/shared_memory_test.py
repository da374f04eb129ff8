# SPDX-License-Identifier: Apache-2.0
"""Promise: what watching takes of shared memory hurts neither the job nor others, and nothing is left behind.

Runs in a mount namespace of its own whose /dev/shm is a tmpfs of 64 MiB, as in a container. --long: 20 jobs in a row
instead of 4, two jobs of four ranks, and a table of what each job left.
"""
import ctypes
import json
import os
import shutil
import sys
import unittest

LONG = "--long" in sys.argv
INSIDE = "--inside" in sys.argv
SIZE = 64 << 20
JOBS = 20 if LONG else 4


def enter_small_shared_memory():
    """This program again, with a /dev/shm of its own; ends the test with a word where that needs a privilege."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        print("NOT TESTED: a mount namespace needs root and unshare")
        sys.exit(0)
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, "--inside",
                          *sys.argv[1:]])


def mount_small_shared_memory():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={SIZE},mode=1777".encode()) != 0:
        print(f"NOT TESTED: /dev/shm cannot be mounted: {os.strerror(ctypes.get_errno())}")
        sys.exit(0)


if __name__ == "__main__":
    if not INSIDE:
        enter_small_shared_memory()
    mount_small_shared_memory()

from watched_job import PromiseTest  # noqa: E402: its workplaces lie in /dev/shm


def used():
    room = os.statvfs("/dev/shm")
    return (room.f_blocks - room.f_bavail) * room.f_frsize


TRAINING = """
import os, sys
import torch

torch.manual_seed(0)
bad_from = int(sys.argv[1])
steps = int(sys.argv[2])
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(steps):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    if step >= bad_from:
        loss = loss / torch.zeros(())
    loss.backward()
    optimizer.step()
segments = os.environ.get("NANWATCH_DIR", "")
own = [os.stat(os.path.join(segments, name)).st_blocks * 512
       for name in (os.listdir(segments) if segments else []) if name.startswith(f"nw-{os.getpid()}-")]
print("pages", sum(own), file=sys.stderr)
print("loss", float(loss))
"""
HEALTHY = 1 << 30

LOADER = """
import torch

class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((1024, 1024), float(index))  # 4 MiB through shared memory

model = torch.nn.Linear(1024, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
total = 0.0
for batch in torch.utils.data.DataLoader(Batches(), batch_size=1, num_workers=3):
    optimizer.zero_grad()
    loss = model(batch[0]).mean()
    loss.backward()
    optimizer.step()
    total += float(batch.sum())
print("total", total)
"""

CUT = """
import faulthandler, glob, os, sys
import torch

when = sys.argv[1]
if when == "before":
    faulthandler.enable()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()

step()
if when == "after":
    faulthandler.enable()
    import time
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        step()
for path in glob.glob(os.path.join(os.environ.get("NANWATCH_DIR", "/nowhere"), f"nw-{os.getpid()}-*.seg")):
    open(path, "wb").close()
for _ in range(50):
    step()
torch.sqrt(torch.tensor(-1.0))
print("done")
"""

FILLS = """
import os, sys
import torch

model = torch.nn.Linear(4, 4)
def step(scale):
    model(torch.ones(2, 4) * scale).sum().backward()
step(1.0)
with open("/dev/shm/filler", "wb") as filler:
    try:
        while True:
            filler.write(b"x" * 65536)
            filler.flush()
    except OSError:
        pass
for i in range(3000):
    step(float("inf"))
os.unlink("/dev/shm/filler")
print("done")
"""


class InARow(PromiseTest):
    def leave(self, start):
        """Bytes of /dev/shm more than before, after each job."""
        before = used()
        left = []
        for _ in range(JOBS):
            job = start()
            self.assertEqual(job.status(), 0, job.stderr())
            left.append(used() - before)
        print(f"\nbytes left after each of {JOBS} jobs, {self.id().rsplit('.')[-1]}: {left}", flush=True)
        return left


class JobsWithoutADaemon(InARow):
    def test_healthy_ones_leave_nothing(self):
        command = self.workplace.program("healthy", TRAINING)
        left = self.leave(lambda: self.workplace.run_preloaded([*command, HEALTHY, 5]))
        self.assertEqual(left, [0] * JOBS)
        self.assertEqual(list(self.workplace.segments.glob("nw-*")), [])

    def test_those_with_findings_stay_and_are_bounded(self):
        command = self.workplace.program("bad", TRAINING)
        left = self.leave(lambda: self.workplace.run_preloaded([*command, 2, 5]))
        self.assertLess(max(left), JOBS * (1 << 20))
        self.assertEqual(len(list(self.workplace.segments.glob("nw-*.seg"))), JOBS)


class JobsUnderRun(InARow):
    def test_healthy_ones_leave_nothing(self):
        command = self.workplace.program("healthy_run", TRAINING)
        left = self.leave(lambda: self.workplace.run_watched([*command, HEALTHY, 5]))
        self.assertLessEqual(max(left), 8192, "the daemon's lock file is all")
        self.assertEqual(list(self.workplace.segments.glob("nw-*")), [])


class WhileItRuns(PromiseTest):
    def test_a_healthy_job_stays_below_a_mebibyte_however_long(self):
        job = self.workplace.run_preloaded([*self.workplace.program("long", TRAINING), HEALTHY, 6000])
        self.assertEqual(job.status(), 0, job.stderr())
        pages = int(job.stderr().split("pages ")[1].split()[0])
        print(f"\npages of a healthy job of 6,000 steps: {pages}", flush=True)
        self.assertGreater(pages, 0)
        self.assertLess(pages, 1 << 20)

    def test_workers_beside_watched_jobs_have_room(self):
        command = self.workplace.program("loader", LOADER)
        bare = self.workplace.run_bare(command)
        self.assertEqual(bare.status(), 0, bare.stderr())
        self.assert_same(bare, self.workplace.run_watched(command))

    def test_a_file_that_is_cut_ends_no_job(self):
        command = self.workplace.program("cut", CUT)
        for when in ("never", "before", "after"):
            with self.subTest(when):
                job = self.workplace.run_watched([*command, when])
                self.assertEqual((job.status(), job.stdout()), (0, "done\n"), job.stderr())
                self.assertIn("aten::sqrt", str(job.verdict()))


class WithoutRoom(PromiseTest):
    def test_a_full_file_system_at_the_start_is_said_and_counted(self):
        command = self.workplace.program("full", TRAINING)
        with open("/dev/shm/filler", "wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, SIZE - used() - (256 << 10))
        self.addCleanup(os.unlink, "/dev/shm/filler")
        bare = self.workplace.run_bare([*command, HEALTHY, 3])
        job = self.workplace.run_watched([*command, HEALTHY, 3])
        self.assert_same(bare, job)
        self.assertEqual(job.stderr().count("KiB free, and a segment starts with"), 1, job.stderr())
        self.assertIn("1 process of the command was not watched", job.stderr())
        self.assertEqual(job.verdict()["verdict"], "unknown")

    def test_one_that_fills_up_meanwhile_costs_records_that_are_counted(self):
        job = self.workplace.run_preloaded(self.workplace.program("fills", FILLS))
        self.assertEqual((job.status(), job.stdout()), (0, "done\n"), job.stderr())
        verdict = json.loads(self.workplace.tool("report", "--json"))
        self.assertEqual(verdict["verdict"], "anomaly")
        self.assertGreater(int(verdict["coverage"]["lost_events"]), 0)


@unittest.skipUnless(LONG, "two jobs of four ranks: --long")
class FourRanksTwice(PromiseTest):
    PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
dist.barrier()
import os
if dist.get_rank() == 0:
    room = os.statvfs("/dev/shm")
    print("free", room.f_bavail * room.f_frsize)
dist.destroy_process_group()
"""

    def test_leave_most_of_it_free(self):
        command = self.workplace.program("ranks", self.PROGRAM)
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--standalone", command[1]]
        jobs = [self.workplace.run_watched(launch) for _ in range(2)]
        for job in jobs:
            self.assertEqual(job.status(), 0, job.stderr())
            free = int(job.stdout().split("free ")[1].split()[0])
            print(f"\nfree beside two jobs of four ranks: {free >> 20} MiB", flush=True)
            self.assertGreater(free, SIZE // 2)


if __name__ == "__main__":
    arguments = [word for word in sys.argv if word not in ("--long", "--inside")]
    unittest.main(argv=arguments, verbosity=2)
