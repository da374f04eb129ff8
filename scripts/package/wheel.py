#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel: the Python package of python/, with an installed prefix inside it.

    wheel.py --prefix PREFIX --version VERSION --out DIR

The format is that of https://packaging.python.org/en/latest/specifications/binary-distribution-format/. The tag names the
oldest glibc on which everything in it loads."""
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
# The oldest that pip knows by number; torch's own wheels ask for 2.28.
OLDEST_GLIBC = (2, 17)

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


def newest_glibc(file):
    """The newest GLIBC_x.y that the file asks for; None for one that is not dynamically linked."""
    text = subprocess.run(["objdump", "--private-headers", file], capture_output=True, text=True, check=True).stdout
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"\bGLIBC_(\d+\.\d+)\b", text)]
    return max(versions, default=None)


def is_elf(file):
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def platform_tag(files):
    needed = [newest_glibc(file) for file in files if is_elf(file)]
    newest = max([OLDEST_GLIBC, *filter(None, needed)])
    return "manylinux_{}_{}_{}".format(*newest, platform.machine())


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
