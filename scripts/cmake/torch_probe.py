# SPDX-License-Identifier: Apache-2.0
"""Prints, separated by semicolons: torch's folder, its version without the local part, and 1 for the new std::string ABI.

Reads files and does not import torch, which would take seconds at every configure.
"""
import importlib.util
import pathlib
import re
import sys

spec = importlib.util.find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    sys.exit(f"{sys.executable} has no torch")
folder = pathlib.Path(list(spec.submodule_search_locations)[0])
version = re.search(r"__version__ = '([0-9.]+)", (folder / "version.py").read_text()).group(1)
# A libtorch of the old ABI has no exported name of at:: that takes a std::__cxx11 string.
library = (folder / "lib" / "libtorch_cpu.so").read_bytes()
new_string_abi = library.find(b"torchInternalAssertFailEPKcS2_jS2_RKNSt7__cxx11") >= 0 or (
    (folder / "lib" / "libc10.so").read_bytes().find(
        b"torchInternalAssertFailEPKcS2_jS2_RKNSt7__cxx11") >= 0)
print(folder, version, int(new_string_abi), sep=";")
