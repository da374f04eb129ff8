# SPDX-License-Identifier: Apache-2.0
"""Promise: with --capsule op the op that made the first bad value can be run again, and the job is what it is without us."""
import json
import pathlib
import stat
import subprocess
import unittest

from watched_job import NANWATCH, TIMEOUT_S, PromiseTest

TRAINING = """
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
dropout = torch.nn.Dropout(0.3)
optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(3, 4)
    bad = step == {bad_step}
    optimizer.zero_grad()
    y = dropout(layer(x))
    {op}
    y.float().abs().mean().backward()
    optimizer.step()
print(torch.cat([p.detach().reshape(-1) for p in layer.parameters()]).view(torch.int32).tolist())
"""
# What spoils the fourth step, and what its replay is to say.
OPS = {
    "plain": ("y = torch.log(1 + y.abs() - (bad + y.abs() * bad))", "aten::log", "mathematics"),
    "in_place": ("y = y * 1; y.div_(y.detach() * 0 if bad else 1)", "aten::div_", "mathematics"),
    "half": ("y = (y * 0 + (60000 if bad else 1)).half() * 2", "aten::mul", "range"),
    "bfloat16": ("y = torch.exp(y.bfloat16() * 0 + (100 if bad else 1))", "aten::exp", "range"),
    "complex": ("y = torch.complex(y, y * 0) / (0 if bad else 1); y = torch.view_as_real(y)", "aten::div", "mathematics"),
    "view": ("y = torch.sqrt(y.t()[1:, :2].abs() + (-9 if bad else 1))", "aten::sqrt", "mathematics"),
}
# Its inputs cannot be kept.
SPARSE = "y = torch.sparse.mm(torch.eye(3).to_sparse() * 3e38, y * (9 if bad else 1)) if bad else y"


class Capsules(PromiseTest):
    @classmethod
    def start(cls, workplace):
        def job(name, op, *options, bad_step=3, **environment):
            return workplace.run_watched(workplace.program(name, TRAINING.format(op=op, bad_step=bad_step)),
                                         ("--capsule", "op", "--level", "full", *options), **environment)
        cls.bare = workplace.run_bare_twins(
            {name: workplace.program(f"bare_{name}", TRAINING.format(op=op, bad_step=3)) for name, (op, _, _) in OPS.items()})
        cls.jobs = {name: job(name, op) for name, (op, _, _) in OPS.items()}
        cls.sparse = job("sparse", SPARSE)
        cls.small = job("small", OPS["plain"][0], "--capsule-limit", "1")
        cls.healthy = job("healthy", OPS["plain"][0], bad_step=-1)
        cls.off = workplace.run_watched(workplace.program("off", TRAINING.format(op=OPS["plain"][0], bad_step=3)))

    def capsule(self, job):
        self.assertEqual(job.status(), 0, job.stderr())
        return pathlib.Path(job.verdict()["incidents"][0]["capsule"])

    def replay(self, capsule):
        ran = subprocess.run([NANWATCH, "replay", capsule, "--json"], env=self.workplace.watched, capture_output=True, text=True,
                             timeout=TIMEOUT_S)
        return ran.returncode, json.loads(ran.stdout)

    def test_each_origin_comes_out_as_it_was(self):
        for name, (_, op, word) in OPS.items():
            with self.subTest(name):
                status, result = self.replay(self.capsule(self.jobs[name]))
                seen = result.get("as_it_was", {})
                self.assertEqual((result["op"], result["word"], status), (op, word, 0), result)
                self.assertEqual((seen["same_places"], seen["same_bits"]), (seen["times"], seen["times"]))
                self.assertEqual(result["inputs"], "as they were")

    def test_the_job_is_what_it_is_without_us(self):
        for name, job in self.jobs.items():
            with self.subTest(name):
                self.assert_same(self.bare[name], job)

    def test_the_report_says_how_to_run_it_again_and_then_what_that_has_shown(self):
        job = self.jobs["plain"]
        name = self.capsule(job).name
        self.assertIn(f"nanwatch replay {name}", job.stderr())
        self.replay(self.capsule(job))
        report = json.loads(self.workplace.tool("report", job.verdict()["run"]["id"], "--json"))
        self.assertEqual(report["incidents"][0]["replay"], "mathematics")

    def test_nobody_else_can_read_it(self):
        capsule = self.capsule(self.jobs["plain"])
        self.assertEqual(stat.S_IMODE(capsule.stat().st_mode), 0o700)
        for file in capsule.iterdir():
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600, file)

    def test_it_runs_without_nanwatch(self):
        capsule = self.capsule(self.jobs["plain"])
        command = self.workplace.program("unused", "")[0]
        ran = subprocess.run([command, "-I", capsule / "repro_op.py"], env=self.workplace.bare, capture_output=True, text=True,
                             timeout=TIMEOUT_S)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("aten::log: mathematics", ran.stdout)

    def test_what_cannot_be_kept_says_why(self):
        for job, why in ((self.sparse, "no ordinary dense tensor"), (self.small, "--capsule-limit")):
            status, result = self.replay(self.capsule(job))
            self.assertEqual((status, result["word"]), (3, "cannot_run"))
            self.assertIn(why, result["sentence"])

    def test_a_file_that_was_changed_is_not_believed(self):
        capsule = self.capsule(self.jobs["view"])
        tensors = capsule / "tensors.safetensors"
        content = tensors.read_bytes()
        try:
            tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            self.assertEqual(self.replay(capsule)[0], 3)
            verified = subprocess.run([NANWATCH, "capsule", "verify", capsule], env=self.workplace.watched, capture_output=True, text=True)
            self.assertEqual(verified.returncode, 1, verified.stdout)
        finally:
            tensors.write_bytes(content)

    def test_none_is_left_where_nothing_went_wrong_or_nobody_asked(self):
        for job in (self.healthy, self.off):
            self.assertEqual(job.status(), 0, job.stderr())
            run = job.verdict()["runs"][0]["id"]
            self.assertEqual(list((self.workplace.state / "capsules").glob(f"{run}-*")), [])
        self.assertEqual(self.off.verdict()["incidents"][0]["capsule"], "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
