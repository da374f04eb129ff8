"""The clock of the GPU's multiprocessors: an idle GPU turns it down to a fifth (345 MHz, for 1980), and takes a while to turn it up."""
import subprocess
import time

import torch

WARM_S = 0.5
ANSWER_S = 10  # nvidia-smi may take its time where its daemon does not run


def sm_clock_mhz():
    """None where nvidia-smi does not say."""
    try:
        told = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=ANSWER_S, check=True).stdout
        return int(told.split()[0])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def multiply(seconds):
    """Keeps the current GPU busy for so long, and leaves it some work."""
    values = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        for _ in range(20):
            values @ values
        torch.cuda.synchronize()
    for _ in range(500):  # about 0.7 s of an H200
        values @ values


def warmed_up():
    """The clock under load; the GPU has just been under it when this returns."""
    if not torch.cuda.is_available():
        return None
    multiply(WARM_S)
    clock = sm_clock_mhz()
    torch.cuda.synchronize()
    return clock
