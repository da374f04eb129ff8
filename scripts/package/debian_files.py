#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what Debian's policy wants beside the files themselves: copyright, changelog, and for lintian why some things
are as they are.

    debian_files.py --version VERSION --root DIR"""
import argparse
import email.utils
import gzip
import pathlib

HERE = pathlib.Path(__file__).resolve().parent

COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: nanwatch

Files: *
Copyright: 2026 The nanwatch authors
License: Apache-2.0
 On Debian systems the text of the license is in /usr/share/common-licenses/Apache-2.0.
"""

CHANGELOG = """\
nanwatch ({version}) unstable; urgency=medium

  * See https://keepachangelog.com in CHANGELOG.md of the source tree.

 -- nanwatch developers <nanwatch@example.org>  {date}
"""

OVERRIDES = """\
# The programs watch jobs in containers and on hosts of several releases, to which the prefix is copied as it is.
nanwatch: statically-linked-binary
nanwatch: embedded-library
# The library is preloaded by its path, never linked to. The scripts in share/ are for build-observer, which asks for a Python.
nanwatch: shared-library-lacks-prerequisites
nanwatch: sharedobject-in-library-directory-missing-soname
nanwatch: script-not-executable
nanwatch: python3-script-but-no-python3-dep
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    documents = arguments.root / "usr/share/doc/nanwatch"
    documents.mkdir(parents=True)
    (documents / "copyright").write_text(COPYRIGHT)
    date = email.utils.formatdate((HERE.parent.parent / "CHANGELOG.md").stat().st_mtime)
    (documents / "changelog.gz").write_bytes(gzip.compress(CHANGELOG.format(version=arguments.version, date=date).encode(), mtime=0))
    overrides = arguments.root / "usr/share/lintian/overrides"
    overrides.mkdir(parents=True)
    (overrides / "nanwatch").write_text(OVERRIDES)


if __name__ == "__main__":
    main()
