#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""failures.py BUILD: why the tests of the last ctest run in this build tree failed, a few lines each.

The output of a test that failed may be long, and a log that keeps only the end of everything loses it. So scripts/test.sh ends with
what names the cause: of Python's tests the names and errors, of GoogleTest's the failed expectations, of others the last lines.
"""
import pathlib
import re
import sys

LINES_MAX = 14  # of one test
WIDTH = 240
CAUSES = re.compile(r"^(FAIL|ERROR): |^\w*(Error|Exception)\b|: Failure$|^\[  FAILED  \]|^ +Actual: |^ +Which is: |^Expected |\bwrong\b|: error: ")


def outputs(log):
    """Name and output of each test."""
    for part in re.split(r"^(?=\d+/\d+ Testing: )", log, flags=re.MULTILINE)[1:]:
        name = re.match(r"\d+/\d+ Testing: (.*)\n", part).group(1)
        yield name, part.partition("Output:\n")[2].partition("<end of output>")[0]


def main(build):
    folder = pathlib.Path(build) / "Testing/Temporary"
    failed = {line.partition(":")[2] for line in (folder / "LastTestsFailed.log").read_text().splitlines()}
    for name, output in outputs((folder / "LastTest.log").read_text(errors="replace")):
        if name not in failed:
            continue
        lines = [line for line in output.splitlines() if line.strip("-= ")]
        causes = [line for line in lines if CAUSES.search(line)] or lines[-LINES_MAX:]
        print(f"\n{name}")
        for line in causes[:LINES_MAX]:
            print(f"    {line[:WIDTH]}")
        if len(causes) > LINES_MAX:
            print(f"    and {len(causes) - LINES_MAX} lines more")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
