# SPDX-License-Identifier: Apache-2.0
"""Includes of the observer go one way: a file includes its own folder, and folders that know less (shim/observe/CMakeLists.txt).

    include_direction.py            every include that goes the other way; exit status 1 if one of them is not in KNOWN
    include_direction.py --table    how many there are, from folder to folder

KNOWN holds those that are still to be taken out. One that is gone must leave the list, so it only gets shorter.
"""
import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBSERVER = ROOT / "shim/observe"
KNOWN = pathlib.Path(__file__).resolve().parent / "include_direction.known"
LIST = re.compile(r"set\(NANWATCH_OBSERVER_FOLDERS\s+(.*?)\)", re.DOTALL)
# What is in no folder puts the others together.
ORDER = LIST.search((OBSERVER / "CMakeLists.txt").read_text())[1].split() + [""]
RANK = {folder: rank for rank, folder in enumerate(ORDER)}
INCLUDE = re.compile(r'^#include "shim/observe/(?:(.*)/)?([^/]+)\.h"', re.MULTILINE)


def upward_includes():
    """(the file that includes, the header) of every include that goes up, or to the side."""
    for file in sorted(OBSERVER.rglob("*")):
        if file.suffix not in (".h", ".cc", ".cu"):
            continue
        own = "" if file.parent == OBSERVER else file.parent.relative_to(OBSERVER).as_posix()
        if own not in RANK:
            yield str(file.relative_to(OBSERVER)), "is in a folder without a place in the order"
            continue
        for folder, name in INCLUDE.findall(file.read_text()):
            if folder != own and (folder not in RANK or RANK[folder] >= RANK[own]):
                yield str(file.relative_to(OBSERVER)), f"{folder}/{name}.h".lstrip("/")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--write", action="store_true", help="write the list of KNOWN anew, where it got shorter")
    arguments = parser.parse_args()
    found = sorted(set(upward_includes()))
    if arguments.table:
        pairs = collections.Counter((str(pathlib.Path(file).parent), str(pathlib.Path(header).parent)) for file, header in found)
        for (source, target), count in sorted(pairs.items()):
            print(f"{count:4} {source} -> {target}")
        return 0
    known = {tuple(line.split(" -> ")) for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")}
    new, gone = [pair for pair in found if pair not in known], sorted(known - set(found))
    if arguments.write:
        if new and known:
            sys.exit("refused: the list may only get shorter")
        KNOWN.write_text("# Includes that still go up. include_direction.py --write takes out the ones that are gone.\n"
                         + "".join(f"{file} -> {header}\n" for file, header in found))
        return 0
    for file, header in new:
        print(f"shim/observe/{file} includes {header}, which knows more than it does (order: shim/observe/CMakeLists.txt)")
    for file, header in gone:
        print(f"{file} -> {header} is gone: take it out of {KNOWN.name} (include_direction.py --write)")
    print(f"{len(found)} includes go up, {len(new)} of them new")
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main())
