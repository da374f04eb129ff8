#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the manual pages from what the programs say with --help, so that these two cannot differ.

    man_pages.py --bin DIR --version VERSION --out DIR"""
import argparse
import gzip
import pathlib
import re
import subprocess


def help_of(*words):
    return subprocess.run([*words, "--help"], capture_output=True, text=True, check=True).stdout


def escaped(line):
    """The line as roff prints it."""
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line.startswith((".", "'")) else line


LISTS = ("Options", "Positionals", "Subcommands")


def is_title(line):
    """ "Exit status: 0 ..." begins a section; a sentence with a colon in it does not."""
    return re.match(r"([A-Z][a-z]+(?: [a-z]+)?)(?:, all optional)?:(.*)", line)


def sections(text):
    """What --help prints: its first sentence, the usage, and (title, lines) of each section."""
    lines = text.strip("\n").splitlines()
    usage, found = "", [("Description", [])]
    for line in lines[1:]:
        title = is_title(line)
        if line.startswith("Usage: "):
            program, *rest = line.removeprefix("Usage: ").split(" ", 1)
            usage = " ".join([pathlib.PurePath(program).name, *rest])
        elif found[-1][0] in LISTS and line[:1].strip() and not title:
            found.append(("Notes", [line]))
        elif title:
            found.append((title[1], [title[2].strip()] if title[2].strip() else []))
        else:
            found[-1][1].append(line)
    # A daemon's first sentence begins with its name.
    return lines[0].split(": ", 1)[-1], usage, [(title, body) for title, body in found if any(line.strip() for line in body)]


def option_list(lines):
    """Names at the left, what they do at the right or, where there is no room, in the next line."""
    for line in lines:
        entry = re.match(r"  (\S.*?)(?:  +(.*))?$", line)
        if entry and not line.startswith("   "):
            yield from (".TP", ".B " + escaped(entry[1]), *([escaped(entry[2])] if entry[2] else []))
        elif line.strip():
            yield escaped(line.strip())


def prose(lines):
    """Sentences begin at the left and fill the width of the terminal. What is indented below them goes on with them, but not
    below a colon: there, and elsewhere, it is an example or a table, and stays as it is."""
    before = ""
    goes_on = False
    for line in lines:
        begins = bool(line[:1].strip())
        if begins and not before[:1].strip():
            yield ".PP"
        if begins or goes_on and line.strip():
            yield escaped(line.strip())
            goes_on = not line.rstrip().endswith(":")
        else:
            goes_on = False
            if line.strip():
                yield from (".nf", escaped(line), ".fi")
        before = line


def page(program, text, version):
    summary, usage, found = sections(text)
    # Neither hyphens nor blanks in names that people copy.
    lines = [f'.TH "{program.upper()}" 1 "" "nanwatch {version}" "User Commands"', ".nh", ".ad l", ".SH NAME", f"{program} \\- {escaped(summary.strip().rstrip('.'))}",
             ".SH SYNOPSIS", ".nf", escaped(usage or program), ".fi"]
    for title, body in found:
        lines.append(f".SH {title.upper()}")
        if title in LISTS:
            lines += option_list(body)
        else:
            lines += prose(body)
    if program != "nanwatch":
        lines += [".SH SEE ALSO", ".BR nanwatch (1)"]
    return "\n".join(lines) + "\n"


def write(folder, program, text, version):
    # Without a date in it, so that the same input gives the same file.
    (folder / f"{program}.1.gz").write_bytes(gzip.compress(page(program, text, version).encode(), mtime=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    tool = arguments.bin / "nanwatch"
    text = help_of(tool)
    write(arguments.out, "nanwatch", text, arguments.version)
    listed = text.split("Subcommands:\n", 1)[1].split("\n\n", 1)[0]
    for verb in re.findall(r"^  (\S+)", listed, re.MULTILINE):
        write(arguments.out, f"nanwatch-{verb}", help_of(tool, verb), arguments.version)
    write(arguments.out, "nanwatchd", help_of(arguments.bin / "nanwatchd"), arguments.version)


if __name__ == "__main__":
    main()
