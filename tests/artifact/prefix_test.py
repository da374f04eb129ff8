#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `cmake --install` leaves: `prefix_test.py CMAKE BUILD_TREE`."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zlib

BYTES_MAX = 25_000_000


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def sections(path):
    return set(re.findall(r"\] (\.\S+)", subprocess.run(["readelf", "--wide", "--section-headers", path], check=True, capture_output=True, text=True).stdout))


class Prefix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.prefix = pathlib.Path(folder.name)
        cls.install()
        cls.binaries = [cls.prefix / "bin/nanwatch", cls.prefix / "bin/nanwatchd", cls.prefix / "lib/libnanwatch.so",
                        *(cls.prefix / "lib/nanwatch").glob("libnanwatch_observer-*.so")]

    @classmethod
    def install(cls, *arguments):
        environment = {name: value for name, value in os.environ.items() if name != "DESTDIR"}
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", cls.prefix, *arguments], check=True, capture_output=True, env=environment)

    def test_1_it_is_small_and_stripped(self):
        self.assertEqual(len(self.binaries), 4)
        self.assertLess(size(self.prefix), BYTES_MAX)
        for path in self.binaries:
            self.assertTrue(os.access(path, os.X_OK), path)
            self.assertFalse({".debug_info", ".symtab"} & sections(path), path)
            needed = subprocess.run(["readelf", "--dynamic", path], check=True, capture_output=True, text=True).stdout
            self.assertNotRegex(needed, "RPATH|RUNPATH")

    def test_2_the_programs_run(self):
        ran = subprocess.run([self.prefix / "bin/nanwatch", "--version"], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(ran.stdout, r"^nanwatch \d")

    def test_3_debug_files_come_on_request_and_belong_to_what_they_lie_beside(self):
        self.assertEqual(list(self.prefix.rglob(".debug")), [])
        self.install("--component", "debug")
        for path in self.binaries:
            debug = path.parent / ".debug" / (path.name + ".debug")
            self.assertIn(".debug_line", sections(debug))
            self.assertFalse({".debug_info", ".symtab"} & sections(path), path)
            # The link is a name, zeros up to a multiple of four, and a checksum: a debugger ignores a file with another one.
            link = subprocess.run(["objcopy", "--dump-section", ".gnu_debuglink=/dev/stdout", path, "/dev/null"], check=True, capture_output=True).stdout
            self.assertEqual(link[:-4].rstrip(b"\0").decode(), debug.name)
            self.assertEqual(int.from_bytes(link[-4:], sys.byteorder), zlib.crc32(debug.read_bytes()))


if __name__ == "__main__":
    CMAKE, BUILD = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
