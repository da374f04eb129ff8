# SPDX-License-Identifier: Apache-2.0
"""A real Slurm: what srun, a batch script and a requeue make one job, and what they keep apart. launchers_test.py has other launchers."""
import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))
import slurm
from watched_job import NANWATCH, PRELOAD, TIMEOUT_S, PromiseTest, await_condition

# A rank of a data-parallel training over gloo. With "bad", rank 2's batch of step 3 holds a NaN. With a folder named "hangs", the first
# attempt says that it trains, and goes on until it is killed.
RANK = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist
here, words = pathlib.Path(sys.argv[1]), sys.argv[2:]
torch.set_num_threads(1)
rank, count = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
store = here / ("store." + os.environ["SLURM_STEP_ID"] + "." + os.environ.get("SLURM_RESTART_COUNT", "0"))
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
while step < 6 or ("hangs" in words and "SLURM_RESTART_COUNT" not in os.environ):
    x = torch.ones(8, 4)
    if step == 3 and "bad" in words and rank == 2 % count:
        x = torch.log(x - 2)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    step += 1
    if step == 6:
        (here / f"trained.{rank}").touch()
dist.destroy_process_group()
print("rank", rank, "ended")
sys.exit(3 if "fails" in words and rank == 1 else 0)
"""

WHY_NOT = slurm.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class RealSlurm(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.slurm = slurm.Slurm()
        cls.addClassCleanup(cls.slurm.close)
        cls.environment = workplace.watched | {name: value for name, value in cls.slurm.environment.items() if name in ("PATH", "SLURM_CONF")}
        cls.environment["GLOO_SOCKET_IFNAME"] = "lo"
        cls.environment = {name: value for name, value in cls.environment.items() if not re.match("SLURM_(?!CONF)|SBATCH_|SALLOC_", name)}
        cls.program = workplace.program("rank", RANK)

    def folder(self, name):
        folder = self.workplace.folder / name
        folder.mkdir()
        return folder

    def ran(self, *command):
        return self.slurm.run(*command, timeout=TIMEOUT_S, env=self.environment)

    def batch(self, folder, script, *options):
        """Submits `script` and returns the number of its job."""
        path = folder / "script.sh"
        path.write_text("#!/bin/bash\n" + script)
        submitted = self.ran("sbatch", "--parsable", "--open-mode=append", "-o", folder / "output", *options, path)
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        return submitted.stdout.strip()

    def await_end(self, job, folder):
        await_condition(lambda: self.slurm.state_of(job) not in ("PENDING", "RUNNING", "COMPLETING"), f"job {job} ends", TIMEOUT_S)
        output = (folder / "output").read_text()
        self.assertEqual(self.slurm.state_of(job), "COMPLETED", output)
        return output

    def verdict_in(self, folder, name="verdict.json"):
        return json.loads((folder / name).read_text())

    def ranks_of(self, verdict):
        return sorted(run["rank"] for run in verdict["runs"])

    def assert_reported_once(self, text, headline="ANOMALY"):
        self.assertEqual(len(re.findall(f"^{headline}", text, re.MULTILINE)), 1, text)
        self.assertEqual(text.count("nanwatch: watching"), 1, text)

    def test_srun_of_four_ranks_is_one_job_with_one_report(self):
        folder = self.folder("four")
        ran = self.ran("srun", "-n", 4, NANWATCH, "run", "--verdict", folder / "verdict.json", "--", *self.program, folder, "bad")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stdout.count("ended"), 4, ran.stdout)
        verdict = self.verdict_in(folder)
        self.assertEqual((verdict["verdict"], self.ranks_of(verdict)), ("anomaly", [0, 1, 2, 3]), verdict)
        self.assertEqual(len({run["job"] for run in verdict["runs"]}), 1)
        self.assertRegex(verdict["run"]["job"], r"^\d+\.0$")
        origin = verdict["incidents"][0]["origin"]
        self.assertEqual((origin["rank"], origin["op"], origin["step"]), (2, "aten::log", 3), origin)
        self.assertEqual({run["exit_code"] for run in verdict["runs"]}, {0})
        self.assert_reported_once(ran.stderr)

    def test_one_rank_that_fails_gives_srun_its_status(self):
        folder = self.folder("fails")
        ran = self.ran("srun", "-n", 2, NANWATCH, "run", "--verdict", folder / "verdict.json", "--", *self.program, folder, "fails")
        self.assertEqual(ran.returncode, 3, ran.stderr)
        verdict = self.verdict_in(folder)
        self.assertEqual({run["rank"]: run["exit_code"] for run in verdict["runs"]}, {0: 0, 1: 3})

    def test_the_document_on_stdout_is_written_once(self):
        folder = self.folder("stdout")
        ran = self.ran("srun", "-n", 2, NANWATCH, "run", "--verdict", "-", "--", *self.program, folder)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        document = json.loads("\n".join(line for line in ran.stdout.splitlines() if not line.startswith("rank ")))
        self.assertEqual((document["verdict"], self.ranks_of(document)), ("clean", [0, 1]))

    def test_two_steps_of_one_allocation_are_two_jobs(self):
        folder = self.folder("steps")
        step = f"srun -n 2 {NANWATCH} run --verdict {folder}/%s.json -- {self.program[0]} {self.program[1]} {folder} %s\n"
        job = self.batch(folder, step % ("first", "bad") + step % ("second", ""), "-n", 2)
        self.await_end(job, folder)
        first, second = self.verdict_in(folder, "first.json"), self.verdict_in(folder, "second.json")
        self.assertEqual((first["verdict"], second["verdict"]), ("anomaly", "clean"))
        self.assertEqual((self.ranks_of(first), self.ranks_of(second)), ([0, 1], [0, 1]))
        self.assertEqual((first["run"]["job"], second["run"]["job"]), (f"{job}.0", f"{job}.1"))

    def test_run_around_srun_is_one_job(self):
        folder = self.folder("around")
        ran = self.ran(NANWATCH, "run", "--verdict", folder / "verdict.json", "--", "srun", "-n", 4, *self.program, folder, "bad")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        verdict = self.verdict_in(folder)
        self.assertEqual((verdict["verdict"], self.ranks_of(verdict)), ("anomaly", [0, 1, 2, 3]), verdict)
        self.assertEqual(len({run["job"] for run in verdict["runs"]}), 1)
        self.assertEqual(verdict["incidents"][0]["origin"]["rank"], 2)
        self.assert_reported_once(ran.stderr)

    def test_a_batch_script_that_preloads_the_library_needs_no_launcher(self):
        folder = self.folder("preloaded")
        script = f"export LD_PRELOAD={PRELOAD}\nsrun -n 2 {self.program[0]} {self.program[1]} {folder} bad\n"
        job = self.batch(folder, script, "-n", 2)
        self.await_end(job, folder)
        # There is no launcher to start a daemon: the next command that reads finds the segments.
        verdict = json.loads(self.workplace.tool("report", f"{job}.0", "--json"))
        self.assertEqual((verdict["verdict"], self.ranks_of(verdict)), ("anomaly", [0, 1]), verdict)
        self.assertEqual({run["job"] for run in verdict["runs"]}, {f"{job}.0"})
        self.assertEqual((verdict["incidents"][0]["origin"]["op"], verdict["incidents"][0]["origin"]["rank"]), ("aten::log", 0))

    def test_a_requeued_job_is_the_same_job_in_its_next_attempt(self):
        folder = self.folder("requeued")
        script = f"srun -n 2 {NANWATCH} run --verdict {folder}/verdict.json -- {self.program[0]} {self.program[1]} {folder} hangs\n"
        job = self.batch(folder, script, "-n", 2, "--requeue")
        await_condition(lambda: all((folder / f"trained.{rank}").exists() for rank in range(2)), "the first attempt trains", TIMEOUT_S)
        self.assertEqual(self.ran("scontrol", "requeue", job).returncode, 0)
        await_condition(lambda: self.slurm.state_of(job) == "PENDING", "the job is queued again", TIMEOUT_S)
        # Slurm would wait for two minutes, until the first attempt's credentials have expired. The node refuses those of the second in which
        # it revoked the first: "already killed, do not launch batch job".
        self.assertEqual(self.ran("scontrol", "update", f"JobId={job}", "StartTime=now+2").returncode, 0)
        self.await_end(job, folder)
        verdict = self.verdict_in(folder)
        self.assertEqual({run["job"] for run in verdict["runs"]}, {f"{job}.0"})
        self.assertEqual(sorted((run["attempt"], run["rank"]) for run in verdict["runs"]), [(0, 0), (0, 1), (1, 0), (1, 1)])
        self.assertEqual({run["exit_code"] for run in verdict["runs"] if run["attempt"] == 1}, {0})
        self.assertEqual(verdict["verdict"], "clean", verdict)


if __name__ == "__main__":
    unittest.main(verbosity=2)
