# SPDX-License-Identifier: Apache-2.0
"""Jobs on the fake CUDA device, run as the promises' jobs are."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent / "promises"))

from blocks import MODEL  # noqa: E402
from watched_job import NANWATCH, PromiseTest, Workplace, origins  # noqa: E402

FAKE_GPU = ROOT / "tests/fakes/torch_cuda/run.py"
# How many launches a stream is behind: none, some within a step, some steps.
LAGS = ("0", "50", "1500")


# What of an incident must be alike on CPU and GPU; addresses, tickets and counts need not be.
FIELDS = ("kind", "class", "op", "phase", "layer", "layer_type", "root", "autograd_node", "param", "step", "iteration",
          "micro_step", "exact")


def reached(incident):
    """Without the loss of later steps: on a GPU nothing is read of a step whose parameters are bad."""
    later = {link["reach"] for link in incident["chain"] if int(link["step"]) > int(incident["origin"]["step"]) >= 0}
    return sorted(set(incident["reach"]) - (later & {"loss"}))


def told(verdict):
    """Its incidents, without what depends on the memory. What an op wrote over was read on neither, and only on the CPU is that said."""
    return [{field: incident["origin"][field] for field in FIELDS if field != "exact" or not incident["origin"]["op"].endswith("_")}
            | {"severity": incident["severity"], "reach": reached(incident), "pattern": (incident["pattern"] or {}).get("id")}
            for incident in verdict["incidents"]]


class GpuWorkplace(Workplace):
    """Every op is watched where a test asks for nothing else: the default on a GPU is level sampled."""

    def run_watched(self, command, options=(), **environment):
        chosen = any(option in options for option in ("--level", "--budget"))
        return super().run_watched(command, options if chosen else ("--level", "full", *options), **environment)

    def run_by_default(self, command):
        return super().run_watched(command)


class GpuJobTest(PromiseTest):
    WORKPLACE = GpuWorkplace

    @classmethod
    def program(cls, name, text):
        python, path = cls.workplace.program(name, text)
        return [python, FAKE_GPU, path]

    def assert_origin(self, verdict, device="cuda:0", **expected):
        """Of the only incident."""
        found = origins(verdict)
        self.assertEqual(len(found), 1, found)
        expected["device"] = device
        self.assertEqual({key: int(found[0][key]) if key == "step" else found[0][key] for key in expected}, expected)


__all__ = ["GpuJobTest", "LAGS", "MODEL", "NANWATCH", "origins", "told"]
