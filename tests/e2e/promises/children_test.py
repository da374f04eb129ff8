# SPDX-License-Identifier: Apache-2.0
"""Promise: whatever starts a child and whatever the child does, it is observed from its first op. The table shows the combinations.

CTest tries the ways to start a child that differ most; by hand, `children_test.py --all` tries all of them.
"""
import pathlib
import pickle
import sys
import unittest

from watched_job import PromiseTest

try:
    import joblib
except ImportError:
    joblib = None

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/children.py"
# A forked child costs nothing: each kind has one of its own. A spawned one imports torch first.
EACH = ("healthy", "forward", "trains", "killed", "threads", "grandchild")
TOGETHER = ("healthy", "trains", "forward+threads", "grandchild+killed")
METHODS = {
    "os.fork": EACH,
    "Process, fork": EACH,
    "Process, forkserver": TOGETHER,
    "Process, spawn": TOGETHER,
    "Pool, fork": EACH,
    "Pool, spawn": TOGETHER,
    "torch.multiprocessing, fork": EACH,
    "torch.multiprocessing.spawn": TOGETHER,
    "ProcessPoolExecutor, fork": EACH,
    "ProcessPoolExecutor, forkserver": TOGETHER,
    "joblib, loky": TOGETHER,
    "joblib, multiprocessing": EACH,
    "DataLoader, fork": EACH,
    "DataLoader, fork, persistent": EACH,
    "DataLoader, forkserver": TOGETHER,
    "DataLoader, spawn": TOGETHER,
    "DataLoader, spawn, persistent": TOGETHER,
}
OF_CTEST = ("os.fork", "Pool, fork", "Process, forkserver", "Process, spawn", "ProcessPoolExecutor, fork", "joblib, loky",
            "joblib, multiprocessing", "DataLoader, fork, persistent", "DataLoader, spawn")
# The op, and what it harmed: a number that was read, or a training.
EXPECTED = {
    "forward": ("aten::log", "metric"),
    "trains": ("aten::sqrt", "parameter"),
    "killed": ("aten::acos", "metric"),
    "threads": ("aten::asin", "metric"),
    "grandchild": ("aten::atanh", "metric"),
}
LAYER = "inner.2"
LINES = PROGRAM.read_text().splitlines()


def file_in_child(method):
    """What a child calls the program's file. loky sends it functions by cloudpickle, which from 3.1.3 on leaves the file's name out."""
    if method != "joblib, loky":
        return PROGRAM.name
    from cloudpickle import dumps
    code = compile("def sent(): pass", PROGRAM.name, "exec")
    names = {"__name__": "__main__"}
    exec(code, names)
    return pickle.loads(dumps(names["sent"])).__code__.co_filename


def answer(verdict, kind, file):
    """What was said of this kind of child: "right", or what is wrong with it."""
    op, reach = EXPECTED[kind]
    incidents = [incident for incident in verdict["incidents"] if incident["origin"]["op"] == op]
    if len(incidents) != 1:
        return f"{len(incidents)} incidents"
    origin = incidents[0]["origin"]
    found = {"class": origin["class"], "layer": origin["layer"], "line": origin["source"].split(" ")[0], "exact": origin["exact"]}
    line = [text.endswith("# " + kind) for text in LINES].index(True) + 1
    right = {"class": "produce", "layer": LAYER, "line": f"{file}:{line}", "exact": True}
    if found != right:
        return f"{found} is not {right}"
    if kind == "trains" and int(origin["step"]) != 2:
        return f"step {origin['step']}"
    if reach not in incidents[0]["reach"]:
        return f"reach {incidents[0]['reach']}"
    first = min(verdict["runs"], key=lambda run: run["started_at"])
    if origin["run"] not in [run["id"] for run in verdict["runs"] if run is not first]:
        return "no run of its own"
    return "right"


class Matrix(PromiseTest):
    """Each case starts its own job, so that the table fills as the jobs end."""

    table = {}

    @classmethod
    def tearDownClass(cls):
        kinds = ["healthy", *EXPECTED]
        print(f"\n| a child by | {' | '.join(kinds)} |\n|---|{'---|' * len(kinds)}")
        for method, row in cls.table.items():
            print(f"| {method} | {' | '.join(row.get(kind, '') for kind in kinds)} |", flush=True)

    def run_method(self, method):
        job = self.workplace.run_watched([sys.executable, "-W", "ignore", PROGRAM, method, *METHODS[method]])
        self.assertEqual(job.status(), 0, job.stderr())
        self.assertEqual(job.stdout().split(), list(METHODS[method]))
        verdict = job.verdict()
        row = {kind: answer(verdict, kind, file_in_child(method)) for kind in EXPECTED}
        others = [incident["origin"] for incident in verdict["incidents"] if incident["origin"]["op"] not in [op for op, _ in EXPECTED.values()]]
        row["healthy"] = "right" if not others else f"{len(others)} incidents"
        self.table[method] = row
        self.assertEqual(verdict["verdict"], "anomaly")
        self.assertEqual(row, dict.fromkeys(row, "right"), [incident["origin"]["op"] for incident in verdict["incidents"]])
        self.assertEqual(verdict["unwatched"], [])
        if "spawn" in method:  # whose own command is multiprocessing's
            self.assertEqual({run["program"] for run in verdict["runs"]}, {PROGRAM.name})


def add_case(method):
    @unittest.skipIf(method.startswith("joblib") and joblib is None, "there is no joblib: its children were NOT tried")
    def case(self):
        self.run_method(method)
    case.__name__ = "test_children_by_" + method.lower().replace(", ", "_").replace(".", "_")
    setattr(Matrix, case.__name__, case)


for each in METHODS if "--all" in sys.argv else OF_CTEST:
    add_case(each)


class Healthy(PromiseTest):
    def test_children_with_nothing_to_report_are_clean(self):
        for method in ("os.fork", "Pool, fork", "DataLoader, fork"):
            with self.subTest(method):
                job = self.workplace.run_watched([sys.executable, "-W", "ignore", PROGRAM, method, "healthy", "healthy"])
                self.assertEqual(job.status(), 0, job.stderr())
                verdict = job.verdict()
                self.assertEqual((verdict["verdict"], verdict["incidents"], verdict["unwatched"]), ("clean", [], []))


if __name__ == "__main__":
    unittest.main(argv=[each for each in sys.argv if each != "--all"], verbosity=2)
