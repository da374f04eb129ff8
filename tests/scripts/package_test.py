#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How package.sh goes about it, in a tree that nothing was built in, with a cmake and a compiler that only pretend:
`package_test.py SOURCE_TREE PYTHON`. What real packages hold is for tests/e2e/packages."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

# Configures, builds and installs a nanwatch that knows its version, with the observer for torch 2.7.
CMAKE = """#!/bin/bash
case $1 in
  --build) mkdir -p "$2/bin" && echo made >"$2/bin/nanwatch" && chmod +x "$2/bin/nanwatch" ;;
  --install)
    mkdir -p "$4/bin" "$4/lib/nanwatch"
    printf '#!/bin/bash\\necho '"'"'{"version": "9.9"}'"'"'\\n' >"$4/bin/nanwatch"
    chmod +x "$4/bin/nanwatch"
    cp /bin/true "$4/lib/nanwatch/libnanwatch_observer-2.7.so" ;;
  *) echo configured ;;
esac
"""
TORCHES = """import sys
for version in ("2.6.0", "2.7.1", "2.8.0"):
    if version.rpartition(".")[0] not in sys.argv[sys.argv.index("--without"):]:
        print(f"/torches/{version}/bin/python")
"""
# One observer a call: it says for which, and fails for the one that the test names.
BUILD_OBSERVER = """#!/bin/bash
minor=$(basename "${3%/bin/python}")
echo "building ${minor}"
if [[ ${BROKEN:-} == "$minor" ]]; then exit 1; fi
cp /bin/true "$5/lib/nanwatch/libnanwatch_observer-${minor%.*}.so"
"""


class Package(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        self.programs = pathlib.Path(folder.name) / "programs"
        self.write("scripts/setup.sh", "#!/bin/bash\n")
        self.write("scripts/package/torches.py", TORCHES)
        self.write("scripts/build-observer.sh", BUILD_OBSERVER)
        self.write("../programs/cmake", CMAKE)
        shutil.copy(SOURCE / "scripts/package.sh", self.tree / "scripts/package.sh")

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def package(self, *words, status=0, **environment):
        ran = subprocess.run([self.tree / "scripts/package.sh", *words], capture_output=True, text=True,
                             env={**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}", "NANWATCH_PYTHON": PYTHON, **environment})
        self.assertEqual(ran.returncode, status, ran.stdout + ran.stderr)
        return ran.stdout + ran.stderr

    def packed(self):
        with tarfile.open(next((self.tree / "dist").glob("*.tar.gz"))) as archive:
            return {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}

    def test_it_builds_in_a_tree_in_which_nothing_was_built(self):
        self.package("tar")
        self.assertLessEqual({"bin/nanwatch", "lib/nanwatch/libnanwatch_observer-2.7.so"}, self.packed())

    def test_all_torches_are_those_that_the_build_has_no_observer_for_and_it_says_how_far_it_is(self):
        said = self.package("tar", "--all-torches")
        self.assertEqual([line for line in said.splitlines() if " of 2" in line],
                         ["package: observer 1 of 2, for the torch of /torches/2.6.0/bin/python",
                          "package: observer 2 of 2, for the torch of /torches/2.8.0/bin/python"])
        observers = {name for name in self.packed() if name.endswith(".so")}
        self.assertEqual(observers, {f"lib/nanwatch/libnanwatch_observer-{minor}.so" for minor in ("2.6", "2.7", "2.8")})

    def test_an_observer_that_does_not_compile_leaves_no_package_and_says_what_to_do(self):
        said = self.package("tar", "--all-torches", status=1, BROKEN="2.8.0")
        self.assertIn("package: the observer for /torches/2.8.0/bin/python could not be built (the reason stands above); "
                      "the same command again goes on from there", said)
        self.assertEqual(list((self.tree / "dist").iterdir()), [])


if __name__ == "__main__":
    SOURCE, PYTHON = pathlib.Path(sys.argv[1]), sys.argv[2]
    unittest.main(argv=sys.argv[:1])
