# SPDX-License-Identifier: Apache-2.0
"""With --kernels the origin has the kernels that its op ran. Who else uses CUPTI is not disturbed, and where it is off nobody is."""
import os
import unittest

from gpu_job import GpuJobTest, LAGS, origins, told

CUPTI = os.environ["NANWATCH_FAKE_CUPTI_PATH"]

# Kernels are traced from some rounds after the first tensor on the GPU on: the fault waits for the call of CUPTI's that shows it.
TRAINS = """
import os, time, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def loss_of(fault):
    hidden = model[0](torch.ones(2, 4, device="cuda"))
    return model[1](hidden.sub(100).sqrt() if fault else hidden).sum()
def step(fault=False):
    optimizer.zero_grad()
    loss_of(fault).backward()
    optimizer.step()
def called(name):
    with open(os.environ["NANWATCH_FAKE_CUPTI_LOG"], "a+") as calls:
        calls.seek(0)
        return name in calls.read().split()
deadline = time.monotonic() + 100
while os.environ["AWAITED"] and not called(os.environ["AWAITED"]) and time.monotonic() < deadline: loss_of(False).item()
for i in range(8): step()
{fault}
torch.cuda.synchronize()
print("done")
"""
FAULT = """
step(fault=True)
for i in range(3): step()
"""
IN_BACKWARD = """
optimizer.zero_grad()
root = (model[0](torch.ones(2, 4, device="cuda")) * 0).sqrt()
model[1](root).sum().backward()
optimizer.step()
"""
IN_GRAPH = """
x = torch.ones(4, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): y = x.sqrt()
x.fill_(-1)
graph.replay()
model[1].bias.data.add_(y.sum())
"""
# The finding waits for kernels that CUPTI does not tell of: at the end our thread is in a flush, or about to be in one, and the driver
# goes on ending for some rounds of it.
WAITING = """
import ctypes
ctypes.CDLL(os.environ["NANWATCH_FAKE_CUPTI_LIBRARY"]).fake_cupti_set_late(1)
""" + FAULT + """
torch.cuda.synchronize()
while not called("cuptiActivityFlushAll") and time.monotonic() < deadline: time.sleep(0.01)
"""
# Kineto itself, over the fake.
PROFILED = """
activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
with torch.profiler.profile(activities=activities) as profiler: step()
assert any("addmm" in event.key for event in profiler.key_averages())
""" + FAULT
SQRT_KERNEL = {"name": "void at::native::sqrt_kernel<float>(float*)", "count": 1, "nanoseconds": 1000}


class Kernels(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        cls.shown = {lag: cls.job("shown" + lag, FAULT, NANWATCH_FAKE_LAG=lag) for lag in LAGS}
        cls.backward = cls.job("backward", IN_BACKWARD)
        cls.graph = cls.job("graph", IN_GRAPH)
        cls.ending = cls.job("ending", WAITING, NANWATCH_FAKE_CUPTI_FLUSH_MS="100", NANWATCH_FAKE_END_MS="300")
        cls.off = cls.job("off", FAULT, options=(), awaited="")
        cls.held = cls.job("held", FAULT, awaited="cuptiSubscribe", NANWATCH_FAKE_CUPTI="held")
        cls.old = cls.job("old", FAULT, awaited="cuptiGetVersion", NANWATCH_FAKE_CUPTI_VERSION="18")
        cls.profiled = cls.job("profiled", PROFILED)
        cls.on_demand = cls.job("on_demand", FAULT, awaited="", KINETO_USE_DAEMON="1")

    @classmethod
    def job(cls, name, fault, options=("--kernels",), awaited="cuptiActivityEnableDriverApi", **environment):
        log = cls.workplace.folder / f"{name}.calls"
        job = cls.workplace.run_watched(cls.program(name, TRAINS.format(fault=fault)), options=options, AWAITED=awaited,
                                        NANWATCH_FAKE_CUPTI_LIBRARY=CUPTI, NANWATCH_FAKE_CUPTI_LOG=str(log), **environment)
        job.calls = lambda: (job.status(), log.read_text().splitlines())[1]
        return job

    def origin(self, job, op="aten::sqrt"):
        self.assertEqual((job.status(), job.stdout()), (0, "done\n"), job.stderr())
        found = origins(job.verdict())
        self.assertEqual([origin["op"] for origin in found], [op])
        return found[0]

    def test_cupti_is_not_called_once_the_driver_has_ended(self):
        self.assertEqual(self.origin(self.ending)["kernels"], [])

    def test_the_report_says_why_there_are_no_kernels(self):
        origin = self.origin(self.ending)
        self.assertEqual(origin["kernels"], [])
        self.assertIn("\nkernels   none named: CUPTI ", self.ending.stderr())
        self.assertIn("kernel_records", origin)
        self.assertNotIn("kernels   ", self.off.stderr())

    def test_the_origin_has_its_kernels(self):
        for lag, job in self.shown.items():
            with self.subTest(lag=lag):
                self.assertEqual(self.origin(job)["kernels"], [SQRT_KERNEL])
                self.assertIn("\nkernels   at::native::sqrt_kernel, 1.0 us\n", job.stderr())

    def test_tail_has_them_below_the_finding_and_of_no_other(self):
        run = self.shown["50"].verdict()["run"]["id"]
        lines = self.workplace.tool("tail", run).splitlines()
        told_of = [line for line in lines if "  ran " in line]
        self.assertEqual(len(told_of), 1, lines)
        self.assertTrue(told_of[0].endswith("aten::sqrt  ran at::native::sqrt_kernel, 1.0 us"), told_of)

    def test_an_op_on_autograd_s_thread_has_its_own(self):
        kernels = self.origin(self.backward, "aten::div")["kernels"]
        self.assertEqual([kernel["name"] for kernel in kernels], ["void at::native::div_kernel<float>(float*)"])

    def test_what_an_op_pushes_it_pops(self):
        calls = self.shown["50"].calls()
        pushed = calls.count("cuptiActivityPushExternalCorrelationId")
        self.assertGreater(pushed, 50)
        self.assertEqual(calls.count("cuptiActivityPopExternalCorrelationId"), pushed)

    def test_ops_in_a_graph_have_none(self):
        self.assertEqual(self.origin(self.graph)["kernels"], [])

    def test_off_calls_nothing(self):
        self.assertEqual(self.off.calls(), [])
        self.assertEqual(self.origin(self.off)["kernels"], [])

    def test_another_subscriber_is_left_alone(self):
        self.assertEqual(self.held.stderr().count("names of kernels"), 1, self.held.stderr())
        self.assertIn("holds CUPTI", self.held.stderr())
        self.assertEqual(self.held.calls(), ["cuptiGetVersion", "cuptiSubscribe"])
        self.assertEqual(self.origin(self.held)["kernels"], [])
        self.assertEqual(told(self.held.verdict()), told(self.off.verdict()))

    def test_an_unknown_cupti_is_refused(self):
        self.assertIn("CUPTI reports version 18", self.old.stderr())
        self.assertEqual(self.old.calls(), ["cuptiGetVersion"])
        self.assertEqual(told(self.old.verdict()), told(self.off.verdict()))

    def test_a_profiler_gets_cupti_before_it_begins(self):
        self.assertEqual(self.profiled.stderr().count("a profiler starts"), 1, self.profiled.stderr())
        self.assertEqual(self.origin(self.profiled)["kernels"], [])
        calls = self.profiled.calls()
        theirs = len(calls) - calls[::-1].index("cuptiSubscribe") - 1
        ours, theirs = calls[:theirs], calls[theirs:]
        # All that was on is off, and what was recorded is back, before kineto's first call.
        self.assertEqual(ours.count("cuptiActivityEnable"), ours.count("cuptiActivityDisable"))
        self.assertEqual(ours.count("cuptiActivityEnableRuntimeApi"), 18)
        self.assertLess(max(i for i, call in enumerate(ours) if call == "cuptiActivityDisable"),
                        max(i for i, call in enumerate(ours) if call == "cuptiActivityFlushAll"))
        # From then on it has CUPTI alone, and gets records.
        self.assertIn("cuptiActivityRegisterCallbacks", theirs)
        self.assertIn("cuptiActivityGetNextRecord", theirs)
        self.assertNotIn("(a buffer went astray)", calls)
        self.assertNotIn("cuptiFinalize", calls)
        self.assertEqual(theirs.count("cuptiActivityFlushAll"), 1)

    def test_a_profiler_on_demand_may_come_at_any_time(self):
        self.assertIn("KINETO_USE_DAEMON", self.on_demand.stderr())
        self.assertEqual(self.on_demand.calls(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
