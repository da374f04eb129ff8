# SPDX-License-Identifier: Apache-2.0
"""Runs programs at a level that sees little and compares the word of the verdict with the known one: what a level cannot see it
must not call clean.

Where nothing is wrong, `expected` and `clean` are both right (programs/expect.json): a mask inside a forward is not seen by a level
that watches no ops.

  tests/corpus/same_word.py                          at canary
  tests/corpus/same_word.py --level sampled --only c012

Takes the options of run.py. Exits 1 where a word is wrong, and names the program.
"""
import pathlib
import sys
import tempfile

import run
import score


def words_of(expectations, arguments, out):
    """The verdict's word of each program."""
    out.mkdir(parents=True, exist_ok=True)
    run.run_programs(expectations, arguments, out)
    verdicts = {e["id"]: run.read_verdict(out / f"{e['id']}.json") for e in expectations}
    return {name: (verdict or {}).get("verdict", "none") for name, verdict in verdicts.items()}


def main():
    arguments = run.parse_arguments(__doc__)
    arguments.level = arguments.level or "canary"
    expectations = run.chosen_programs(arguments)
    with tempfile.TemporaryDirectory(prefix="nanwatch-corpus-") as scratch:
        words = words_of(expectations, arguments, pathlib.Path(arguments.out or scratch).resolve())
    accepted = {e["id"]: score.al(e["verdict"]) for e in expectations}
    wrong = [name for name in words if words[name] not in accepted[name]]
    for name in wrong:
        print(f"{name}: '{words[name]}' at {arguments.level}, {' or '.join(accepted[name])} is right")
    print(f"\nthe right word at {arguments.level}: {len(words) - len(wrong)} of {len(words)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
