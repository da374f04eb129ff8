# SPDX-License-Identifier: Apache-2.0
"""What the questions need besides Python and torch, put together in one prefix: packed parts where they work, else what is built here."""
import hashlib
import os
import pathlib
import re
import shutil
import time

import limited

BUILD_S_MAX = 240
SHORT_S_MAX = 60
CUBIN = "check_kernel.sm_90.cubin"  # driver.py takes it where the driver has no compiler
PTX = pathlib.Path("shim/device/check_kernel.ptx")
IN_TORCH = 'import sys; sys.path.insert(0, "tests/bench/overhead"); import observer_switch; observer_switch.observer_path()'


def why_in(log):
    """What a log says of why: its first error, else its last line."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    errors = [line for line in lines if re.search(r"error:|Error at|Error:", line)]
    return (errors or lines[-1:] or ["it said nothing"])[0].replace(f"{os.getcwd()}/", "").replace("\t", " ")[:300]


class Parts:
    """`left` says how many seconds the session has; no part takes more than half of them."""

    def __init__(self, packed, work, python, segments, left):
        self.packed, self.work, self.python, self.segments, self._left = packed, work, python, segments, left
        self.prefix = work / "prefix"
        self.nanwatch, self.preload, self.grid_for = self.prefix / "bin/nanwatch", self.prefix / "lib/libnanwatch.so", work / "libgrid_for.so"

    def put_together(self):
        shutil.rmtree(self.prefix, ignore_errors=True)
        for folder in ("bin", "lib/nanwatch"):
            (self.prefix / folder).mkdir(parents=True)
        self._note_commit()
        self._compare_kernels()
        self._take_cubin()
        self._make_grid_for()
        self._take_tools()
        self._take_observer()

    def _say(self, name, state, words=""):
        """One line for people, and one for the result."""
        print(f"part {name}: {state}" + (f": {words}" if words else ""), flush=True)
        with open(self.work / "parts.tsv", "a") as file:
            file.write(f"{name}\t{state}\t{words}\n")

    def _run(self, command, log, seconds_max=SHORT_S_MAX, **environment):
        return limited.run(command, max(1, min(seconds_max, self._left() / 2)), self.work / log, env={**os.environ, **environment})

    def _note_commit(self):
        if (self.packed / "commit").exists():
            shutil.copy(self.packed / "commit", self.work)

    def _compare_kernels(self):
        """The observer has the kernels of where it was packed in it, and the questions about the kernels ask those of this tree."""
        packed = self.packed / "check_kernel.sha256"
        self._kernels_are_the_same = False
        if packed.exists():
            same = packed.read_text().strip() == hashlib.sha256(PTX.read_bytes()).hexdigest()
            self._kernels_are_the_same = same
            self._say("kernels", *(("same",) if same else ("differ", f"{PTX} of this tree is not what the parts were packed with: pack them anew")))

    def _take_cubin(self):
        """Beside the library of grid_for.cc; of other kernels than this tree's it is left where it is."""
        (self.work / CUBIN).unlink(missing_ok=True)
        if (self.packed / "lib" / CUBIN).exists() and self._kernels_are_the_same:
            shutil.copy(self.packed / "lib" / CUBIN, self.work)

    def _make_grid_for(self):
        if (self.packed / "lib/libgrid_for.so").exists():
            shutil.copy(self.packed / "lib/libgrid_for.so", self.grid_for)
            self._say("grid_for", "taken", "from the packed parts")
        elif self._run([os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-I.", "tests/gpu/grid_for.cc",
                        "-o", self.grid_for], "grid_for.log") == 0:
            self._say("grid_for", "built", "tests/gpu/grid_for.cc")
        else:
            self._say("grid_for", "missing", f"it did not compile: {why_in(self.work / 'grid_for.log')}")

    def _take_tools(self):
        for source, name in ((self.packed, "the packed parts"), (pathlib.Path("build/release"), "build/release")):
            files = {source / "bin/nanwatch": self.nanwatch, source / "bin/nanwatchd": self.prefix / "bin/nanwatchd", source / "lib/libnanwatch.so": self.preload}
            if not all(path.exists() for path in files):
                continue
            for path, place in files.items():
                shutil.copy(path, place)
            if self._run([self.nanwatch, "--version"], "tools.log") == 0:
                self._say("tools", "taken", f"from {name}, {(self.work / 'tools.log').read_text().splitlines()[0]}")
                return
            for place in files.values():
                place.unlink()
            self._say("tools", "useless", f"those of {name} do not run here: {why_in(self.work / 'tools.log')}")
        self._say("tools", "missing", "neither --parts nor build/release has them: pack them elsewhere with --pack")

    def _take_observer(self):
        """The packed one where torch takes it: building takes minutes that the questions lack."""
        packed = sorted((self.packed / "lib/nanwatch").glob("*.so"))
        for path in packed:
            shutil.copy(path, self.prefix / "lib/nanwatch")
        if packed:
            self._say("observer", "taken", "the packed one, built elsewhere")
            if not self.preload.exists() or self._works():
                return
        began = time.monotonic()
        if self.build_observer(self.prefix, BUILD_S_MAX) == 0:
            self._say("observer", "built", f"in {time.monotonic() - began:.0f} s")
        else:
            self._say("observer", "not_built", f"{why_in(self.work / 'observer.log')} (all of it: {self.work / 'observer.log'})")
        if self.preload.exists():
            self._works()

    def build_observer(self, prefix, seconds_max):
        include = os.pathsep.join([str((self.packed / "include").resolve()), *filter(None, [os.environ.get("CPATH")])])
        return self._run(["scripts/build-observer.sh", "--python", self.python, "--prefix", prefix, "--no-setup"], "observer.log", seconds_max,
                         CPATH=include, CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count() or 2))

    def _works(self):
        """Whether the observer starts in a process with torch."""
        (self.work / "prove.log").unlink(missing_ok=True)
        works = self._run([self.python, "-c", IN_TORCH], "prove.log", NANWATCH_DIR=str(self.segments), LD_PRELOAD=str(self.preload.resolve())) == 0
        self._say("observer_in_torch", "works" if works else "fails", "" if works else why_in(self.work / "prove.log"))
        return works
