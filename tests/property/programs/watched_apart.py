# SPDX-License-Identifier: Apache-2.0
"""Like watched.py, each program in a process of its own, under a launcher: `watched_apart.py NANWATCH FIRST COUNT LAUNCHER...`

Slower, for what a forked child cannot have: a GPU.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import generate


def main():
    nanwatch, first, count, launcher = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    # The tools load the library themselves.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    pathlib.Path(environment["NANWATCH_STATE_DIR"]).mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        program, verdict = pathlib.Path(folder) / "program.py", pathlib.Path(folder) / "verdict.json"
        for seed in range(first, first + count):
            program.write_text(generate.generate(seed)[0])
            ran = subprocess.run([nanwatch, "run", "--verdict", verdict, "--", sys.executable, *launcher, program],
                                 env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            print(json.dumps({"seed": seed, "status": ran.returncode, "verdict": json.loads(verdict.read_text())}), flush=True)


if __name__ == "__main__":
    main()
