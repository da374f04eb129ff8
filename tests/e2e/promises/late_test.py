# SPDX-License-Identifier: Apache-2.0
"""Promise: a process that was started without nanwatch can be attached to, and nothing else of it changes.

The library is brought by the way that the Python which runs this has: sys.remote_exec from 3.14 on, a hook below. scripts/python314.sh
runs it with the former.
"""
import ctypes
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from watched_job import BUILD, NANWATCH, TIMEOUT_S, PromiseTest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
ATTENDED = [sys.executable, PROGRAMS / "attended.py"]
BAD = 3
MARGIN_S = "120"  # for what takes a fraction of a second
HAS_REMOTE_EXEC = hasattr(sys, "remote_exec")
WAY, WAYS_OPTION = ("remote_exec", ()) if HAS_REMOTE_EXEC else ("inject", ("--inject",))


def may_trace_others():
    """Yama lets nobody but root attach to a process that is not his child."""
    scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"

# Waits in the kernel, with no thread that runs Python, until somebody opens `go` for writing.
BLOCKED = """
import os, pathlib, torch
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    loss = layer(torch.ones(1, 2)).square().sum()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
torch.manual_seed(1)
step()
os.mkfifo("go")
pathlib.Path("ready").touch()
open("go").read()
for _ in range(50):
    step()
"""

# The training runs in a thread of its own and the main thread waits for it.
THREADED = """
import os, pathlib, threading, time, torch
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def step(scale):
    optimizer.zero_grad()
    loss = (layer(torch.ones(1, 2)).square().sum() * scale).log()
    loss.backward()
    optimizer.step()
def train():
    step(1.0)
    pathlib.Path("ready").touch()
    while not os.path.exists("go"):
        step(1.0)
        time.sleep(0.002)
    step(-1.0)
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""

# A model whose every forward is long and whose pieces are made before; then workers of a loader are forked.
FORKING = """
import os, pathlib, time, torch
from torch import nn
class Slow(nn.Module):
    def forward(self, x):
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        return x
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.slow, self.b = nn.Linear(4, 4), Slow(), nn.Linear(4, 4)
    def forward(self, x):
        return self.b(self.slow(self.a(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 1)
    def forward(self, x, bad=False):
        for block in self.blocks:
            x = block(x)
        return self.head(x if not bad else torch.sqrt(x - 1e6))
torch.manual_seed(3)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(8, 4))
def step(x, bad=False):
    optimizer.zero_grad()
    loss = model(x, bad).square().mean()
    loss.backward()
    optimizer.step()
    return loss
x = torch.randn(2, 4)
step(x)
pathlib.Path("ready").touch()
while not os.path.exists("go"):
    step(x)
torch.manual_seed(4)
first = model, optimizer  # or the second may be made where the first was, and count its steps on
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for number, (batch,) in enumerate(torch.utils.data.DataLoader(data, batch_size=2, num_workers=2,
                                                               multiprocessing_context="fork")):
    print(step(batch, bad=number == 2).item().hex())
"""


class Stranger:
    """A program that was started without nanwatch, and what a user does to it."""

    def __init__(self, test, command, **environment):
        self._test, self._workplace = test, test.workplace
        self.job = self._workplace.run_bare(command, **environment)
        self.folder, self.pid = self.job._folder, self.job._process.pid
        self.go_file = self.folder / "go"

    def await_ready(self):
        self.await_(lambda: (self.folder / "ready").exists(), "the program is ready")
        return self

    def await_(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            self._test.assertLess(time.monotonic(), deadline, f"never so: {what}")
            self._test.assertIsNone(self.job._process.poll(), self.job._err.read_text())
            time.sleep(0.005)

    def attach(self, *options, **environment):
        """The exit status, the document and what was said. No program is on PATH: none is needed."""
        environment = {"PATH": str(self.folder / "no-programs")} | environment
        ran = subprocess.run([NANWATCH, "attach", str(self.pid), "--json", *options],
                             env=self._workplace.watched | environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        return ran.returncode, json.loads(ran.stdout), ran.stderr

    def load(self, *options, by=WAY):
        status, document, said = self.attach("--wait", MARGIN_S, *(WAYS_OPTION if by == WAY else ("--inject",)), *options)
        self._test.assertEqual((status, document["loaded"]), (0, by), said)
        return document["targets"][0]

    def maps(self, name):
        lines = pathlib.Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return sum(name in line and " r-x" in line for line in lines)

    def status(self, field):
        lines = pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(line.split("\t", 1)[1] for line in lines if line.startswith(field + ":"))

    def step_seen(self, run):
        runs = json.loads(self._workplace.tool("ps", "--all", "--json"))["runs"]
        return next(seen["step"] for seen in runs if seen["id"] == run)

    def segments(self):
        return list(self._workplace.segments.glob(f"nw-{self.pid}-*.seg"))

    def go(self):
        self.go_file.touch()
        return self.job

    def verdict(self, run):
        self.job.status()
        return json.loads(self._workplace.tool("report", run, "--json"))


def found(origin):
    return origin["op"], origin["layer"], int(origin["step"]), origin["phase"]


@unittest.skipUnless(may_trace_others(), "kernel.yama.ptrace_scope forbids it to this user")
class Late(PromiseTest):
    def assert_as_alone(self, command, job):
        """Output and exit status are those of a twin that nobody attached to."""
        alone = Stranger(self, command).await_ready().go()
        self.assertEqual((alone.status(), job.status()), (0, 0), job.stderr())
        self.assertEqual(job.stdout(), alone.stdout())
        self.assertEqual(job.stderr(), alone.stderr())

    def test_the_first_nan_after_attaching_is_told_and_the_losses_are_a_twins(self):
        stranger = Stranger(self, [*ATTENDED, "--nan"]).await_ready()
        target = stranger.load()
        self.assertEqual((target["applied"], target["before"], target["level"]), (True, "idle", "full"))
        job = stranger.go()
        verdict = stranger.verdict(target["run"])
        origin = verdict["incidents"][0]["origin"]
        self.assertEqual(found(origin), ("aten::log", "gate", BAD, "forward"))
        self.assertEqual((origin["class"], origin["source"]), ("produce", "attended.py:20 in forward"))
        self.assertEqual(verdict["incidents"][0]["reach"], ["activation", "loss", "gradient", "parameter", "optimizer_state"])
        self.assertTrue(verdict["run"]["late"])
        self.assertIn("attached while it was running", self.workplace.tool("report", target["run"]))
        self.assert_as_alone([*ATTENDED, "--nan"], job)

    def test_attaching_again_loads_nothing_and_changes_the_level(self):
        stranger = Stranger(self, ATTENDED).await_ready()
        run = stranger.load()["run"]
        segments, mapped = stranger.segments(), stranger.maps("libnanwatch.so")
        for options in ((), ("--inject",), ("--inject", "--level", "canary")):
            status, document, said = stranger.attach(*options)
            self.assertEqual((status, document["loaded"], document["targets"][0]["run"]), (0, None, run), said)
        self.assertEqual(document["targets"][0]["before"], "full")
        self.assertEqual((stranger.segments(), stranger.maps("libnanwatch.so")), (segments, mapped))
        self.assertEqual((len(segments), mapped), (1, 1))
        self.assert_as_alone(ATTENDED, stranger.go())

    def test_what_it_began_at_is_idle_so_that_is_what_it_goes_back_to(self):
        stranger = Stranger(self, ATTENDED).await_ready()
        run = stranger.load("--for", "0.3s")["run"]
        level = lambda: next(r["level"] for r in json.loads(self.workplace.tool("ps", "--all", "--json"))["runs"]
                             if r["id"] == run)
        stranger.await_(lambda: level() == "idle", "the level is idle again")
        self.assert_as_alone(ATTENDED, stranger.go())

    def test_layers_steps_and_forked_workers_are_right_wherever_it_is_met(self):
        command = self.workplace.program("forking", FORKING)
        stranger = Stranger(self, command).await_ready()
        target = stranger.load()
        # Of two optimizers the one that steps less often counts; the second makes four steps.
        stranger.await_(lambda: stranger.step_seen(target["run"]) > 4, "more steps of the first are seen than of the second")
        job = stranger.go()
        verdict = stranger.verdict(target["run"])
        origin = verdict["incidents"][0]["origin"]
        # The third step of an optimizer that was made after attaching.
        self.assertEqual(found(origin), ("aten::sqrt", "", 2, "forward"))
        self.assertEqual(origin["layer_type"], "Net")
        chain = [link["layer"] for link in verdict["incidents"][0]["chain"]]
        self.assertIn("head", chain)
        self.assertEqual([run["pid"] for run in verdict["runs"]], [stranger.pid])
        self.assert_as_alone(command, job)

    def test_a_training_in_another_thread_than_the_main_one_is_found_too(self):
        stranger = Stranger(self, self.workplace.program("threaded", THREADED)).await_ready()
        # A script is run by the main thread alone.
        target = stranger.load(by="inject")
        self.assertTrue(target["applied"])
        stranger.go()
        origin = stranger.verdict(target["run"])["incidents"][0]["origin"]
        # No call of a module is seen where the main thread never comes back to Python.
        self.assertEqual((origin["op"], origin["layer"], origin["phase"]), ("aten::log", "", "forward"))
        self.assertEqual(stranger.job.status(), 0)
        self.assertIn("no layers", stranger.job.stderr())

    @unittest.skipIf(HAS_REMOTE_EXEC, "this Python needs no option")
    def test_without_the_option_nothing_is_done_and_the_sentence_says_what_it_would_do(self):
        stranger = Stranger(self, ATTENDED).await_ready()
        status, document, said = stranger.attach()
        self.assertEqual((status, document["reason"], document["loaded"]), (1, "needs_inject", None))
        self.assertIn("--inject loads it through a hook", said)
        self.assertEqual(stranger.maps("libnanwatch"), 0)
        self.assertEqual(stranger.go().status(), 0)

    def test_a_process_that_is_blocked_is_let_go_as_it_was_and_can_be_attached_to_later(self):
        command = self.workplace.program("blocked", BLOCKED)
        stranger = Stranger(self, command).await_ready()
        for wait in ("3", "0.3", "0.05"):
            status, document, said = stranger.attach(*WAYS_OPTION, "--wait", wait)
            self.assertEqual((status, document["reason"]), (1, "no_safe_point"), said)
            self.assertIn(f"its main thread has run no Python for {wait} s" if HAS_REMOTE_EXEC else f"reached no point within {wait} s",
                          document["problem"])
            self.assertEqual((stranger.status("TracerPid"), stranger.maps("libnanwatch")), ("0", 0))
            self.assertEqual(stranger.status("State")[0], "S")
        self.assert_runs_on(stranger)
        self.assertEqual(list(self.workplace.segments.glob("attach-*")), [], "nothing of the asking is left")

    def end_the_tool(self, name, end):
        """It waits for a process that is blocked, and gets this signal."""
        stranger = Stranger(self, self.workplace.program(name, BLOCKED)).await_ready()
        tool = subprocess.Popen([NANWATCH, "attach", str(stranger.pid), "--inject", "--wait", MARGIN_S],
                                env=self.workplace.watched, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(tool.stderr.close)
        self.assertTrue(any("has not yet reached a point" in line for line in tool.stderr), "the hook is in")
        tool.send_signal(end)
        self.assertEqual(tool.wait(), -end)
        return stranger

    def assert_runs_on(self, stranger):
        with open(stranger.go_file, "w"):
            pass
        self.assertEqual(stranger.job.status(), 0, stranger.job.stderr())
        self.assertEqual(len(stranger.job.stdout().splitlines()), 51)

    @unittest.skipIf(HAS_REMOTE_EXEC, "the hook has no part in it")
    def test_when_the_tool_is_to_end_while_it_waits_the_hook_goes_first(self):
        for end in (signal.SIGINT, signal.SIGTERM):
            stranger = self.end_the_tool(f"ended-{end.name}", end)
            self.assertEqual(stranger.status("TracerPid"), "0")
            self.assertEqual(stranger.maps("libnanwatch"), 0)
            self.assert_runs_on(stranger)

    @unittest.skipIf(HAS_REMOTE_EXEC, "the hook has no part in it")
    def test_when_the_tool_is_killed_the_process_runs_on(self):
        stranger = self.end_the_tool("killed", signal.SIGKILL)
        self.assert_runs_on(stranger)
        self.assertEqual(stranger.segments(), [], "nothing is loaded that nobody waits for")

    @unittest.skipUnless(HAS_REMOTE_EXEC, "this Python has no remote debugging")
    def test_a_python_that_lets_nobody_in_is_left_alone_or_reached_by_a_hook(self):
        stranger = Stranger(self, ATTENDED, PYTHON_DISABLE_REMOTE_DEBUG="1").await_ready()
        self.assertEqual(stranger.attach()[1]["reason"], "remote_debug_off")
        self.assertTrue(stranger.load(by="inject")["applied"])
        self.assert_as_alone(ATTENDED, stranger.go())


@unittest.skipUnless(may_trace_others(), "kernel.yama.ptrace_scope forbids it to this user")
class LateRefusals(PromiseTest):
    """Each with a sentence, before anything is done to the process."""

    def sleeper(self, *command, **options):
        process = subprocess.Popen(command, env=self.workplace.bare, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, **options)
        self.addCleanup(process.communicate)
        return process

    def refusal(self, pid, *options, **environment):
        ran = subprocess.run([NANWATCH, "attach", str(pid), "--inject", "--json", *options],
                             env=self.workplace.watched | environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        document = json.loads(ran.stdout)
        self.assertEqual((ran.returncode, document["targets"], document["loaded"]), (1, [], None))
        self.assertIn(document["problem"], ran.stderr)
        return document["reason"], document["problem"]

    def python(self, program, *interpreter, **options):
        process = self.sleeper(*(interpreter or (sys.executable,)), "-c",
                               f"{program}\nprint('ready', flush=True)\ninput()", **options)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def test_a_process_that_is_not_there(self):
        self.assertEqual(self.refusal(4194305), ("no_process", "there is no process 4194305 here"))

    def test_a_process_without_python(self):
        reason, problem = self.refusal(self.sleeper("cat").pid)
        self.assertEqual(reason, "no_python")
        self.assertIn("does not run Python", problem)

    def test_a_python_without_torch(self):
        reason, problem = self.refusal(self.python("").pid)
        self.assertEqual(reason, "no_torch")
        self.assertIn("attach once it has", problem)

    def test_a_torch_without_an_observer(self):
        """A libtorch of a version that there is no observer for, which is enough to be mapped."""
        package = self.workplace.folder / "other/torch"
        (package / "lib").mkdir(parents=True)
        (package / "version.py").write_text("__version__ = '1.4.0'\n")
        shutil.copy(BUILD / "lib/libnanwatch.so", package / "lib/libtorch_cpu.so")
        process = self.python(f"import ctypes; ctypes.CDLL({str(package / 'lib/libtorch_cpu.so')!r})")
        reason, problem = self.refusal(process.pid)
        self.assertEqual(reason, "torch_unsupported")
        self.assertIn("torch 1.4.0", problem)
        self.assertIn("nanwatch build-observer --python", problem)

    def with_torch(self, **options):
        # Mapped is enough.
        library = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib/libtorch_cpu.so"
        return self.python("import mmap; file = open(%r, 'rb'); held = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)"
                           % str(library), **options)

    def test_a_process_that_is_stopped(self):
        process = self.with_torch()
        process.send_signal(signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            self.assertEqual(self.refusal(process.pid)[0], "stopped")
        finally:
            process.send_signal(signal.SIGCONT)

    def test_a_process_that_asked_for_no_nanwatch(self):
        bare = self.workplace.bare
        self.workplace.bare = bare | {"NANWATCH": "0"}
        try:
            process = self.with_torch()
        finally:
            self.workplace.bare = bare
        self.assertEqual(self.refusal(process.pid)[0], "switched_off")

    @unittest.skipIf(HAS_REMOTE_EXEC, "the hook would have no part in it")
    def test_a_process_that_is_being_traced(self):
        process = self.with_torch()
        ptrace, seize = ctypes.CDLL(None, use_errno=True).ptrace, 0x4206
        self.assertEqual(ptrace(seize, process.pid, None, None), 0, os.strerror(ctypes.get_errno()))
        reason, problem = self.refusal(process.pid)
        self.assertEqual(reason, "traced")
        self.assertIn(f"process {os.getpid()}", problem)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_a_process_of_somebody_else(self):
        reason, problem = self.refusal(self.sleeper("cat", user=65534).pid)
        self.assertEqual(reason, "other_user")
        self.assertIn("sudo -u ", problem)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_a_process_of_a_user_who_may_not_trace_it(self):
        """As where ptrace is forbidden: a process that made itself undumpable, asked about without CAP_SYS_PTRACE."""
        prepare = "import ctypes; ctypes.CDLL(None).prctl(4, 0)"
        process = self.python(prepare)
        ran = subprocess.run(["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace",
                              NANWATCH, "attach", str(process.pid), "--json"],
                             env=self.workplace.watched, capture_output=True, text=True, timeout=TIMEOUT_S)
        reason = json.loads(ran.stdout)["reason"]
        self.assertIn(reason, ("ptrace_denied", "ptrace_scope", "seccomp"), ran.stderr)

    def test_detach_never_loads_anything(self):
        ran = subprocess.run([NANWATCH, "detach", str(self.with_torch().pid)], env=self.workplace.watched,
                             capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("is not watched: it was started without nanwatch", ran.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
