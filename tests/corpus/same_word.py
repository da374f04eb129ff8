# SPDX-License-Identifier: Apache-2.0
"""Runs every program at two levels and compares the word of the verdict: what a level cannot see it must not call clean.

Where nothing is wrong, `expected` and `clean` are both right (programs/expect.json): a mask inside a forward is not seen by a level
that watches no ops. Those programs are counted apart.

  tests/corpus/same_word.py                          canary against full
  tests/corpus/same_word.py --level layer --only c012

Takes the options of run.py. Exits 1 where a word differs, and names the program.
"""
import argparse
import pathlib
import sys
import tempfile

import run
import score


def words_at(level, expectations, arguments, scratch):
    """The verdict's word of each program."""
    out = pathlib.Path(arguments.out or scratch).resolve() / level
    out.mkdir(parents=True, exist_ok=True)
    at_level = argparse.Namespace(**{**vars(arguments), "level": level})
    run.run_programs(expectations, at_level, out)
    verdicts = {e["id"]: run.read_verdict(out / f"{e['id']}.json") for e in expectations}
    return {name: (verdict or {}).get("verdict", "none") for name, verdict in verdicts.items()}


def main():
    arguments = run.parse_arguments(__doc__)
    arguments.level = arguments.level or "canary"
    expectations = run.chosen_programs(arguments)
    with tempfile.TemporaryDirectory(prefix="nanwatch-corpus-") as scratch:
        at_full, at_level = (words_at(level, expectations, arguments, scratch) for level in ("full", arguments.level))
    accepted = {e["id"]: score.al(e["verdict"]) for e in expectations}
    different = [name for name in at_full if at_full[name] != at_level[name]]
    wrong = [name for name in at_full if at_full[name] == "none" or
             (name in different and not {at_full[name], at_level[name]} <= set(accepted[name]))]
    for name in wrong:
        print(f"{name}: '{at_full[name]}' at full, '{at_level[name]}' at {arguments.level}")
    harmless = len(different) - len(set(wrong) & set(different))
    print(f"\nthe same word at both levels: {len(at_full) - len(different)} of {len(at_full)}; both right, of harmless values: {harmless}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
