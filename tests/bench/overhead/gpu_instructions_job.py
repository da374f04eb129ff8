# SPDX-License-Identifier: Apache-2.0
"""The counted program of gpu_instructions.py: small ops on the fake device, under callgrind, at every level.

Usage: gpu_instructions_job.py SWITCH_LIBRARY LEVEL,LEVEL...
"""
import ctypes
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from observer_switch import CANARY, FULL, SAMPLED, ObserverSwitch  # noqa: E402

REPEATS = 320  # whole batches
WARM_UP = 64
PARAMETERS = 148  # as many as GPT-2 has
STEPS, STEPS_BEFORE = 8, 4
MODES = {"canary": CANARY, "sampled": SAMPLED, "full": FULL}


def run_all(driver, function, repeats):
    """The device answers as it would beside the host: soon."""
    for i in range(repeats):
        function()
        if i % 16 == 15:
            driver.fake_cuda_run_all()


def training():
    """A step of a training with many small parameters."""
    parameters = [torch.ones(16, device="cuda", requires_grad=True) for _ in range(PARAMETERS)]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step():
        optimizer.zero_grad()
        torch.stack(parameters).square().mean().backward()
        optimizer.step()
    return step


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.callgrind_end.argtypes = [ctypes.c_char_p]
    if not library.under_valgrind():
        sys.exit("this program is run by gpu_instructions.py, under valgrind")
    driver = ctypes.CDLL("libcuda.so.1")
    torch.set_num_threads(1)
    switch = ObserverSwitch()
    x = torch.ones(16, device="cuda")
    weight = torch.ones(16, device="cuda", requires_grad=True)
    cases = {"mul": lambda: torch.mul(x, x), "mul_with_gradient": lambda: torch.mul(x, weight)}
    step = training()
    switch.set(FULL)
    run_all(driver, cases["mul"], WARM_UP)  # the device is set up
    for name, function in cases.items():
        for mode_name in sys.argv[2].split(","):
            switch.set(MODES[mode_name])
            run_all(driver, function, WARM_UP)
            library.callgrind_begin()
            run_all(driver, function, REPEATS)
            library.callgrind_end(f"{name} {mode_name} {REPEATS}".encode())
    switch.set(CANARY)
    for _ in range(STEPS_BEFORE):
        step()
    library.callgrind_begin()
    run_all(driver, step, STEPS)
    library.callgrind_end(f"step_of_{PARAMETERS}_parameters canary {STEPS}".encode())
    print("counted", flush=True)


main()
