# SPDX-License-Identifier: Apache-2.0
"""Promise: containers that share /dev/shm, and the host beside them, never see each other's runs, locks or levels.

The containers are real ones, made by bwrap: a pid namespace, a root and a home of their own, the same user, and one /dev/shm, which is the
test's own so that nobody else's directories are met or removed. Each starts its own daemon. ROUNDS=10 in the environment repeats the trainings ten times.
"""
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from watched_job import BUILD, NANWATCH, Workplace, origins

ROUNDS = int(os.environ.get("ROUNDS", "2"))
SOURCE = pathlib.Path(__file__).resolve().parents[3]
DEADLINE_S = 280

TRAINING = """
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    loss = (model(torch.ones(4, 8)) ** 2).mean()
    if step == BAD:
        loss = loss / torch.zeros(())
    loss.backward()
    optimizer.step()
"""

# Trains until the file `stop` is there.
ENDLESS = """
import pathlib
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
pathlib.Path("pid").write_text(str(__import__("os").getpid()))
while not pathlib.Path("stop").exists():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
"""


def bwrap(folder, shared_memory, own_pids=True, shown=()):
    """The command that enters a container whose home is `folder` and whose /dev/shm is `shared_memory`; it sees what is `shown` too."""
    words = ["bwrap", "--die-with-parent", "--unshare-uts", "--hostname", "node"]
    words += ["--unshare-pid"] if own_pids else []
    seen = set()
    for name in sorted(os.listdir("/")):
        path = "/" + name
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path) and name not in ("proc", "dev", "tmp", "sys"):
            words += ["--ro-bind", path, path]
            seen.add(path)
    words += ["--proc", "/proc", "--dev-bind", "/dev", "/dev", "--bind", str(shared_memory), "/dev/shm", "--tmpfs", "/tmp"]
    for path in shown:
        words += ["--bind", str(path), str(path)]
    for path in (str(SOURCE), str(BUILD), sys.prefix):
        if "/" + path.split("/")[1] not in seen:
            words += ["--ro-bind", path, path]
    return words + ["--bind", str(folder), str(folder), "--chdir", str(folder)]


def small_bwrap(folder):
    """A container as Docker makes one: no privilege, a /dev/shm of its own with 64 MB."""
    words = bwrap(folder, "/dev/shm")
    own = words.index("/dev/shm") - 1
    return [words[0], "--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", *words[1:own], "--size", str(64 << 20), "--tmpfs", "/dev/shm", *words[own + 3:]]


def may_make_containers():
    if shutil.which("bwrap") is None:
        return False
    return subprocess.run([*bwrap(pathlib.Path("/tmp"), "/dev/shm"), "true"], capture_output=True).returncode == 0


class Container:
    def __init__(self, workplace, name, own_pids=True, **environment):
        self.folder = workplace.folder / name
        self.folder.mkdir()
        shown = [workplace.segments, *filter(None, [environment.get("NANWATCH_STATE_DIR")])]
        self._enter = bwrap(self.folder, workplace.shared_memory, own_pids, shown=shown)
        self._environment = workplace.bare | {"HOME": str(self.folder)} | environment
        self._process = None

    def start(self, script, **files):
        """A shell script as the container's only program, in its home."""
        for name, text in files.items():
            (self.folder / name).write_text(text)
        with open(self.folder / "out", "w") as out, open(self.folder / "err", "w") as err:
            self._process = subprocess.Popen([*self._enter, "/bin/bash", "-c", script], env=self._environment,
                                             stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        return self

    def wait(self):
        self._process.wait(DEADLINE_S)
        return self

    def words(self):
        return (self.folder / "err").read_text() + (self.folder / "out").read_text()

    def read(self, name):
        self.wait()
        if not (self.folder / name).exists():
            raise AssertionError(f"{name} was not written in {self.folder.name}:\n{self.words()}")
        return json.loads((self.folder / name).read_text())

    def when(self, name):
        """The text of a file as soon as there is one."""
        deadline = time.monotonic() + DEADLINE_S
        while not (self.folder / name).exists() or not (self.folder / name).read_text():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(f"{name} did not come in {self.folder.name}:\n{self.words()}")
            time.sleep(0.02)
        return (self.folder / name).read_text()

    def pid_outside(self, program):
        """Of the Python in the container that runs the program, as the host sees it."""
        wanted = str(self.folder / program).encode()
        for entry in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                command = pathlib.Path(entry).read_bytes()
            except OSError:
                continue
            words = command.split(b"\0")
            if len(words) > 1 and words[1] == wanted:
                return int(entry.split("/")[2])
        raise AssertionError(f"no process runs {program} in {self.folder.name}:\n{self.words()}")

    def kill(self):
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)  # and all in it, because process 1 goes
            self._process.wait()


def run_and_list(folder, program):
    return (f"{NANWATCH} run --verdict verdict.json -- {sys.executable} {folder / program} ;"
            f" {NANWATCH} ps --json > ps.tmp && mv ps.tmp ps.json")


@unittest.skipUnless(may_make_containers(), "no bwrap, or containers may not be made here")
class Containers(unittest.TestCase):
    def setUp(self):
        self.workplace = Workplace()
        self.workplace.shared_memory = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-test-", dir="/dev/shm"))
        self.addCleanup(lambda: shutil.rmtree(self.workplace.shared_memory, ignore_errors=True))
        self.addCleanup(self.workplace.close)
        self.containers = []
        self.addCleanup(lambda: [container.kill() for container in self.containers])

    def container(self, name, **arguments):
        self.containers.append(Container(self.workplace, name, **arguments))
        return self.containers[-1]

    def tool(self, *arguments):
        """On the host, which shares the containers' /dev/shm: a mount namespace of its own is no container."""
        script = 'mount --bind "$1" /dev/shm && shift && exec "$@"'
        return subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", self.workplace.shared_memory, NANWATCH, *arguments],
                              env=self.workplace.bare | {"NANWATCH_STATE_DIR": str(self.workplace.state)}, capture_output=True, text=True,
                              timeout=DEADLINE_S)

    def check(self, container, bad):
        """One run, its own, with the right verdict; and nobody else's is listed."""
        verdict = container.read("verdict.json")
        self.assertEqual(verdict["verdict"], "anomaly" if bad else "clean", container.words())
        self.assertEqual(len(verdict["runs"]), 1, container.words())
        self.assertEqual(verdict["runs"][0]["command"][-1], str(container.folder / "train.py"))
        if bad:
            origin = origins(verdict)[0]
            self.assertEqual((origin["op"], origin["class"], int(origin["step"])), ("aten::div", "produce", 3))
        listed = container.read("ps.json")
        self.assertEqual([run["job"] for run in listed["runs"]], [verdict["run"]["job"]])

    def train(self, container, bad):
        return container.start(run_and_list(container.folder, "train.py"),
                               **{"train.py": TRAINING.replace("BAD", "3" if bad else "-1")})

    def test_each_of_two_at_once_gets_its_own_report(self):
        for i in range(ROUNDS):
            bad = self.train(self.container(f"bad{i}"), bad=True)
            clean = self.train(self.container(f"clean{i}"), bad=False)
            self.check(bad, bad=True)
            self.check(clean, bad=False)

    def test_one_without_privileges_and_with_64_mb_of_shared_memory(self):
        folder = self.workplace.folder / "unprivileged"
        folder.mkdir()
        (folder / "train.py").write_text(TRAINING.replace("BAD", "3"))
        script = (f"grep CapEff /proc/self/status > facts; id -u >> facts; df --output=size -B1 /dev/shm >> facts; "
                  f"{NANWATCH} run --verdict verdict.json -- {sys.executable} {folder}/train.py; df --output=used -B1 /dev/shm >> facts")
        ran = subprocess.run([*small_bwrap(folder), "/bin/bash", "-c", script], env=self.workplace.bare | {"HOME": str(folder)}, capture_output=True, text=True,
                             timeout=DEADLINE_S)
        facts = (folder / "facts").read_text().split()
        self.assertEqual(facts[:5], ["CapEff:", "0000000000000000", "1000", "1B-blocks", str(64 << 20)], ran.stderr)
        self.assertLess(int(facts[-1]), 8 << 20, "what is left of it")
        verdict = json.loads((folder / "verdict.json").read_text())
        origin = origins(verdict)[0]
        self.assertEqual((verdict["verdict"], origin["op"], int(origin["step"])), ("anomaly", "aten::div", 3), ran.stderr)
        self.assertIn("ANOMALY   train.py", ran.stderr)

    def test_another_container_reads_the_database_of_the_jobs(self):
        """As a sidecar does, which shows pages and metrics and shares nothing but the state directory."""
        state = self.workplace.folder / "shared-state"
        state.mkdir()
        job = self.train(self.container("job", NANWATCH_STATE_DIR=str(state)), bad=True)
        verdict = job.read("verdict.json")
        sidecar = self.container("sidecar", NANWATCH_STATE_DIR=str(state)).start(
            f"{NANWATCH} ps --json > ps.json; {NANWATCH} report --json > report.json")
        self.assertEqual([run["job"] for run in sidecar.read("ps.json")["runs"]], [verdict["run"]["job"]], sidecar.words())
        self.assertEqual(origins(sidecar.read("report.json"))[0]["op"], "aten::div")

    def test_also_when_one_sees_the_hosts_processes(self):
        bad = self.train(self.container("bad", own_pids=False), bad=True)
        clean = self.train(self.container("clean"), bad=False)
        self.check(bad, bad=True)
        self.check(clean, bad=False)

    def test_also_when_both_and_the_host_are_given_one_directory(self):
        shared = str(self.workplace.segments)
        for i in range(ROUNDS):
            bad = self.train(self.container(f"bad{i}", NANWATCH_DIR=shared), bad=True)
            clean = self.train(self.container(f"clean{i}", NANWATCH_DIR=shared), bad=False)
            host = self.workplace.run_watched(self.workplace.program(f"host{i}", TRAINING.replace("BAD", "-1")))
            self.assertEqual(host.verdict()["verdict"], "clean", host.stderr())
            self.assertEqual(len(host.verdict()["runs"]), 1)
            self.check(bad, bad=True)
            self.check(clean, bad=False)

    def test_attach_all_in_one_does_not_touch_the_other(self):
        script = "{0} run --level idle -- {1} {2}/endless.py"
        one, two = self.container("one"), self.container("two")
        for container in (one, two):
            container.start(script.format(NANWATCH, sys.executable, container.folder) + " & echo go > started; "
                            "while [ ! -e command ]; do sleep 0.05; done; bash ./command; wait",
                            **{"endless.py": ENDLESS})
        for container in (one, two):
            container.when("pid")
        host_pid = one.pid_outside("endless.py")
        put = lambda container, text: ((container.folder / "command.tmp").write_text(text),
                                       os.rename(container.folder / "command.tmp", container.folder / "command"))
        put(one, f"for i in $(seq 100); do {NANWATCH} attach --all --level full --json > attached.tmp && break; sleep 0.1; done;"
                 " mv attached.tmp attached.json; while [ ! -e stop ]; do sleep 0.05; done")
        attached = json.loads(one.when("attached.json"))
        self.assertEqual([target["applied"] for target in attached["targets"]], [True], attached)
        put(two, f"{NANWATCH} ps --json > ps.tmp; mv ps.tmp ps.json; while [ ! -e stop ]; do sleep 0.05; done")
        listed = json.loads(two.when("ps.json"))["runs"]
        self.assertEqual([(run["level"], run["live"]) for run in listed], [("idle", True)], listed)

        from_host = json.loads(self.tool("attach", str(host_pid), "--json").stdout)
        self.assertEqual(from_host["reason"], "other_container", from_host)
        self.assertRegex(from_host["problem"], rf"/dev/shm/nanwatch-{os.geteuid()}-[0-9a-f]{{8}}, unless ")
        doctor = json.loads(self.tool("doctor", "--json").stdout)
        self.assertEqual(len([check for check in doctor["checks"] if check["name"] == "containers"]) >= 2, True, doctor)
        for container in (one, two):
            (container.folder / "stop").touch()
        self.assertEqual([container.wait()._process.returncode for container in (one, two)], [0, 0])

    def test_what_a_killed_container_left_is_neither_taken_nor_removed_by_the_host(self):
        shared = str(self.workplace.segments)
        killed = self.container("killed", NANWATCH_DIR=shared)
        killed.start(f"{NANWATCH} run -- {sys.executable} {killed.folder}/endless.py", **{"endless.py": ENDLESS})
        killed.when("pid")
        deadline = time.monotonic() + DEADLINE_S
        while not (left := sorted(self.workplace.segments.glob("nw-*.seg"))):
            self.assertLess(time.monotonic(), deadline, killed.words())
            time.sleep(0.02)
        killed.kill()
        host = self.workplace.run_watched(self.workplace.program("host", TRAINING.replace("BAD", "-1")))
        self.assertEqual((host.verdict()["verdict"], len(host.verdict()["runs"])), ("clean", 1), host.stderr())
        self.assertEqual(sorted(self.workplace.segments.glob("nw-*.seg")), left)
        listed = json.loads(self.workplace.tool("ps", "--json"))
        self.assertEqual([run["program"] for run in listed["runs"]], ["host.py"])
        self.assertEqual([entry["file"] for entry in listed["foreign"]], [path.name for path in left])
        self.assertIn("another container", listed["foreign"][0]["reason"])

    def test_a_command_that_enters_a_container_is_said_to_be_watched_in_there(self):
        container = self.container("inner")
        (container.folder / "train.py").write_text(TRAINING.replace("BAD", "-1"))
        command = [*bwrap(container.folder, self.workplace.shared_memory, shown=[self.workplace.segments]), sys.executable, container.folder / "train.py"]
        job = self.workplace.run_watched(command)
        self.assertEqual(job.status(), 0, job.stderr())
        self.assertIn("ran in its own container", job.stderr())


if __name__ == "__main__":
    unittest.main()
