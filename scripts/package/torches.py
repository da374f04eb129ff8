#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gets what an observer is compiled against, for each minor version of torch.

    torches.py --into DIR [--without MINOR]... [VERSION]...

For each VERSION (default: the newest of each minor version from 2.6 on, of those that pip finds, but for MINOR) DIR/VERSION
becomes a virtual environment with torch's headers and two of its libraries: half a gigabyte, without CUDA. Prints its
Python's path, a line for each. What is there already is kept.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile

OLDEST = (2, 6)
WANTED = re.compile(r"torch/(include/.*|share/cmake/.*|version\.py|lib/libtorch_cpu\.so|lib/libc10\.so)")


def newest_of_each_minor():
    found = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "torch"], check=True, capture_output=True, text=True).stdout
    listed = re.search(r"Available versions: (.*)", found)[1]
    newest = {}
    for version in re.findall(r"\d+\.\d+\.\d+(?=,|$)", listed):
        number = tuple(map(int, version.split(".")))
        newest[number[:2]] = max(newest.get(number[:2], number), number)
    return [".".join(map(str, number)) for minor, number in sorted(newest.items()) if minor >= OLDEST]


def get(version, folder):
    with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", downloads,
                        f"torch=={version}"], check=True)
        # The name says that it is whole.
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        venv.create(partial, symlinks=True)
        packages = next(partial.glob("lib/python*/site-packages"))
        with zipfile.ZipFile(next(pathlib.Path(downloads).glob("torch-*.whl"))) as wheel:
            wheel.extractall(packages, [name for name in wheel.namelist() if WANTED.fullmatch(name)])
        partial.rename(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--without", metavar="MINOR", action="append", default=[])
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    newest = [] if options.versions else [version for version in newest_of_each_minor() if version.rpartition(".")[0] not in options.without]
    for version in options.versions or newest:
        folder = options.into.resolve() / version
        if not folder.exists():
            print(f"package: getting torch {version}", file=sys.stderr)
            get(version, folder)
        print(folder / "bin/python", flush=True)


if __name__ == "__main__":
    main()
