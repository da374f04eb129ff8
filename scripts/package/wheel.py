#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel: the Python package of python/, with an installed prefix inside it.

    wheel.py --prefix PREFIX --version VERSION --out DIR

The format is that of https://packaging.python.org/en/latest/specifications/binary-distribution-format/. The tag names the
oldest glibc on whose systems everything in it loads, as `auditwheel show` finds it."""
import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
# The newest versions of symbols in each manylinux tag, as auditwheel 6.8 has them for x86_64: a host with that glibc has a
# libstdc++ and a libgcc_s of its time. torch's own wheels ask for 2.28.
TAGS = (
    #  glibc    GLIBCXX       CXXABI        GCC
    ((2, 17), (3, 4, 19), (1, 3, 7), (4, 8, 0)),
    ((2, 24), (3, 4, 22), (1, 3, 10), (4, 8, 0)),
    ((2, 26), (3, 4, 22), (1, 3, 10), (4, 8, 0)),
    ((2, 27), (3, 4, 24), (1, 3, 11), (7, 0, 0)),
    ((2, 28), (3, 4, 24), (1, 3, 11), (7, 0, 0)),
    ((2, 31), (3, 4, 28), (1, 3, 12), (7, 0, 0)),
    ((2, 34), (3, 4, 29), (1, 3, 13), (7, 0, 0)),
    ((2, 35), (3, 4, 30), (1, 3, 13), (12, 0, 0)),
    ((2, 36), (3, 4, 30), (1, 3, 13), (12, 0, 0)),
    ((2, 38), (3, 4, 30), (1, 3, 13), (12, 0, 0)),
    ((2, 39), (3, 4, 33), (1, 3, 15), (14, 0, 0)),
    ((2, 40), (3, 4, 33), (1, 3, 15), (14, 0, 0)),
    ((2, 41), (3, 4, 33), (1, 3, 15), (14, 0, 0)),
)
SYMBOLS = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")

METADATA = """\
Metadata-Version: 2.1
Name: nanwatch
Version: {version}
Summary: Names the op, layer, step and rank that first made a NaN or Inf in an unmodified PyTorch job
License: Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/markdown
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux

    nanwatch run -- python train.py

runs the job as it is, and says at its end which op made the first NaN or Inf that mattered, in which layer and step,
why, and what to do. `nanwatch --help` lists the other commands.
"""

ENTRY_POINTS = """\
[console_scripts]
nanwatch = nanwatch.__main__:nanwatch
nanwatchd = nanwatch.__main__:nanwatchd
"""


def versions_of(file):
    """The versions of symbols that the file asks for, as (library's name of them, numbers)."""
    text = subprocess.run(["objdump", "--private-headers", file], capture_output=True, text=True, check=True).stdout
    found = re.findall(rf"\b({'|'.join(SYMBOLS)})_(\d+(?:\.\d+)+)\b", text)
    return [(name, tuple(map(int, numbers.split(".")))) for name, numbers in found]


def is_elf(file):
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def oldest_glibc(needed):
    """The oldest glibc whose hosts have all of these versions."""
    for tag in TAGS:
        if all(numbers <= tag[SYMBOLS.index(name)] for name, numbers in needed):
            return tag[0]
    sys.exit("wheel: its programs ask for more than the newest tag in the table TAGS allows: add newer tags there")


def platform_tag(files):
    needed = [version for file in files if is_elf(file) for version in versions_of(file)]
    return "manylinux_{}_{}_{}".format(*oldest_glibc(needed), platform.machine())


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Wheel:
    def __init__(self, path, info):
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.info = info
        self.record = []

    def add(self, name, data, mode=0o644):
        # A date of its own, so that the same input gives the same file.
        entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(entry, data)
        self.record.append(f"{name},{digest(data)},{len(data)}")

    def close(self):
        name = f"{self.info}/RECORD"
        self.archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), "\n".join([*self.record, f"{name},,"]) + "\n")
        self.archive.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    installed = sorted(path for path in arguments.prefix.rglob("*") if path.is_file())
    tag = f"py3-none-{platform_tag(installed)}"
    info = f"nanwatch-{arguments.version}.dist-info"
    path = arguments.out / f"nanwatch-{arguments.version}-{tag}.whl"
    partial = path.with_suffix(".partial")
    wheel = Wheel(partial, info)
    for source in sorted((HERE / "python").rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            wheel.add(str(source.relative_to(HERE / "python")), source.read_bytes())
    for source in installed:
        wheel.add(f"nanwatch/prefix/{source.relative_to(arguments.prefix)}", source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
    wheel.add(f"{info}/METADATA", METADATA.format(version=arguments.version).encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: nanwatch\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    wheel.add(f"{info}/entry_points.txt", ENTRY_POINTS.encode())
    wheel.add(f"{info}/LICENSE", (HERE.parent.parent / "LICENSE").read_bytes())
    wheel.close()
    partial.replace(path)
    print(f"package: {path} ({path.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    sys.exit(main())
