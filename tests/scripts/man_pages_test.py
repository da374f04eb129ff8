#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What man_pages.py makes of a help text: `man_pages_test.py SOURCE_TREE`."""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "scripts/package"))
import man_pages  # noqa: E402

HELP = """Write steps.

Usage: /usr/bin/nanwatch export [RUN] [OPTIONS]

Positionals:
  RUN                     A PID, or the id of a run

Options:
  --format FORMAT         csv, jsonl, trace or any other of the
                          formats
Formats: csv (a line a step), jsonl (a line
  for each run).
RUN is a PID.

Exit codes:
  run       the command's own,
            or its signal

Environment, all optional: NANWATCH_DIR is the directory of the
  segments.
"""


class ManPages(unittest.TestCase):
    def setUp(self):
        self.page = man_pages.page("nanwatch-export", HELP, "1.2.3")

    def section(self, title):
        return self.page.split(f".SH {title}\n", 1)[1].split(".SH ", 1)[0]

    def test_sentences_fill_the_width_of_the_terminal(self):
        self.assertEqual(self.section("FORMATS"), ".PP\ncsv (a line a step), jsonl (a line\nfor each run).\n.PP\nRUN is a PID.\n")

    def test_examples_and_tables_keep_their_lines(self):
        self.assertIn(".nf\n            or its signal\n.fi\n", self.section("EXIT CODES"))
        self.assertEqual(list(man_pages.prose(["Try:", "  it", "", "Then", "  go."])), [".PP", "Try:", ".nf", "  it", ".fi", ".PP", "Then", "go."])
        self.assertEqual(list(man_pages.prose(["It goes", "on."])), [".PP", "It goes", "on."])

    def test_arguments_are_a_list_as_options_are(self):
        self.assertEqual(self.section("POSITIONALS"), ".TP\n.B RUN\nA PID, or the id of a run\n")
        self.assertEqual(self.section("OPTIONS"), ".TP\n.B \\-\\-format FORMAT\ncsv, jsonl, trace or any other of the\nformats\n")

    def test_variables_have_a_section_and_are_not_hyphenated(self):
        self.assertEqual(self.section("ENVIRONMENT"), ".PP\nNANWATCH_DIR is the directory of the\nsegments.\n")
        self.assertIn("\n.nh\n", self.page)

    def test_a_verb_names_the_page_of_the_command(self):
        self.assertIn(".BR nanwatch (1)", self.section("SEE ALSO"))
        self.assertNotIn("SEE ALSO", man_pages.page("nanwatch", HELP, "1.2.3"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
