# SPDX-License-Identifier: Apache-2.0
"""ptxas_test.py PTX ARCHITECTURE...: what NVIDIA's assembler makes of the check kernels, for each architecture (such as sm_90).

No register is spilled, two blocks of 512 threads fit a multiprocessor (64 registers a thread), and the fast pass reads 16 bytes at a
time, eight loads before the first use, or four where it sums. Status 77 where there is no ptxas. NANWATCH_PTXAS names another one.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

KERNELS = {"nanwatch_check_few", "nanwatch_check_many", "nanwatch_check_list", "nanwatch_sum_list", "nanwatch_measure_list",
           "nanwatch_compare_list", "nanwatch_check_batch", "nanwatch_add_step"}
REGISTERS_MAX = 64
LOADS_IN_FLIGHT = {"nanwatch_check_few": 8, "nanwatch_check_many": 8, "nanwatch_check_list": 8, "nanwatch_check_batch": 8,
                   "nanwatch_sum_list": 4, "nanwatch_measure_list": 4}


def find_ptxas():
    named = os.environ.get("NANWATCH_PTXAS")
    return named or shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")


def assemble(ptxas, ptx, architecture):
    """ptxas -v: kernel -> (registers, bytes spilled)."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run([ptxas, "-v", f"-arch={architecture}", ptx, "-o", f"{folder}/kernel.cubin"],
                             capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"ptxas refuses the text for {architecture}:\n{ran.stderr}")
    seen = {}
    for part in ran.stderr.split("Compiling entry function")[1:]:
        name = re.search(r"'(\w+)'", part).group(1)
        spilled = sum(int(count) for count in re.findall(r"(\d+) bytes spill", part))
        seen[name] = int(re.search(r"Used (\d+) registers", part).group(1)), spilled
    return seen


def longest_run_of_vector_loads(text):
    """How many 16-byte loads stand before anything that uses what one of them read, at most."""
    longest, pending = 0, []
    for line in text.splitlines():
        load = re.search(r"ld\.global\.v4\.u32\s+\{(.*?)\}", line)
        if load:
            pending.append(set(load.group(1).replace(" ", "").split(",")))
            longest = max(longest, len(pending))
        elif line.strip().endswith(":") or set(re.findall(r"%r\d+", line)) & set().union(*pending):
            pending = []
    return longest


def main():
    ptx, *architectures = sys.argv[1:]
    text = pathlib.Path(ptx).read_text()
    for kernel in text.split(".visible .entry ")[1:]:
        name = kernel.split("(")[0]
        loads = longest_run_of_vector_loads(kernel)
        if loads < LOADS_IN_FLIGHT.get(name, 0):
            sys.exit(f"only {loads} loads of 16 bytes are in flight: {name}")
    if ".local" in text:
        sys.exit("the text asks for memory of each thread's own")

    ptxas = find_ptxas()
    if ptxas is None:
        print("SKIPPED: there is no ptxas here; registers and spills were not looked at")
        sys.exit(77)
    for architecture in architectures:
        seen = assemble(ptxas, ptx, architecture)
        if set(seen) != KERNELS:
            sys.exit(f"{architecture}: the kernels are {sorted(seen)}")
        for name, (registers, spilled) in seen.items():
            print(f"{architecture} {name}: {registers} registers, {spilled} bytes spilled")
            if spilled or registers > REGISTERS_MAX:
                sys.exit(f"{architecture} {name}: too many registers")


main()
