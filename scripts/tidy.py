#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the lines of C and C++ that changed, or on whole files.

  scripts/tidy.py [--base COMMIT] [--seconds N]    the lines that differ from COMMIT
  scripts/tidy.py [--seconds N] FILE...            all of these files

Without --base it compares with, in this order:
  1. the commit where this branch left its upstream or origin's main branch,
  2. HEAD, where files were changed and not committed,
  3. the commit before HEAD.
A shallow clone may have none of these. Then there is nothing to compare with, and that is said.

Reads build/release/compile_commands.json, so configure and build first (generated headers must exist).
After --seconds no further file is begun; the files that were left out are named. Exit status 1: findings.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATABASE = ROOT / "build" / "release" / "compile_commands.json"
SOURCES = (".cc", ".c")
HEADERS = (".h",)
# Whatever the user's git is set to.
PLAIN = ("--no-ext-diff", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")


def git(*arguments):
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip() if ran.returncode == 0 else None


def base_commit():
    """What to compare the working tree with; None where nothing is known."""
    head = git("rev-parse", "--verify", "-q", "HEAD")
    for upstream in ("@{upstream}", "origin/HEAD", "origin/main", "origin/master"):
        left = git("merge-base", "HEAD", upstream)
        if left and left != head:
            return left
    if head and git("status", "--porcelain", "--untracked-files=no"):
        return head
    return git("rev-parse", "--verify", "-q", "HEAD~1")


def changed_lines(base):
    """{path: [[first, last], ...]} of the lines that the working tree has and `base` has not."""
    changed, path = {}, None
    patterns = ["*" + ending for ending in SOURCES + HEADERS]
    for line in (git("diff", *PLAIN, "--find-renames", "--unified=0", "--diff-filter=d", base, "--", *patterns) or "").splitlines():
        if line.startswith("+++ "):
            path = line[len("+++ b/"):]
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(found[1]), int(found[2] or 1)
            if count:
                changed.setdefault(path, []).append([first, first + count - 1])
    for path in (git("ls-files", "--others", "--exclude-standard", "--", *patterns) or "").splitlines():
        changed[path] = [[1, 10**6]]
    return changed


def plain(command):
    """The command without the build's precompiled header: clang cannot read GCC's, and each file includes what it uses."""
    return re.sub(r" -Winvalid-pch| -fpch-preprocess| -include \S*/cmake_pch\.hxx", "", command)


def compile_commands():
    """{path: entry} of every source file. A unity build compiles batches that include the files; each file gets its batch's command."""
    commands = {}
    for entry in json.loads(DATABASE.read_text()):
        batch = pathlib.Path(entry["file"])
        included = [str(batch)]
        if batch.parent.name == "Unity":
            if not batch.exists():
                continue
            included = re.findall(r'^#include "(.*)"$', batch.read_text(), re.M)
        for source in included:
            path = os.path.relpath(source, ROOT)
            commands.setdefault(path, {"directory": entry["directory"], "file": source,
                                       "command": plain(entry["command"].replace(str(batch), source))})
    return commands


def source_for(header, commands):
    """A source file through which clang-tidy sees the header; None where no built file includes it."""
    own = str(pathlib.Path(header).with_suffix(".cc"))
    if own in commands:
        return own
    users = git("grep", "-l", "-F", f'#include "{header}"', "--", "*.cc", "*.c") or ""
    return next((path for path in users.splitlines() if path in commands), None)


def clang_tidy():
    for name in ("clang-tidy-14", "clang-tidy"):
        if shutil.which(name) and "version 14." in subprocess.run([name, "--version"], capture_output=True, text=True).stdout:
            return name
    sys.exit("tidy: clang-tidy 14 is missing: scripts/setup.sh --tests installs it on Debian 12")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("files", nargs="*")
    asked = parser.parse_args()
    begin = time.monotonic()
    program = clang_tidy()
    if not DATABASE.exists():
        sys.exit("tidy: there is no build/release/compile_commands.json: run `cmake --preset release` and build first")

    if asked.files:
        lines = {os.path.relpath(path, ROOT): None for path in asked.files}
        against = "whole files"
    else:
        base = asked.base and git("rev-parse", "--verify", "-q", asked.base + "^{commit}")
        if asked.base and not base:
            sys.exit(f"tidy: there is no commit {asked.base}")
        base = base or base_commit()
        if not base:
            print("tidy: this clone has no commit to compare with: clang-tidy checked nothing")
            return
        lines = changed_lines(base)
        against = "lines changed since " + base[:8]

    commands = compile_commands()
    work, unbuilt = {}, []  # source file -> the files it is read for
    for path in lines:
        source = path if path in commands else source_for(path, commands) if path.endswith(HEADERS) else None
        if source:
            work.setdefault(source, []).append(path)
        else:
            unbuilt.append(path)
    # Where time is short, the largest changes come first.
    order = sorted(work, key=lambda source: -sum(last - first + 1 for path in work[source] for first, last in lines[path] or []))
    print(f"tidy: clang-tidy on {len(order)} files, {against}", flush=True)
    if unbuilt:
        print("tidy: not in this build, so not checked: " + " ".join(sorted(unbuilt)))

    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps([commands[source] for source in order]))

        def run(source):
            if time.monotonic() - begin > asked.seconds:
                return None
            shown = [{"name": path, **({} if lines[path] is None else {"lines": lines[path]})} for path in work[source]]
            # The build's own warnings are GCC's; here they would only say that clang does not know one of them.
            ran = subprocess.run([program, "-p", folder, "--quiet", "--extra-arg=-w", f"--line-filter={json.dumps(shown)}", source],
                                 cwd=ROOT, capture_output=True, text=True)
            return ran.returncode, ran.stdout.strip() + ("\n" + ran.stderr.strip() if ran.returncode and not ran.stdout.strip() else "")

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(zip(order, pool.map(run, order)))

    failed = [source for source, result in results if result and result[0]]
    for source, result in results:
        if result and result[0]:
            print(result[1])
    if left := [source for source, result in results if result is None]:
        print(f"tidy: {len(left)} files were left out, because {asked.seconds:g} s were over: " + " ".join(left))
    if failed:
        sys.exit(f"tidy: findings in {len(failed)} files; again for one: scripts/tidy.py {failed[0]}")


if __name__ == "__main__":
    main()
