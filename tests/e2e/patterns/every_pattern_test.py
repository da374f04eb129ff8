# SPDX-License-Identifier: Apache-2.0
"""Each entry of patterns.json has a program that triggers it and one that resembles it, and no test names an entry that is gone."""
import importlib.util
import json
import pathlib
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PATTERNS = HERE.parents[2] / "daemon/explain/patterns.json"
# Not to be had in one process without a compiler. What a rank that nobody watched sent is triggered in
# tests/e2e/ranks/ranks_test.py, a compiled region in tests/e2e/frameworks/compile_test.py,
# and what level auto leaves out in tests/e2e/promises/auto_end_test.py. The last two are triggered of records alone, in
# tests/daemon/explain/pattern_order_test.cc.
ELSEWHERE = {"received-from-another-rank", "inside-compiled-region", "parameter-bad-after-unchecked-steps", "bad-while-unwatched",
             "squared-gradient-overflow"}


def declared(what):
    """The patterns that the test methods beside this file declare to trigger, or to resemble."""
    found = set()
    for file in sorted(HERE.glob("*_test.py")):
        if file.name == pathlib.Path(__file__).name:
            continue
        # By its path: the families beside this folder have files of the same names.
        spec = importlib.util.spec_from_file_location(f"patterns_{file.stem}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for case in vars(module).values():
            if isinstance(case, type) and issubclass(case, unittest.TestCase):
                found |= {getattr(method, what) for method in vars(case).values() if hasattr(method, what)}
    return found


class EveryPattern(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ids = [pattern["id"] for pattern in json.loads(PATTERNS.read_text())]

    def test_every_pattern_is_triggered(self):
        self.assertEqual(set(self.ids) - ELSEWHERE, declared("triggers"))

    def test_every_pattern_is_resembled(self):
        self.assertEqual(set(self.ids) - ELSEWHERE, declared("resembles"))

    def test_what_is_tested_elsewhere_exists(self):
        self.assertLessEqual(ELSEWHERE, set(self.ids))


if __name__ == "__main__":
    unittest.main(verbosity=2)
