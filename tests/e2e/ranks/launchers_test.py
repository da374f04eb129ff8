# SPDX-License-Identifier: Apache-2.0
"""Launchers that start one `nanwatch run` for each rank: what is one job, and what is not.

A launcher is a process that starts its ranks with the variables that it gives to them, as srun and torchrun do.
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))
from watched_job import NANWATCH, PRELOAD, TIMEOUT_S, PromiseTest

# Every rank takes a step, waits until all have, and the last one makes a NaN.
RANK = """
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
rank, count = int(sys.argv[2]), int(sys.argv[3])
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    x = torch.ones(4, 2)
    if step == 1 and rank == count - 1 and len(sys.argv) > 4:
        x = torch.log(x - 2)
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    (here / f"{rank}.begun").touch()
    while not all((here / f"{other}.begun").exists() for other in range(count)): time.sleep(0.01)
while os.environ.get("WAITING_RANK") == str(rank) and not (here / "others.ended").exists():
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
print("rank", rank, "ended")
"""

# srun RANKS JOB STEP VERDICT COMMAND...: each rank under a `nanwatch run` of its own. `{rank}` in the command is its number.
LAUNCHER = """
import os, subprocess, sys
nanwatch, kind, ranks, job, step, verdict, *command = sys.argv[1:]
def variables(rank):
    if kind == "srun":
        return {"SLURM_JOB_ID": job, "SLURM_STEP_ID": step, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": ranks}
    return {"TORCHELASTIC_RUN_ID": job, "TORCHELASTIC_RESTART_COUNT": "0", "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": ranks}
started = [subprocess.Popen([nanwatch, "run", "--verdict", verdict, "--", *(part.replace("{rank}", str(rank)) for part in command)],
                            env=os.environ | variables(rank), stderr=open(verdict + f".{rank}.stderr", "wb")) for rank in range(int(ranks))]
waiting = os.environ.get("WAITING_RANK")
statuses = [process.wait() for rank, process in enumerate(started) if str(rank) != waiting]
open(os.path.join(os.path.dirname(verdict), "others.ended"), "w").close()
sys.exit(max(statuses + [process.wait() for process in started]))
"""


class Launchers(PromiseTest):
    def launch(self, kind, job, step, name, ranks=4, goes_bad=False, waits=""):
        """Returns the verdict, and what each rank's launcher said. The rank that `waits` goes on until the others' launchers have ended."""
        workplace = self.workplace
        folder = workplace.folder / name
        folder.mkdir()
        program = workplace.program("rank", RANK)
        launcher = workplace.program("launcher", LAUNCHER)
        verdict = folder / "verdict.json"
        command = [*launcher, NANWATCH, kind, ranks, job, step, verdict, *program, folder, "{rank}", ranks, *(["bad"] if goes_bad else [])]
        environment = workplace.watched | {"WAITING_RANK": waits}
        ran = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        said = [(folder / f"verdict.json.{rank}.stderr").read_text() for rank in range(ranks)]
        self.assertEqual(ran.returncode, 0, ran.stderr + "".join(said))
        return json.loads(verdict.read_text()), said

    def ranks_of(self, verdict):
        return sorted(run["rank"] for run in verdict["runs"])

    def test_ranks_of_one_step_are_one_job_with_one_verdict(self):
        verdict, said = self.launch("srun", "4711", "0", "step", goes_bad=True)
        self.assertEqual(verdict["verdict"], "anomaly", verdict)
        self.assertEqual(self.ranks_of(verdict), [0, 1, 2, 3])
        self.assertEqual({run["job"] for run in verdict["runs"]}, {"4711.0"})
        self.assertEqual(verdict["run"]["rank"], 3)
        self.assertEqual({run["exit_code"] for run in verdict["runs"]}, {0})
        self.assertIn("job 4711.0", said[0])
        everything = "".join(said)
        self.assertEqual((everything.count("nanwatch: watching"), everything.count("ANOMALY ")), (1, 1), everything)

    def test_a_rank_that_ends_while_others_go_on_says_where_the_report_is(self):
        verdict, said = self.launch("srun", "4714", "0", "early", ranks=2, goes_bad=True, waits="0")
        self.assertEqual(verdict["verdict"], "anomaly")
        self.assertIn("an anomaly was found, and 1 process of job 4714.0 still runs: 'nanwatch report 4714.0' shows it now", said[1])
        self.assertNotIn("ANOMALY ", said[1])
        self.assertIn("ANOMALY ", said[0])

    def test_two_steps_of_an_allocation_are_two_jobs(self):
        bad, _ = self.launch("srun", "4712", "0", "first", ranks=2, goes_bad=True)
        good, _ = self.launch("srun", "4712", "1", "second", ranks=2)
        self.assertEqual((bad["verdict"], good["verdict"]), ("anomaly", "clean"))
        self.assertEqual({run["job"] for run in good["runs"]}, {"4712.1"})
        self.assertEqual(self.ranks_of(good), [0, 1])

    def test_a_script_that_runs_twice_in_one_task_has_two_jobs(self):
        bad, _ = self.launch("srun", "4713", "0", "once", ranks=2, goes_bad=True)
        good, _ = self.launch("srun", "4713", "0", "again", ranks=2)
        self.assertEqual((bad["verdict"], good["verdict"]), ("anomaly", "clean"))
        self.assertEqual({run["job"] for run in good["runs"]}, {"4713.0-2"})
        self.assertEqual(self.ranks_of(good), [0, 1])

    def test_an_id_that_a_person_types_again_does_not_join_two_launches(self):
        bad, _ = self.launch("torchrun", "100", "", "january", ranks=2, goes_bad=True)
        good, _ = self.launch("torchrun", "100", "", "march", ranks=2)
        self.assertEqual((bad["verdict"], good["verdict"]), ("anomaly", "clean"))
        self.assertEqual((self.ranks_of(bad), self.ranks_of(good)), ([0, 1], [0, 1]))
        first, second = ({run["job"] for run in verdict["runs"]} for verdict in (bad, good))
        self.assertEqual((len(first), len(second)), (1, 1))
        self.assertNotEqual(first, second)

    def test_preloaded_ranks_of_a_launcher_are_one_job(self):
        folder = self.workplace.folder / "preloaded"
        folder.mkdir()
        program = self.workplace.program("rank", RANK)
        launcher = "import os, subprocess, sys\n" \
            "ranks = [subprocess.Popen([*sys.argv[1:], str(rank), '2', 'bad'], env=os.environ | {'TORCHELASTIC_RUN_ID': 'none', 'RANK': str(rank),\n" \
            "         'WORLD_SIZE': '2'}) for rank in range(2)]\n" \
            "sys.exit(max(rank.wait() for rank in ranks))\n"
        ended = self.workplace.run_preloaded([*self.workplace.program("agent", launcher), *program, folder])
        self.assertEqual(ended.status(), 0, ended.stderr())
        jobs = {run["job"] for run in json.loads(self.workplace.tool("ps", "--all", "--json"))["runs"] if run["job"].startswith("torchrun-")}
        self.assertEqual(len(jobs), 1, jobs)
        verdict = json.loads(self.workplace.tool("report", jobs.pop(), "--json"))
        self.assertIn(1, self.ranks_of(verdict))


if __name__ == "__main__":
    unittest.main()
