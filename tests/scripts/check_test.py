# SPDX-License-Identifier: Apache-2.0
"""check_test.py SOURCE_TREE: scripts/check.sh on small source trees with and without faults."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LICENSE = "// SPDX-License-Identifier: Apache-2.0\n"
CLEAN = LICENSE + "int Twice(int value) { return 2 * value; }\n"
# clang-tidy refuses the 0.
FAULT = "const int* Nothing() { return 0; }\n"
HEADER = LICENSE + '#pragma once\nint Twice(int value);\n'


def has_tools():
    return all(shutil.which(tool) and "version 14." in subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
               for tool in ("clang-format", "clang-tidy"))


@unittest.skipUnless(shutil.which("git") and has_tools(), "no git, or no clang-format and clang-tidy of version 14")
class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        for name in ("scripts/check.sh", "scripts/tidy.py", ".clang-format", ".clang-tidy"):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, self.tree / name)
        self.write("shim/twice.cc", CLEAN)
        self.write(".gitignore", "/build/\n__pycache__/\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()
        # As a unity build leaves it: the batch alone is compiled.
        batch = self.write("build/release/Unity/unity_0_cxx.cxx", f'#include "{self.tree}/shim/twice.cc"\n')
        self.database = self.write("build/release/compile_commands.json", json.dumps(
            [{"directory": str(self.tree), "file": str(batch), "command": f"c++ -std=c++20 -Wno-subobject-linkage -I{self.tree} -c {batch}"}]))

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *arguments, cwd=None):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=n@localhost", *arguments], cwd=cwd or self.tree, check=True, env=self.environment())

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a commit")

    @staticmethod
    def environment():
        """Without what git tells a hook or a test that it runs: those name another repository."""
        return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def check(self, *arguments, tree=None):
        ran = subprocess.run(["scripts/check.sh", *arguments], cwd=tree or self.tree, env=self.environment(), capture_output=True, text=True)
        return ran.returncode, ran.stdout + ran.stderr

    def test_a_file_that_is_not_formatted_is_named_with_the_command_that_mends_it(self):
        self.write("shim/wide.cc", LICENSE + "int  Thrice( int value ){return 3*value;}\n")
        status, text = self.check("format")
        self.assertEqual(status, 1, text)
        command = next(line for line in text.splitlines() if " -i " in line)
        self.assertIn("shim/wide.cc", command)
        self.assertNotIn("twice.cc", command)
        subprocess.run(command, shell=True, cwd=self.tree, check=True)
        self.assertEqual(self.check("format")[0], 0)

    def test_a_drawing_in_a_comment_stands_as_drawn(self):
        self.write("shim/drawn.cc", LICENSE + "//   a --> b\n//   |     " + "-" * 100 + "> c\n" + "int drawn = 1;\n")
        self.assertEqual(self.check("format")[0], 0)

    def test_a_file_without_its_license_line_is_named(self):
        self.write("scripts/tool.py", "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n")
        self.assertEqual(self.check("licenses")[0], 0)
        self.write("shim/bare.h", "#pragma once\n")
        status, text = self.check("licenses")
        self.assertEqual((status, text.count(".h\n")), (1, 1), text)
        self.assertIn("  shim/bare.h\n", text)

    def test_a_tree_without_a_repository_is_checked_as_a_whole(self):
        shutil.rmtree(self.tree / ".git")
        self.write("build/made.cc", "int  made;\n")
        self.assertEqual(self.check("format", "licenses")[0], 0)
        self.write("shim/wide.cc", "int  wide;\n")
        status, text = self.check("format", "licenses")
        self.assertEqual(status, 1)
        self.assertEqual(text.count("shim/wide.cc"), 2, text)

    def test_a_wrong_include_fails_the_check(self):
        self.write("tests/artifact/include_direction.py", "import sys\nsys.exit('shim/a.h includes shim/b.h')\n")
        status, text = self.check("includes")
        self.assertEqual(status, 1)
        self.assertIn("shim/a.h includes shim/b.h", text)

    def test_clang_tidy_judges_changed_lines_and_no_others(self):
        self.write("shim/twice.cc", CLEAN + FAULT)
        status, text = self.check("tidy")
        self.assertEqual(status, 1, text)
        self.assertIn("shim/twice.cc:3:31: error: use nullptr", text)
        self.commit()
        self.write("shim/twice.cc", CLEAN + FAULT + "\nint Four() { return Twice(2); }\n")
        self.assertEqual(self.check("tidy")[0], 0)
        self.assertEqual(subprocess.run(["scripts/tidy.py", "shim/twice.cc"], cwd=self.tree, capture_output=True).returncode, 1, "the whole file")

    def test_a_commit_is_judged_after_it_was_made(self):
        self.write("shim/twice.cc", CLEAN + FAULT)
        self.commit()
        self.assertEqual(self.check("tidy")[0], 1)

    def test_a_header_is_judged_through_a_file_that_includes_it(self):
        self.write("shim/twice.cc", LICENSE + '#include "shim/other.h"\nint Twice(int value) { return 2 * value; }\n')
        self.write("shim/other.h", HEADER)
        self.commit()
        self.write("shim/other.h", HEADER + "inline " + FAULT)
        status, text = self.check("tidy")
        self.assertEqual(status, 1, text)
        self.assertIn("shim/other.h:4:38: error: use nullptr", text)

    def test_the_precompiled_header_of_the_build_is_left_out(self):
        header = self.write("build/release/cmake_pch.hxx", "inline int Precompiled() { return 1; }\n")
        subprocess.run(["c++", "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
        entry = json.loads(self.database.read_text())[0]
        entry["command"] = entry["command"].replace(" -c ", f" -fpch-preprocess -Winvalid-pch -include {header} -c ")
        self.database.write_text(json.dumps([entry]))
        self.write("shim/twice.cc", CLEAN + "\nint Four() { return Twice(2); }\n")
        status, text = self.check("tidy")
        self.assertEqual(status, 0, text)
        # A file that compiles in the build alone does not include what it uses.
        self.write("shim/twice.cc", CLEAN + "\nint One() { return Precompiled(); }\n")
        status, text = self.check("tidy")
        self.assertEqual(status, 1, text)
        self.assertIn("shim/twice.cc:4:20: error: use of undeclared identifier 'Precompiled'", text)

    def test_what_was_not_checked_is_said(self):
        self.write("shim/twice.cc", CLEAN + FAULT)
        status, text = self.check("--seconds", "0", "tidy")
        self.assertEqual(status, 0)
        self.assertIn("1 files were left out, because 0 s were over: shim/twice.cc", text)
        self.write("shim/unbuilt.cc", LICENSE + FAULT)
        self.assertIn("not in this build, so not checked: shim/unbuilt.cc", self.check("tidy")[1])

    def test_a_clone_without_history_has_nothing_to_compare_with(self):
        self.git("clone", "--quiet", "--depth=1", f"file://{self.tree}", "shallow", cwd=self.tree.parent)
        shallow = self.tree.parent / "shallow"
        shutil.copytree(self.tree / "build", shallow / "build")
        status, text = self.check("tidy", tree=shallow)
        self.assertEqual(status, 0, text)
        self.assertIn("this clone has no commit to compare with: clang-tidy checked nothing", text)

    def test_without_a_build_clang_tidy_says_what_it_needs(self):
        self.database.unlink()
        status, text = self.check("tidy")
        self.assertEqual(status, 1)
        self.assertIn("run `cmake --preset release` and build first", text)

    def test_every_check_runs_whatever_the_others_found(self):
        self.write("shim/twice.cc", CLEAN + "const int* Nothing( ) { return 0; }\n")
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertRegex(text, r"failed: format .*tidy")


if __name__ == "__main__":
    SOURCE = pathlib.Path(sys.argv.pop(1))
    unittest.main()
