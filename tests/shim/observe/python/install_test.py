# SPDX-License-Identifier: Apache-2.0
"""The descriptor gets in place by itself, from a thread that never takes the GIL."""

import os
import subprocess
import sys
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
WAIT = """
import sys, time
def wait():
    end = time.monotonic() + 60
    while not bridge.installed():
        assert time.monotonic() < end, "not installed in time"
        sum(range(1000))
"""


def run(source, *, python=sys.executable):
    script = f"import sys; sys.path.insert(0, {HERE!r})\n{WAIT}\n{textwrap.dedent(source)}"
    result = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=1000)
    if result.returncode != 0:
        raise AssertionError(f"status {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout.split()


class Install(unittest.TestCase):
    def test_it_is_in_place_before_dynamo_is_imported(self):
        self.assertEqual(
            run("""
            import bridge
            bridge.install_in_background()
            import torch
            wait()
            print("torch._dynamo" in sys.modules, type(torch.nn.Module.__call__).__name__, *bridge.said())
        """),
            ["False", "module_call"],
        )

    def test_a_late_install_still_lets_the_full_graph_be_compiled(self):
        self.assertEqual(
            run("""
            import torch, torch._dynamo, torch._dynamo.variables.nn_module as variables
            import bridge
            bridge.install_in_background()
            wait()
            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
                def forward(self, x):
                    return self.second(self.first(x))
            torch.compile(Model(), backend="eager", fullgraph=True)(torch.ones(2, 4))
            print(variables.unpatched_nn_module_call is torch.nn.Module.__call__)
        """),
            ["True"],
        )

    def test_an_exception_under_way_is_not_disturbed(self):
        self.assertEqual(
            run("""
            import bridge
            bridge.install_in_background()
            import torch
            end = time.monotonic() + 60
            raised = caught = 0
            while not bridge.installed() and time.monotonic() < end:
                try:
                    raised += 1
                    raise KeyError(raised)
                except KeyError as error:
                    caught += error.args[0] == raised
            print(raised == caught, bridge.installed())
        """),
            ["True", "True"],
        )

    def test_nothing_happens_without_torch_nor_at_the_end_of_python(self):
        self.assertEqual(
            run("""
            import bridge
            bridge.install_in_background()
            for _ in range(20):
                time.sleep(0.005)
            print(bridge.installed())
        """),
            ["False"],
        )

    def test_it_stops_when_it_is_switched_off(self):
        self.assertEqual(
            run("""
            import bridge
            bridge.stop_installing()
            bridge.install_in_background()
            import torch
            for _ in range(50):
                sum(range(10000))
            print(bridge.installed())
        """),
            ["False"],
        )

    def test_somebody_else_s_replacement_is_left_alone(self):
        self.assertEqual(
            run("""
            import torch, bridge
            import functools
            torch.nn.Module.__call__ = functools.partial(lambda *args: len(args))
            bridge.install_in_background()
            end = time.monotonic() + 60
            while not (said := bridge.said()) and time.monotonic() < end:
                sum(range(1000))
            print(bridge.installed(), torch.nn.Linear(1, 1)(1), len(said))
        """),
            ["False", "1", "1"],
        )

    def test_a_forked_child_keeps_layers(self):
        self.assertEqual(
            run("""
            import os, torch, bridge
            bridge.install()
            model = torch.nn.Sequential(torch.nn.Identity())
            model(torch.ones(1))
            child = os.fork()
            if child == 0:
                class Asking(torch.nn.Module):
                    def forward(self, x):
                        return bridge.layer()
                model.append(Asking())
                os._exit(0 if model(torch.ones(1)) == "Sequential#0|1|Asking" else 1)
            print(os.waitpid(child, 0)[1])
        """),
            ["0"],
        )

    def test_daemon_threads_in_module_calls_at_the_end_do_not_change_the_exit(self):
        self.assertEqual(
            run("""
            import threading, torch, bridge
            bridge.install()
            class Spinning(torch.nn.Module):
                def forward(self, x):
                    started.set()
                    while True:
                        time.sleep(0.001)
            started = threading.Event()
            threading.Thread(target=Spinning(), args=(1,), daemon=True).start()
            started.wait()
            print("end")
        """),
            ["end"],
        )


if __name__ == "__main__":
    unittest.main()
