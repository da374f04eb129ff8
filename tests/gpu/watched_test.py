# SPDX-License-Identifier: Apache-2.0
"""What becomes of programs that are wrong, cannot run on a GPU, are cut off or left out for time: by a nanwatch that says what it is told."""
import argparse
import json
import pathlib
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import smoke  # noqa: E402
import watched  # noqa: E402

# In nanwatch's place: `run --level L --verdict FILE -- PYTHON PROGRAM`. Says "clean", and leaves by the program's own status.
NANWATCH = f"""#!{sys.executable}
import json, pathlib, subprocess, sys
verdict, command = sys.argv[sys.argv.index("--verdict") + 1], sys.argv[sys.argv.index("--") + 1:]
print("nanwatch: watching", flush=True)
status = subprocess.call(command)
checked, not_ready = {{"is_not_seen": (0, 0), "is_seen_late": (100, 3)}}.get(pathlib.Path(command[-1]).stem, (1000, 10))
print("nanwatch: the diagnosis", flush=True)
json.dump({{"verdict": "clean", "run": {{"exit_code": status}}, "incidents": [], 
           "coverage": {{"tensors_checked": str(checked), "unchecked": {{"gpu_busy": "0", "gpu_not_ready": str(not_ready)}}}}}}, open(verdict, "w"))
sys.exit(status)
"""
PROGRAMS = {
    "fine": "print('trained')",
    "ends_badly": "raise SystemExit(3)",
    "of_two_devices": "open(__file__ + '.runs', 'a').write('.'); raise RuntimeError('Expected all tensors to be on the same device')",
    "steps_down": "print('nanwatch: tensors on GPU 0 go unchecked from here on: a call failed')",
    "is_wrong": "for i in range(100): print('line', i)",
    "is_not_seen": "",
    "is_seen_late": "",
    "never_ends": "import time; time.sleep(1000)",
}


class Watched(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "programs"
        self.folder.mkdir()
        expected = []
        for name, text in PROGRAMS.items():
            (self.folder / f"{name}.py").write_text(text)
            expected.append({"id": name, "verdict": "expected" if name == "is_wrong" else "clean", "origin": None})
        (self.folder / "expect.json").write_text(json.dumps(expected))
        nanwatch = self.folder / "nanwatch"
        nanwatch.write_text(NANWATCH)
        nanwatch.chmod(0o755)
        self.arguments = argparse.Namespace(nanwatch=nanwatch, launcher=None, evidence=self.folder / "kept", jobs=4, dry_run=True, bare_ends={},
                                            ends_at=time.monotonic() + 100)

    def rows(self, *names, on_default_device=True):
        return watched.rows_of(self.folder, names, self.arguments, on_default_device)

    def test_a_program_that_ends_as_it_should_is_right(self):
        rows, cannot, left_out = self.rows("fine", "ends_badly")
        self.assertEqual(({name: row["right"] for name, row in rows.items()}, cannot, left_out), ({"fine": True, "ends_badly": True}, {}, []))
        self.assertEqual(rows["fine"]["gpu_tensors_unchecked"], {"gpu_not_ready": 10})

    def test_what_was_not_looked_at_is_not_right(self):
        rows = self.rows("is_not_seen", "is_seen_late", on_default_device=False)[0]
        self.assertEqual({name: (row["right"], row["not_right"]) for name, row in rows.items()},
                         {"is_not_seen": (False, ["looked_at"]), "is_seen_late": (False, ["looked_at"])})
        self.assertEqual([smoke.works(row) for row in rows.values()], [False, True])
        self.assertFalse(smoke.works(rows["is_seen_late"] | {"gpu_tensors_unchecked": {"gpu_not_ready": 100}}))

    def test_a_wrong_one_brings_what_was_said_and_its_files_are_kept(self):
        row = self.rows("is_wrong")[0]["is_wrong"]
        self.assertEqual((row["right"], row["not_right"], row["said"]), (False, ["verdict"], "clean"))
        self.assertEqual(row["nanwatch_lines"], ["nanwatch: watching", "nanwatch: the diagnosis"])
        self.assertEqual(row["log_ends"][-3:], ["line 98", "line 99", "nanwatch: the diagnosis"])
        self.assertEqual(sorted(path.name for path in self.arguments.evidence.glob("*/*")), ["is_wrong.json", "is_wrong.log"])

    def test_one_that_cannot_run_on_a_gpu_is_not_counted_and_is_run_bare_once(self):
        for _ in range(2):  # levels
            rows, cannot, _ = self.rows("fine", "of_two_devices")
            self.assertEqual((list(rows), list(cannot)), (["fine"], ["of_two_devices"]))
        self.assertIn("same device", cannot["of_two_devices"])
        self.assertEqual((self.folder / "of_two_devices.py.runs").read_text(), "...")  # two watched, one bare

    def test_after_the_checker_stepped_down_nothing_is_right(self):
        row = self.rows("steps_down")[0]["steps_down"]
        self.assertEqual((row["right"], row["not_right"]), (False, []))
        self.assertIn("a call failed", row["stepped_down"][0])

    def test_what_there_is_no_time_for_is_left_out_and_the_others_stay(self):
        self.arguments.ends_at = time.monotonic() + (watched.corpus.WORTHWHILE_S + 3) / (1 - watched.BARE_SHARE)
        rows, _, left_out = self.rows("fine", "never_ends")
        self.assertEqual((list(rows), left_out), (["fine"], ["never_ends"]))
        self.arguments.ends_at = time.monotonic()
        rows, _, left_out = self.rows("fine", "never_ends")
        self.assertEqual((list(rows), left_out), ([], ["fine", "never_ends"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
