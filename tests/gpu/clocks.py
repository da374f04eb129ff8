# SPDX-License-Identifier: Apache-2.0
"""The clock of the GPU's multiprocessors: an idle GPU turns it down to a fifth (345 MHz, for 1980), and takes a while to turn it up."""
import ctypes
import functools
import subprocess
import time

WARM_S, WARM_AGAIN_S = 0.5, 0.05
QUEUED, QUEUED_AGAIN = 500, 20  # multiplications: about 0.7 s, and 30 ms, of an H200
NVML_CLOCK_SM = 1
ANSWER_S = 10  # nvidia-smi may take its time where its daemon does not run


@functools.cache
def nvml():
    """The library that nvidia-smi asks, with its handle of the first GPU: it answers in microseconds, where nvidia-smi may take a second. None
    where it is not to be had."""
    try:
        library, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        if library.nvmlInit_v2() != 0 or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) != 0:
            return None
        return library, handle
    except (OSError, AttributeError):
        return None


def sm_clock_mhz():
    """None where neither of the two says."""
    clock = ctypes.c_uint()
    if nvml() is not None and nvml()[0].nvmlDeviceGetClockInfo(nvml()[1], NVML_CLOCK_SM, ctypes.byref(clock)) == 0:
        return clock.value
    try:
        told = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=ANSWER_S, check=True).stdout
        return int(told.split()[0])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def multiply(seconds, queued):
    """Keeps the current GPU busy for so long, and leaves it so many multiplications of work."""
    import torch  # which every file of questions would wait for otherwise, also to list them
    values = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        for _ in range(20):
            values @ values
        torch.cuda.synchronize()
    for _ in range(queued):
        values @ values


def warmed_up():
    """The clock under load; the GPU has just been under it when this returns."""
    import torch
    if not torch.cuda.is_available():
        return None
    multiply(WARM_S, QUEUED)
    clock = sm_clock_mhz()
    torch.cuda.synchronize()
    return clock


def warmed_again():
    """The same in less, for one row of several: it was warm before it allocated. Some of the work is still queued when this returns."""
    if nvml() is None:
        multiply(WARM_AGAIN_S, 0)
        return None  # nvidia-smi takes longer than what is queued
    multiply(WARM_AGAIN_S, QUEUED_AGAIN)
    return sm_clock_mhz()
