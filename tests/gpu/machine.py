# SPDX-License-Identifier: Apache-2.0
"""machine.py FILE: writes what this machine is, as JSON. What cannot be asked is left out, and why stands in its place."""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def by_torch():
    import torch
    gpu = torch.cuda.get_device_properties(0)
    return {"gpu": gpu.name, "gpu_memory_bytes": gpu.total_memory, "multiprocessors": gpu.multi_processor_count,
            "compute_capability": f"{gpu.major}.{gpu.minor}", "torch": torch.__version__, "cuda": torch.version.cuda}


def without_torch():
    """What does not need the GPU, and cannot hang with it: nvidia-smi is given up after a while."""
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    name, _, driver = first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).partition(", ")
    return {"gpu": name or "unknown GPU", "driver": driver, "cpu": cpu.group(1) if cpu else "", "cores": os.cpu_count(), "linux": platform.release(),
            "python": platform.python_version()}


def main():
    path = pathlib.Path(sys.argv[1])
    described = without_torch()
    path.write_text(json.dumps(described))  # in case the rest hangs
    try:
        described |= by_torch()
    except Exception as error:  # Whatever ails the GPU, there is a result file.
        described["torch_could_not_say"] = f"{type(error).__name__}: {error}"[:300]
    path.write_text(json.dumps(described))


if __name__ == "__main__":
    main()
