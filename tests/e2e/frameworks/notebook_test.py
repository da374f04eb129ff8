# SPDX-License-Identifier: Apache-2.0
"""A notebook: a real ipykernel that jupyter_client drives, cell by cell, with nanwatch preloaded.

The kernel talks over sockets in a folder of its own, no ports."""
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import unittest

import framework_job  # noqa: F401  (where watched_job lies)
from watched_job import NANWATCH, PRELOAD, Workplace, await_condition

try:
    import ipykernel  # noqa: F401
    from jupyter_client.manager import KernelManager
except ImportError:
    KernelManager = None
try:
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
except ImportError:
    NotebookClient = None

ANSWER_S = 600
AT_ONCE_S = 5  # `attach --wait` waits ten by default

SET_UP = """
import os, torch, torch.nn as nn
torch.manual_seed(0)
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 8), nn.Linear(8, 1)
    def forward(self, x, fault=False):
        hidden = self.inner(x)
        if fault:
            hidden = torch.log(-hidden.abs() - 1)  # here
        return self.outer(hidden)
"""
# {number}: of the training, so that the first one's model may be kept alive. The step with a fault is `at`.
TRAINING = """
model{number} = Net()
optimizer{number} = torch.optim.SGD(model{number}.parameters(), lr=0.01)
for step in range({steps}):
    loss = model{number}(torch.randn(4, 6), fault=step == {at}).pow(2).mean()
    optimizer{number}.zero_grad()
    loss.backward()
    optimizer{number}.step()
"""
IN_CELL = """
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(9):
    x = torch.randn(4, 6)
    if step == 4:
        x = torch.log(-x.abs() - 1)  # here
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

# IPython drops the empty lines that a cell begins with.
NET, IN_CELL, TRAINING = NET.lstrip("\n"), IN_CELL.lstrip("\n"), TRAINING.lstrip("\n")
LINE = next(number for number, line in enumerate(NET.splitlines(), 1) if line.endswith("# here"))
LINE_IN_CELL = next(number for number, line in enumerate(IN_CELL.splitlines(), 1) if line.endswith("# here"))
# The training goes on with the same optimizer.
LOOP = "\n".join(TRAINING.splitlines()[2:])


class Kernel:
    """One kernel, in the workplace's folder. Cells are numbered as the notebook numbers them."""
    count = 0

    def __init__(self, workplace, preload=True, **environment):
        Kernel.count += 1
        folder = workplace.folder / f"kernel{Kernel.count}"
        folder.mkdir()
        self.workplace, self.folder = workplace, folder
        (folder / "config").mkdir()
        environment = workplace.watched | {"IPYTHONDIR": str(folder / "config"), "JUPYTER_RUNTIME_DIR": str(folder)} | environment
        if preload:
            environment["LD_PRELOAD"] = str(PRELOAD)
        self.manager = KernelManager(transport="ipc", ip=str(folder / "socket"), connection_file=str(folder / "connection.json"))
        self.manager.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        with open(folder / "output", "wb") as output:
            self.manager.start_kernel(env=environment, cwd=str(folder), stdout=output, stderr=output)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=ANSWER_S)
        self.pid = self.manager.provisioner.pid
        self.cells = 0

    def run(self, cell, fails=False):
        """Runs a cell to its end; its number."""
        reply = self.client.execute_interactive(cell, timeout=ANSWER_S, output_hook=lambda message: None)["content"]
        if (reply["status"] != "ok") != fails:
            raise AssertionError(reply)
        self.cells += 1
        return reply["execution_count"]

    def start(self, cell):
        """The same without waiting for the end."""
        self.client.execute(cell)
        self.cells += 1

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)
        self.manager.cleanup_resources()

    def kill(self):
        if self.manager.has_kernel:
            self.client.stop_channels()
            self.manager.shutdown_kernel(now=True)

    def report(self, *options):
        ran = subprocess.run([NANWATCH, "report", str(self.pid), *options], env=self.workplace.watched, capture_output=True, text=True, timeout=ANSWER_S)
        return ran.returncode, ran.stdout, ran.stderr

    def document(self):
        return json.loads(self.report("--json")[1])


@unittest.skipUnless(KernelManager, "ipykernel and jupyter_client are not installed: notebooks were NOT tried")
class Notebook(unittest.TestCase):
    def setUp(self):
        self.workplace = Workplace()
        self.addCleanup(self.workplace.close)

    def kernel(self, **options):
        kernel = Kernel(self.workplace, **options)
        self.addCleanup(kernel.kill)
        return kernel

    def test_a_line_is_named_by_its_cell(self):
        kernel = self.kernel()
        kernel.run(SET_UP)
        defined = kernel.run(NET)
        kernel.run("x = 1")
        first = kernel.run(TRAINING.format(number=1, steps=9, at=4))
        direct = kernel.run(IN_CELL)
        again = kernel.run(IN_CELL)
        document = kernel.document()
        sources = [incident["origin"]["source"] for incident in document["incidents"] if incident["origin"]["op"] == "aten::log"]
        self.assertEqual(sources, [f"In[{again}]:{LINE_IN_CELL} in <module>", f"In[{direct}]:{LINE_IN_CELL} in <module>",
                                   f"In[{defined}]:{LINE} in forward"], document)
        self.assertEqual([training["cell"] for training in document["trainings"]], [f"In[{n}]" for n in (first, direct, again)])

    def assert_trainings(self, kernel, expected):
        """(verdict, steps, cell) of each."""
        document = kernel.document()
        self.assertEqual([(t["verdict"], int(t["steps"]), t["cell"]) for t in document["trainings"]], expected, document["trainings"])
        return document

    def test_a_second_training_has_its_own_answer(self):
        kernel = self.kernel()
        kernel.run(SET_UP)
        kernel.run(NET)
        bad = kernel.run(TRAINING.format(number=1, steps=12, at=5))
        # The first model, its parameters NaN, is still alive.
        good = kernel.run(TRAINING.format(number=2, steps=4, at=-1))
        document = self.assert_trainings(kernel, [("anomaly", 12, f"In[{bad}]"), ("clean", 4, f"In[{good}]")])
        self.assertEqual(document["verdict"], "anomaly")
        code, text, _ = kernel.report()
        self.assertTrue(text.startswith(f"CLEAN     training 2 of 2 (In[{good}], 4 steps): no non-finite value\n"), text)
        self.assertIn(f"in training 1 (In[{bad}])", " ".join(text.split()))
        # Again a bad one, with steps counted anew.
        worse = kernel.run(TRAINING.format(number=3, steps=9, at=3))
        document = self.assert_trainings(kernel, [("anomaly", 12, f"In[{bad}]"), ("clean", 4, f"In[{good}]"), ("anomaly", 9, f"In[{worse}]")])
        origins = [(incident["origin"]["training"], int(incident["origin"]["step"]), incident["origin"]["op"])
                   for incident in document["incidents"] if incident["severity"] != "info"]
        self.assertEqual(origins, [(3, 3, "aten::log"), (1, 5, "aten::log")])
        self.assertIn("NaN reached the parameters at step 3 in training 3", " ".join(kernel.report()[1].split()))
        lines = [" ".join(line.split()) for line in self.workplace.tool("tail", document["run"]["id"]).splitlines()]
        for place in ("step 5 of training 1", "step 3 of training 3"):
            self.assertTrue(any(f"{place} forward aten::log produce" in line for line in lines), lines)
        rows = json.loads(self.workplace.tool("ps", "--json"))
        steps = [run["step"] for run in rows["runs"] if int(run["pid"]) == kernel.pid]
        self.assertEqual([int(step) for step in steps], [9], rows)

    def test_a_training_that_goes_on_in_another_cell_is_the_same_one(self):
        kernel = self.kernel()
        kernel.run(SET_UP)
        kernel.run(NET)
        first = kernel.run(TRAINING.format(number=1, steps=5, at=-1))
        kernel.run(LOOP.format(number=1, steps=5, at=3))
        document = kernel.document()
        self.assertEqual(document["trainings"], [])
        self.assertEqual([int(i["origin"]["step"]) for i in document["incidents"]], [8])
        self.assertEqual(first, 3)

    def test_parameters_that_stay_bad_are_no_second_incident(self):
        kernel = self.kernel()
        kernel.run(SET_UP)
        kernel.run(NET)
        kernel.run(TRAINING.format(number=1, steps=9, at=3))
        kernel.run(LOOP.format(number=1, steps=9, at=-1))
        kernel.run(LOOP.format(number=1, steps=9, at=-1))
        document = kernel.document()
        self.assertEqual([(i["origin"]["op"], int(i["origin"]["step"])) for i in document["incidents"] if i["severity"] != "info"], [("aten::log", 3)])
        self.assertEqual(document["trainings"], [])

    def test_a_kernel_that_was_started_without_nanwatch(self):
        kernel = self.kernel(preload=False)
        kernel.run(SET_UP)
        defined = kernel.run(NET)
        ran, took = self.attach(kernel, "--inject")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("applies at the next cell", ran.stdout)
        self.assertLess(took, 2 * AT_ONCE_S)
        kernel.run(TRAINING.format(number=1, steps=9, at=3))
        sources = [incident["origin"]["source"] for incident in kernel.document()["incidents"] if incident["severity"] != "info"]
        self.assertEqual(sources, [f"In[{defined}]:{LINE} in forward"])

    def attach(self, kernel, *options):
        began = time.monotonic()
        ran = subprocess.run([NANWATCH, "attach", str(kernel.pid), *options], env=self.workplace.watched, capture_output=True, text=True, timeout=ANSWER_S)
        return ran, time.monotonic() - began

    def test_attaching_to_an_idle_kernel_answers_at_once(self):
        kernel = self.kernel(NANWATCH_LEVEL="idle")
        kernel.run(SET_UP)
        kernel.run(NET)
        kernel.run(TRAINING.format(number=1, steps=3, at=-1))
        ran, took = self.attach(kernel, "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        target, = json.loads(ran.stdout)["targets"]
        self.assertEqual((target["applied"], target["applies_at_next_cell"]), (False, True), ran.stdout)
        self.assertLess(took, AT_ONCE_S)
        self.assertIn("applies at the next cell", self.attach(kernel)[0].stdout)
        # It does: the next cell trains at that level from its first op on.
        kernel.run(TRAINING.format(number=2, steps=3, at=0))
        document = kernel.document()
        origin = document["incidents"][0]["origin"]
        self.assertEqual((origin["op"], int(origin["step"]), origin["training"]), ("aten::log", 0, 2), document)

    def test_a_kernel_that_has_only_imported_torch_can_be_attached_to(self):
        kernel = self.kernel(NANWATCH_LEVEL="idle")
        kernel.run(SET_UP)
        kernel.run("x = 1")
        ran, took = self.attach(kernel)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("applies at the next cell", ran.stdout)
        self.assertLess(took, AT_ONCE_S)

    def test_a_cell_that_computes_is_no_idle_kernel(self):
        kernel = self.kernel(NANWATCH_LEVEL="idle")
        kernel.run(SET_UP)
        kernel.run(NET)
        stop = kernel.folder / "stop"
        loop = TRAINING.format(number=1, steps=1_000_000, at=-1) + f"    if os.path.exists({str(stop)!r}): break\n"
        kernel.start(loop)
        rows = lambda: [run for run in json.loads(self.workplace.tool("ps", "--json"))["runs"] if int(run["pid"]) == kernel.pid and int(run["step"]) > 3]
        await_condition(rows, "the kernel trains", ANSWER_S)
        ran, _ = self.attach(kernel, "--json")
        stop.touch()
        target, = json.loads(ran.stdout)["targets"]
        self.assertEqual((target["applied"], target["applies_at_next_cell"]), (True, False), ran.stdout)

    def test_time_between_cells_is_no_step_s(self):
        kernel = self.kernel()
        kernel.run(SET_UP)
        kernel.run(NET)
        kernel.run(TRAINING.format(number=1, steps=20, at=-1))
        kernel.run("import time; began = time.monotonic()")
        kernel.run("while time.monotonic() < began + 3: pass")  # as long as somebody thinks, without a pause of the test's
        kernel.run(LOOP.format(number=1, steps=20, at=-1))
        exported = self.workplace.tool("report", str(kernel.pid), "--json")
        self.assertEqual(json.loads(exported)["verdict"], "clean")
        top = json.loads(self.workplace.tool("top", "--json"))
        row, = [run for run in top["runs"] if int(run["pid"]) == kernel.pid]
        # 19 steps of the second cell alone: with the pause they would be fewer than 14 a second.
        if row["steps_per_second"] is not None:
            self.assertGreater(row["steps_per_second"], 20 / 3)

    @unittest.skipUnless(NotebookClient, "nbclient is not installed")
    def test_a_notebook_that_nbclient_runs_is_attached_to_while_it_runs(self):
        folder = self.workplace.folder / "notebook"
        (folder / "config").mkdir(parents=True)
        pid, attached = folder / "pid", folder / "attached"
        waiting = (TRAINING.format(number=1, steps=1_000_000, at=-1) + f"    pathlib.Path({str(pid)!r} + '.new').write_text(str(os.getpid()))\n"
                   f"    os.rename({str(pid)!r} + '.new', {str(pid)!r})\n    if os.path.exists({str(attached)!r}): break\n")
        cells = [SET_UP + "import pathlib\n", NET, waiting, TRAINING.format(number=2, steps=5, at=2) + "print(loss.item())"]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip("\n")) for cell in cells])
        manager = AsyncKernelManager(transport="ipc", ip=str(folder / "socket"), connection_file=str(folder / "connection.json"))
        manager.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        environment = self.workplace.watched | {"IPYTHONDIR": str(folder / "config"), "JUPYTER_RUNTIME_DIR": str(folder), "LD_PRELOAD": str(PRELOAD), "NANWATCH_LEVEL": "idle"}
        client = NotebookClient(notebook, timeout=ANSWER_S, km=manager)
        running = threading.Thread(target=client.execute, kwargs={"env": environment, "cwd": str(folder)})
        running.start()
        await_condition(pid.exists, "the notebook trains", ANSWER_S)
        ran = subprocess.run([NANWATCH, "attach", pid.read_text(), "--json"], env=self.workplace.watched, capture_output=True, text=True, timeout=ANSWER_S)
        attached.touch()
        running.join(ANSWER_S)
        target, = json.loads(ran.stdout)["targets"]
        self.assertTrue(target["applied"], ran.stdout + ran.stderr)
        self.assertEqual([output.text for output in notebook.cells[3].outputs], ["nan\n"], "the notebook's own output, and nothing of ours")
        sources = [incident["origin"]["source"] for incident in json.loads(self.workplace.tool("report", pid.read_text(), "--json"))["incidents"]
                   if incident["origin"]["op"] == "aten::log"]
        self.assertEqual(sources, [f"In[2]:{LINE} in forward"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
