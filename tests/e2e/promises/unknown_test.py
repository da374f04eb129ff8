# SPDX-License-Identifier: Apache-2.0
"""A job of which nothing was seen: the verdict is unknown, and it says which of the ways it went."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from watched_job import BUILD, NANWATCH, PRELOAD, PromiseTest

# Ends once the observer has taken its place in Python, without a single op.
IDLE = """
import time, torch
while type(torch.nn.Module.__call__).__name__ == "function":
    time.sleep(0.01)
"""
BAD = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    torch.log(model(torch.ones(1, 2)) * 0 + 1 - 2 * float(step == 2)).sum().backward()
    optimizer.step()
"""
TRANSFORMS = """
import torch
torch.manual_seed(0)
weights = torch.randn(6, 2)
def loss_of(w, x): return ((x @ w) / (x @ w).norm(dim=1, keepdim=True) - 1).pow(2).mean()
for step in range(4):
    gradients, loss = torch.func.grad_and_value(loss_of)(weights, torch.randn(3, 6) * float(step != BAD))
    weights = weights - 0.1 * gradients
    print(loss.item())
"""
OP = "import torch\nprint(torch.ones(2).sum().item())\n"


class Unknown(PromiseTest):
    def prefix(self, name, observer=None):
        """An installation of its own, whose observer is this text; None: it has none."""
        prefix = self.workplace.folder / name
        (prefix / "bin").mkdir(parents=True)
        (prefix / "lib/nanwatch").mkdir(parents=True)
        for tool in ("nanwatch", "nanwatchd"):
            shutil.copy2(BUILD / "bin" / tool, prefix / "bin" / tool)
        shutil.copy2(PRELOAD, prefix / "lib")
        for built in (BUILD / "lib/nanwatch").glob("*.so"):
            if observer is not None:
                (prefix / "lib/nanwatch" / built.name).write_text(observer)
        return prefix

    def run_from(self, prefix, program):
        verdict = self.workplace.folder / f"verdict-{prefix.name}.json"
        return self.workplace._start([prefix / "bin/nanwatch", "run", "--verdict", verdict, "--", *program], self.workplace.watched, verdict)

    def python_of_torch(self):
        """The interpreter of the environment in which torch is installed, which need not be that of /proc/self/exe."""
        import importlib.util
        place = pathlib.Path(importlib.util.find_spec("torch").origin)
        library = next((parent for parent in place.parents if parent.name.startswith("python3")), None)
        python = library and library.parent.parent / "bin" / library.name
        return python if python and os.access(python, os.X_OK) else "PY"

    def expect(self, job, reason, *said):
        verdict = job.verdict()
        self.assertEqual((verdict["verdict"], verdict["unknown_because"]), ("unknown", reason), job.stderr())
        words = " ".join(job.stderr().split())
        for part in said:
            self.assertIn(part, words)
        return words

    def test_a_command_without_torch(self):
        job = self.workplace.run_watched(["/bin/false"])
        self.assertEqual(job.status(), 1)
        self.expect(job, "no_run", "no process of this job loaded torch")

    def test_a_torch_without_an_observer_and_the_command_that_builds_one(self):
        prefix = self.prefix("no-observer")
        words = self.expect(self.run_from(prefix, self.workplace.program("op", OP)), "no_observer", "no observer",
                            f"{prefix}/bin/nanwatch build-observer --python {self.python_of_torch()}")
        self.assertNotIn("loaded torch, as far", words)

    def test_the_named_command_lies_in_the_build_tree_and_in_a_prefix(self):
        self.assertTrue(os.access(BUILD / "share/nanwatch/scripts/build-observer.sh", os.X_OK))
        prefix = self.workplace.folder / "installed"
        if not shutil.which("cmake"):
            self.skipTest("no cmake")
        ran = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        helped = subprocess.run([prefix / "share/nanwatch/scripts/build-observer.sh", "--help"], capture_output=True, text=True)
        self.assertEqual(helped.returncode, 0, helped.stderr)
        self.assertIn("--prefix DIR", helped.stdout)
        relative = subprocess.run([prefix / "share/nanwatch/scripts/build-observer.sh", "--python", "venv/python"], cwd=self.workplace.folder,
                                  capture_output=True, text=True)
        self.assertIn(f"there is no program '{self.workplace.folder}/venv/python'", relative.stderr, "meant from where it is called")
        for part in ("CMakeLists.txt", "shim/observe/start.cc", "proto/wire/segment.h", "scripts/cmake/torch_probe.py"):
            self.assertTrue((prefix / "share/nanwatch" / part).exists(), part)

    def test_an_observer_that_cannot_be_loaded(self):
        job = self.run_from(self.prefix("broken", "no library"), self.workplace.program("op", OP))
        self.expect(job, "not_started", "could not start")
        self.assertEqual(job.status(), 0)

    def test_an_import_that_fails(self):
        program = "import ctypes\ntry:\n    ctypes.CDLL('/nonexistent/torch/lib/libtorch_cpu.so')\nexcept OSError:\n    raise SystemExit(1)\n"
        job = self.workplace.run_watched(self.workplace.program("import", program))
        self.assertEqual(job.status(), 1)
        self.expect(job, "import_failed", "import")

    def test_a_training_by_torch_func_that_went_bad(self):
        # What it reads is its result; where nobody reads it, nothing shows what came of it.
        for bad, read, verdict, because in ((2, "loss.item()", "anomaly", ""), (2, "loss.shape", "unknown", "not_followed"),
                                            (-1, "loss.item()", "clean", "")):
            with self.subTest(bad=bad, read=read):
                text = TRANSFORMS.replace("BAD", str(bad)).replace("loss.item()", read)
                program = self.workplace.program(f"transforms_{bad}_{len(read)}", text)
                told = self.workplace.run_watched(program, ("--level", "full")).verdict()
                self.assertEqual((verdict, because), (told["verdict"], told["unknown_because"]))

    def test_a_torch_that_nobody_used(self):
        self.expect(self.workplace.run_watched(self.workplace.program("idle", IDLE)), "no_ops", "no op ran")

    def test_a_job_with_one_process_that_was_not_watched_stays_unknown_for_whoever_asks_later(self):
        broken = self.prefix("half", "no library")
        watched = [NANWATCH, "run", "--", *self.workplace.program("op", OP)]
        unwatched = [broken / "bin/nanwatch", "run", "--", *self.workplace.program("op2", OP)]
        for command in (watched, unwatched):
            ran = subprocess.run([str(part) for part in command], env=self.workplace.watched | {"NANWATCH_JOB": "half"}, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)
        report = subprocess.run([NANWATCH, "report", "half", "--check"], env=self.workplace.watched, capture_output=True, text=True)
        self.assertEqual(report.returncode, 3, report.stdout + report.stderr)
        self.assertIn("could not start", " ".join(report.stdout.split()))

    def report(self, *arguments):
        ran = subprocess.run([NANWATCH, "report", *arguments], env=self.workplace.watched, capture_output=True, text=True)
        return ran.returncode, " ".join((ran.stdout + ran.stderr).split())

    def watch_one_that_goes_bad(self):
        """An older job, for which a report must not answer; its id."""
        job = self.workplace.run_watched(self.workplace.program("bad", BAD))
        self.assertEqual((job.status(), job.verdict()["verdict"]), (0, "anomaly"), job.stderr())
        return job.verdict()["run"]["job"]

    def expect_report_of(self, job, reason, sentence):
        """Right after it, `report` answers for this job; asked for by name as well."""
        verdict = job.verdict()
        self.assertEqual((verdict["verdict"], verdict["unknown_because"]), ("unknown", reason), job.stderr())
        self.assertIn("unknown: ", job.stderr())
        self.assertIn(sentence, " ".join(job.stderr().split()))
        for asked in ((), (verdict["run"]["job"],), (verdict["run"]["job"][:8],), (str(verdict["run"]["pid"]),)):
            with self.subTest(asked=asked):
                status, words = self.report("--check", *asked)
                self.assertEqual(status, 3, words)
                self.assertIn(sentence, words)
                self.assertEqual(self.report(*asked)[0], 0)
        document = json.loads(self.workplace.tool("report", "--json"))
        self.assertEqual((document["unknown_because"], document["run"]["job"]), (reason, verdict["run"]["job"]))

    def test_a_report_answers_for_the_job_that_was_switched_off(self):
        older = self.watch_one_that_goes_bad()
        job = self.workplace.run_watched(self.workplace.program("off", OP), NANWATCH="0")
        self.assertEqual((job.status(), job.stdout()), (0, "2.0\n"))
        self.expect_report_of(job, "switched_off", "ran with NANWATCH=0, which switches nanwatch off")
        self.assertIn(f"'nanwatch report {older}' shows it", self.report()[1])
        status, words = self.report("--check", older)
        self.assertEqual(status, 2, words)
        # A job that is watched is the newest again.
        newest = self.watch_one_that_goes_bad()
        self.assertEqual(json.loads(self.workplace.tool("report", "--json"))["run"]["job"], newest)

    def test_a_report_answers_for_the_job_without_torch(self):
        self.watch_one_that_goes_bad()
        job = self.workplace.run_watched(self.workplace.program("plain", "raise SystemExit(5)"))
        self.assertEqual(job.status(), 5)
        self.expect_report_of(job, "no_run", "no process of this job loaded torch")

    def test_a_report_answers_for_the_job_in_which_no_op_ran(self):
        self.watch_one_that_goes_bad()
        self.expect_report_of(self.workplace.run_watched(self.workplace.program("no_op", IDLE)), "no_ops", "no op ran")

    def test_a_report_answers_for_the_job_that_could_not_be_preloaded(self):
        self.watch_one_that_goes_bad()
        prefix = self.prefix("no library")
        (prefix / "lib/libnanwatch.so").unlink()
        self.expect_report_of(self.run_from(prefix, self.workplace.program("op", OP)), "not_preloaded", f"there is no {prefix}/lib/libnanwatch.so")

    def test_a_process_that_was_switched_off_is_one_of_its_job(self):
        for switch in ({}, {"NANWATCH": "0"}):
            ran = subprocess.run([NANWATCH, "run", "--", *map(str, self.workplace.program("op", OP))],
                                 env=self.workplace.watched | {"NANWATCH_JOB": "switched"} | switch, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)
        status, words = self.report("switched", "--check")
        self.assertEqual(status, 3, words)
        self.assertIn("1 process of the command ran with NANWATCH=0", words)


if __name__ == "__main__":
    unittest.main()
