# SPDX-License-Identifier: Apache-2.0
"""Asks CUPTI's own headers which calls launch kernels, and libtorch_cuda.so which of them torch makes: shim/device/cupti.h has the ids of all.

usage: cupti_ids_test.py CUPTI_H SITE_PACKAGES INCLUDE...
Compared are all headers that are found: the toolkit's, and those of the wheels that torch depends on."""
import pathlib
import re
import subprocess
import sys
import unittest

CUPTI_H, SITE_PACKAGES, *INCLUDES = map(pathlib.Path, sys.argv[1:])
FOLDERS = [*INCLUDES, *SITE_PACKAGES.glob("nvidia/*/include")]


def ids_asked_for(kind):
    """Those of all arrays kCuptiRuntimeLaunches..., or kCuptiDriverLaunches...."""
    arrays = re.findall(rf"kCupti{kind}Launches\w*\[\] = {{([\d, ]+)}}", CUPTI_H.read_text())
    return {int(number) for array in arrays for number in array.split(",")}


def launches(header):
    """{name of a call that launches kernels: its ids}, with the form for per-thread default streams."""
    found = {}
    for name, number in re.findall(r"CUPTI_(?:RUNTIME|DRIVER)_TRACE_CBID_(\w*Launch\w*Kernel\w*?)\s*=\s*(\d+)", header.read_text()):
        found.setdefault(re.sub(r"(_ptsz)?(_v\d+)?$", "", name), set()).add(int(number))
    return found


def headers(kind):
    return [path for folder in FOLDERS if (path := folder / f"cupti_{kind}_cbid.h").is_file()]


class Ids(unittest.TestCase):
    def test_every_call_that_launches_kernels_is_asked_for(self):
        for kind, name in (("runtime", "Runtime"), ("driver", "Driver")):
            if not headers(kind):
                self.skipTest("no CUPTI header on this machine")
            for header in headers(kind):
                with self.subTest(header=header):
                    known = launches(header)
                    self.assertTrue(known)
                    self.assertEqual({call: sorted(ids - ids_asked_for(name)) for call, ids in known.items() if ids - ids_asked_for(name)}, {})

    def test_every_launch_that_torch_imports_has_an_id(self):
        libraries = list(SITE_PACKAGES.glob("torch/lib/libtorch_cuda*.so"))
        if not libraries or not headers("runtime"):
            self.skipTest("no libtorch_cuda.so, or no CUPTI header, on this machine")
        known = {}
        for header in headers("runtime"):
            known.update(launches(header))
        for library in libraries:
            with self.subTest(library=library.name):
                symbols = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
                imported = set(re.findall(r"\bU (\w*cuda\w*Launch\w*Kernel\w*)", symbols))
                for call in sorted(imported):
                    self.assertIn(re.sub("_ptsz$", "", call), known)
                    self.assertTrue(known[re.sub("_ptsz$", "", call)] & ids_asked_for("Runtime"), call)
                if library.name == "libtorch_cuda.so":
                    self.assertTrue(imported)


if __name__ == "__main__":
    program = unittest.main(argv=sys.argv[:1], verbosity=2, exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if len(program.result.skipped) == program.result.testsRun else 0)
