# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share: a program is run bare, watched and watched with its fault, and its origin is compared.

A program of programs/ trains a small model as users of its framework do, and prints losses and weights exactly. With `--fault`
it has a mistake of the kind users make, in the line that ends with `# here`.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import PromiseTest, Workplace, origins  # noqa: E402, F401

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def program(name):
    return [sys.executable, PROGRAMS / f"{name}.py"]


def on_two_ranks(name):
    """Under torchrun, which finds a free port by itself, and keeps its logs where the job runs."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--log-dir", "logs", PROGRAMS / f"{name}.py"]


def source_of(name, mark="# here"):
    """The marked line of a program as a verdict names it: "ddp.py:12 in forward"."""
    function = ""
    for number, line in enumerate((PROGRAMS / f"{name}.py").read_text().splitlines(), 1):
        if found := re.match(r"\s*def (\w+)", line):
            function = found[1]
        if line.endswith(mark):
            return f"{name}.py:{number} in {function}"
    raise AssertionError(f"{name}.py has no line that ends with {mark}")


class FrameworkTest(PromiseTest):
    maxDiff = None

    @classmethod
    def run_healthy(cls, workplace, command):
        """Bare and watched, to their ends; what test_healthy... of HealthyCase compares."""
        cls.bare, cls.watched = workplace.run_bare(command), workplace.run_watched(command)
        cls.bare.status(), cls.watched.status()

    def assert_origin(self, job, status=0, **expected):
        """The most important origin of an anomaly has these fields; returns its incident."""
        self.assertEqual(job.status(), status, job.stderr())
        verdict = job.verdict()
        self.assertEqual(verdict["verdict"], "anomaly", job.stderr())
        origin = origins(verdict)[0]
        found = {name: origin[name] for name in expected}
        if "step" in found:
            found["step"] = int(found["step"])
        self.assertEqual(found, expected, job.stderr())
        return verdict["incidents"][0]

    def assert_healthy(self, bare, watched, runs=1):
        """As without us, and nothing in it alarmed."""
        self.assert_same(bare, watched)
        verdict = watched.verdict()
        self.assertIn(verdict["verdict"], ("clean", "expected"), verdict["incidents"])
        self.assertEqual(len(verdict["runs"]), runs, verdict["runs"])
        self.assertGreater(int(verdict["coverage"]["tensors_checked"]), 0)
        self.assertEqual(int(verdict["coverage"]["lost_events"]), 0)
        return verdict


class HealthyCase:
    """A mixin: the program without its fault is left alone."""

    def test_healthy_training_is_as_without_us_and_called_clean(self):
        self.assert_healthy(self.bare, self.watched)
