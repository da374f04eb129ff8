# SPDX-License-Identifier: Apache-2.0
"""Every fault that documents.py looks for is found when it is planted, and sound pages are left alone."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

DOCUMENTS = pathlib.Path(__file__).resolve().parent / "documents.py"
SOUND = """# A tree

See [the shim](shim/README.md), [its limits](shim/README.md#known-limits), [the code](shim/check),
[elsewhere](https://example.org/nowhere), and [below](#how-it-works).

| [part](shim/) | `[code](not/a/link)` |

```
[in a block](not/a/link)
```

## How it works
As [drawn].

[drawn]: shim/check
"""


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "shim/check").mkdir(parents=True)
        self.write("README.md", SOUND)
        self.write("shim/README.md", "# shim\n[up](../README.md)\n\n## Known limits\nNone. [Its own](#known-limits).\n")

    def write(self, page, text):
        (self.root / page).parent.mkdir(parents=True, exist_ok=True)
        (self.root / page).write_text(text, encoding="utf-8")

    def complaints(self):
        ran = subprocess.run([sys.executable, DOCUMENTS, self.root], capture_output=True, text=True, timeout=60)
        lines = ran.stdout.splitlines()
        self.assertEqual((ran.returncode, ran.stderr), (1 if "no dead link" not in ran.stdout else 0, ""), ran.stdout)
        return [] if ran.returncode == 0 else lines

    def assert_found(self, page, text, *parts):
        self.write(page, text)
        found = self.complaints()
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_sound_pages_are_left_alone(self):
        self.assertEqual(self.complaints(), [])

    def test_a_link_to_a_file_that_is_not_there(self):
        self.assert_found("shim/check/README.md", "# check\n\n[scan](scan.h)\n", "shim/check/README.md:3", "there is no shim/check/scan.h")

    def test_a_link_in_a_table_and_in_a_list(self):
        for text in "| [a](gone) | b |\n", "1. one\n   - two\n     and [a](gone)\n":
            self.assert_found("shim/check/README.md", text, "gone")

    def test_a_reference(self):
        self.assert_found("shim/check/README.md", "[a]\n\n[a]: ../gone.md\n", "there is no shim/gone.md")

    def test_a_picture(self):
        self.assert_found("shim/check/README.md", "![a](a.png)\n", "a.png")

    def test_a_heading_that_is_not_there(self):
        self.assert_found("shim/check/README.md", "[a](../README.md#known-bugs)\n", "has no heading 'known-bugs'")

    def test_another_spelling(self):
        self.assert_found("shim/check/README.md", "[a](../readme.md)\n", "there is no shim/readme.md")

    def test_a_link_out_of_the_repository(self):
        self.assert_found("shim/check/README.md", "[a](../../../elsewhere)\n", "leads out of the repository")

    def test_a_readme_that_is_too_long(self):
        self.assert_found("README.md", "line\n" * 161, "161 lines; at most 160")

    def test_a_readme_that_is_too_wide(self):
        self.assert_found("README.md", f"# A\n{'x' * 121}\n", "README.md:2: 121 columns; at most 120")

    def test_other_pages_may_be_long(self):
        self.write("shim/README.md", "# shim\n## Known limits\n" + f"{'x' * 300}\n" * 300)
        self.assertEqual(self.complaints(), [])

    def test_no_readme_at_all(self):
        (self.root / "README.md").unlink()
        self.write("shim/README.md", "# shim\n")
        self.assertEqual(self.complaints(), ["README.md: there is none"])

    def test_what_is_built_is_passed_over(self):
        for folder in "build/release", ".venv/lib", "shim/.hidden":
            self.write(f"{folder}/README.md", "[a](gone)\n")
        self.assertEqual(self.complaints(), [])


if __name__ == "__main__":
    unittest.main()
