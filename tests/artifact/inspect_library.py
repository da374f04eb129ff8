# SPDX-License-Identifier: Apache-2.0
"""Compares a built library with what it is allowed to show and need. One question a run:

  inspect_library.py exports LIBRARY LIST       its exported symbols are those of LIST
  inspect_library.py needed LIBRARY LIST        its NEEDED libraries are those of LIST
  inspect_library.py versions LIBRARY NEWEST..  its version needs: GLIBC_2.17 allows GLIBC up to
                                                2.17, a family that is not named is not allowed,
                                                like:OTHER allows what the library OTHER needs
  inspect_library.py strings ARCHIVE            no function of it takes or gives a std::string, of
                                                which there are two in the world
  inspect_library.py hardening LIBRARY          stays mapped by dlclose, no executable stack, no
                                                text relocations, no search path

A LIST holds one name a line; `name ?` may be there or not; `#` begins a comment. Exit status 0 or
1, differences on stdout. Reads the library with readelf (binutils).
"""

import os
import re
import subprocess
import sys


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True,
                          text=True).stdout


def read_list(path):
    required, optional = set(), set()
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                (optional if words[1:] == ["?"] else required).add(words[0])
    return required, optional


def exported_symbols(library):
    symbols = set()
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        is_symbol = len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK", "UNIQUE")
        if is_symbol and fields[6] not in ("UND", "ABS"):
            symbols.add(fields[7])
    return symbols


def needed_libraries(library):
    return set(re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", readelf("-d", library)))


def version_needs(library):
    """Names such as GLIBC_2.17 in .gnu.version_r."""
    needs = readelf("-V", library).partition("Version needs section")[2]
    return set(re.findall(r"Name: (\S+)\s+Flags:", needs))


def split_version(name):
    """("GLIBC", (2, 17)); a name without a number has the number ()."""
    family, _, number = name.rpartition("_")
    if not re.fullmatch(r"[\d.]+", number):
        return name, ()
    return family, tuple(int(part) for part in number.split("."))


def compare_with_list(what, found, path):
    required, optional = read_list(path)
    surplus, missing = sorted(found - required - optional), sorted(required - found)
    return ([f"{what} that {path} does not list: {name}" for name in surplus] +
            [f"{what} listed in {path} and not there: {name}" for name in missing])


def newest_allowed(limits):
    """Family -> newest number, from GLIBC_2.17 and like:LIBRARY."""
    newest = {}
    for limit in limits:
        names = version_needs(limit[len("like:"):]) if limit.startswith("like:") else [limit]
        for family, number in map(split_version, names):
            newest[family] = max(newest.get(family, ()), number)
        if limit.startswith("like:") and not names:
            sys.exit(f"{limit[len('like:'):]} has no version needs to compare with")
    # A limit that is named outright holds, whatever the library to compare with needs.
    newest.update(split_version(limit) for limit in limits if not limit.startswith("like:"))
    return newest


def check_versions(library, limits):
    newest = newest_allowed(limits)
    problems = []
    for name in sorted(version_needs(library)):
        family, number = split_version(name)
        if family not in newest:
            problems.append(f"needs {name}, and nothing of {family} is allowed")
        elif number > newest[family]:
            allowed = ".".join(map(str, newest[family]))
            users = ", ".join(users_of(library, name))
            problems.append(f"needs {name}, newer than {family}_{allowed}, for: {users}")
    return problems


def users_of(library, version):
    """The symbols that bring a version need in."""
    pattern = rf"\s(\S+)@{re.escape(version)}(?:\s|$)"
    return sorted(set(re.findall(pattern, readelf("--dyn-syms", library)))) or ["?"]


def check_strings(archive):
    """Inline functions are compiled by their callers, with the callers' strings."""
    problems = []
    for line in readelf("--symbols", archive).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[4] == "GLOBAL" and fields[6] != "UND" and "cxx11" in fields[7]:
            problems.append(f"has a std::string in {fields[7]}")
    return problems


def check_hardening(library):
    dynamic, headers = readelf("-d", library), readelf("-l", library)
    problems = []
    if "NODELETE" not in dynamic:
        problems.append("may be unmapped by dlclose: link with -z nodelete")
    if "TEXTREL" in dynamic:
        problems.append("has text relocations")
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        problems.append("carries a search path of the machine that built it")
    if re.search(r"GNU_STACK\s.*\sRWE\s", headers):
        problems.append("asks for an executable stack")
    return problems


def main(arguments):
    question, library, *rest = arguments
    if not os.path.exists(library):
        sys.exit(f"{library} is not built")
    problems = {
        "exports": lambda: compare_with_list("a symbol", exported_symbols(library), rest[0]),
        "needed": lambda: compare_with_list("a library", needed_libraries(library), rest[0]),
        "versions": lambda: check_versions(library, rest),
        "strings": lambda: check_strings(library),
        "hardening": lambda: check_hardening(library),
    }[question]()
    for problem in problems:
        print(f"{library}: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
