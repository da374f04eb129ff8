#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each page of recipes has the command, what it printed, and a test that there is: `recipes_test.py FOLDER TESTS`.

TESTS is the folder of all tests: the names of ctest are those of its CMake files, `framework.${what}` among them.
"""
import pathlib
import re
import sys
import unittest


def declared(tests):
    """Names of tests as patterns: what a CMake variable stands for may be anything without a dot."""
    text = "\n".join(path.read_text() for path in tests.rglob("CMakeLists.txt"))
    names = set(re.findall(r"NAME ([\w.${}]+)", text))
    names = [name for name in names if not name.startswith("$")]  # would fit any
    return [re.compile(re.sub(r"\\\$\\\{\w+\\\}", r"[\\w]+", re.escape(name))) for name in names]


class Recipes(unittest.TestCase):
    def test_each_page_has_a_command_its_output_and_a_test(self):
        patterns = declared(TESTS)
        pages = sorted(FOLDER.glob("recipes/*.md"))
        self.assertGreaterEqual(len(pages), 9)
        for page in pages:
            text = page.read_text()
            self.assertRegex(text, r"(?m)^    \S|\| `", f"{page.name}: no command")
            self.assertRegex(text, r"(?s)```\n.+\n```", f"{page.name}: no output")
            said = re.search(r"(?s)\nTests: (.*)", text)
            self.assertTrue(said, f"{page.name}: no test")
            named = [name for name in re.findall(r"`([a-z][\w.]+)`", said[1]) if "/" not in name]
            self.assertTrue(named, page.name)
            for name in named:
                self.assertTrue(any(pattern.fullmatch(name) for pattern in patterns), f"{page.name}: there is no test {name}")

    def test_the_list_has_each_page(self):
        listed = set(re.findall(r"\(recipes/([\w-]+\.md)\)", (FOLDER / "recipes.md").read_text()))
        self.assertEqual(listed, {page.name for page in FOLDER.glob("recipes/*.md")})


if __name__ == "__main__":
    FOLDER, TESTS = map(pathlib.Path, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
