# SPDX-License-Identifier: Apache-2.0
"""What `nanwatch report --stats` says of a GPU's parameters is what torch says there itself, however late the GPU answers; and what is
warned of from it on a CPU is warned of on a GPU."""
import json
import pathlib
import sys
import unittest

STATS = pathlib.Path(__file__).resolve().parents[1] / "stats"
sys.path.insert(0, str(STATS))

import layers_test  # noqa: E402
from gpu_job import FAKE_GPU, LAGS, GpuJobTest  # noqa: E402
from parameter_warnings_test import Warned  # noqa: E402
from told_values_test import compare_gradient, compare_update, stats  # noqa: E402

TOLD = [sys.executable, FAKE_GPU, STATS / "programs/told_by_torch.py"]
STEPS, EVERY = 21, 5
# The driver of its GPU loses the context, of which the job learns nothing here.
LOST = """
import ctypes
import torch
model = torch.nn.Linear(8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    if step == 14:
        ctypes.CDLL("libcuda.so.1").fake_cuda_lose_context(0, 700)
    optimizer.zero_grad()
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
print("done")
"""
ON_CPU = ("rows", "head")
SAMPLED_MAX = 4096  # of each parameter, as on the CPU where there are no more than 32


class Figures(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        def job(*arguments, level="full", lag="50", every=EVERY):
            return workplace.run_watched([*TOLD, str(STEPS), "cuda", *arguments], ["--level", level, "--stats", str(every)],
                                         NANWATCH_FAKE_LAG=lag)
        cls.jobs = {lag: job(lag=lag) for lag in LAGS} | {level: job(level=level) for level in ("sampled", "canary")} | {"half": job("half")}

    def test_every_gradient_is_told_as_torch_has_it(self):
        for way, job in self.jobs.items():
            self.assertEqual(job.status(), 0, job.stderr())
            report = stats(self.workplace, job)
            by_torch = {entry["step"]: entry["parameters"] for entry in json.loads(job.file("figures.json"))}
            self.assertGreaterEqual(len(report["snapshots"]), 2 * STEPS // EVERY, way)
            self.assertEqual((report["lost"], report["snapshots"][0]["on_gpu"]), (0, 0))
            for snapshot in report["snapshots"]:
                self.assertEqual((snapshot["on_gpu"], snapshot["unreadable"], snapshot["left_out"]), (0, 0, 0))
                expected = by_torch[snapshot["step"]]
                names = {name for name in expected if (name == "rows.weight") == (snapshot["optimizer"] == "SGD")}
                self.assertEqual({parameter["name"] for parameter in snapshot["parameters"]}, names)
                for parameter in snapshot["parameters"]:
                    with self.subTest(way=way, step=snapshot["step"], name=parameter["name"]):
                        name = parameter["name"]
                        compare_gradient(self, parameter, expected[name], name)
                        on_cpu = name.split(".")[0] in ON_CPU
                        compare_update(self, parameter, expected[name], name, **({} if on_cpu else {"sampled_max": SAMPLED_MAX}))


class Layers(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        command = [*cls.program("layers", layers_test.PROGRAM), "cuda"]
        cls.jobs = {level: workplace.run_watched(command, ("--level", level, "--stats", "4")) for level in ("full", "sampled", "canary")}

    def test_the_largest_result_of_a_snapshot_s_step_is_told(self):
        for level in ("full", "sampled"):
            job = self.jobs[level]
            self.assertEqual(job.status(), 0, job.stderr())
            made = json.loads(job.stdout())
            snapshots = stats(self.workplace, job)["snapshots"]
            self.assertEqual([snapshot["step"] for snapshot in snapshots], [0, 4, 8])
            for snapshot in snapshots[1:]:
                told = {layer["layer"]: layer for layer in snapshot["layers"]}
                for name, dtype in (("narrow", "float16"), ("single", "float32")):
                    with self.subTest(level=level, step=snapshot["step"], layer=name):
                        self.assertEqual((told[name]["dtype"], told[name]["at_least"]), (dtype, False))
                        self.assertAlmostEqual(told[name]["largest"] / made[snapshot["step"]][name], 1, 5)
                self.assertEqual(told["silent"]["largest"], 0)

    def test_where_no_layer_was_watched_none_is_told(self):
        for snapshot in stats(self.workplace, self.jobs["canary"])["snapshots"]:
            self.assertEqual(snapshot["layers"], [])


class Warnings(Warned, GpuJobTest):
    PYTHON, LEVELS = [sys.executable, FAKE_GPU, "--default-device"], ("canary",)


class Unanswered(GpuJobTest):
    """Jobs that are told nothing of their GPU: it is not looked at, or it breaks down."""

    @classmethod
    def start(cls, workplace):
        cls.unwatched = workplace.run_watched([*TOLD, "6", "cuda"], ["--level", "full", "--stats", "5"], NANWATCH_GPU="0")
        cls.lost = workplace.run_watched(cls.program("lost", LOST), ["--level", "full", "--stats", "5"])

    def test_what_is_on_a_gpu_that_is_not_checked_is_counted_and_said(self):
        self.assertEqual(self.unwatched.status(), 0, self.unwatched.stderr())
        snapshots = stats(self.workplace, self.unwatched)["snapshots"]
        self.assertEqual([(s["step"], s["optimizer"], s["on_gpu"], len(s["parameters"])) for s in snapshots],
                         [(0, "AdamW", 7, 2), (0, "SGD", 0, 1), (5, "AdamW", 7, 2), (5, "SGD", 0, 1)])
        table = self.workplace.tool("report", self.unwatched.verdict()["run"]["id"], "--stats")
        self.assertIn("2 parameters, 7 left out (7 on a GPU)", table)

    def test_where_no_answer_came_the_gradients_are_told_as_unread(self):
        self.assertEqual(self.lost.stdout(), "done\n", self.lost.stderr())
        told = {s["step"]: [(p["name"], p["gradient"], p["gradient_norm"]) for p in s["parameters"]]
                for s in stats(self.workplace, self.lost)["snapshots"]}
        self.assertEqual(sorted(told), [0, 5, 10, 15])
        self.assertEqual([(name, gradient) for name, gradient, _ in told[5]], [("weight", "read"), ("bias", "read")])
        self.assertEqual(told[15], [("weight", "unread", None), ("bias", "unread", None)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
