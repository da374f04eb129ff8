# SPDX-License-Identifier: Apache-2.0
"""Which steps nanwatch leaves unchecked at level full, as a program sees it: its ops have no callback then."""
import ctypes
import os
import pathlib

import torch  # the library asks it

BUILD = pathlib.Path(os.environ.get("NANWATCH_BUILD") or pathlib.Path(__file__).resolve().parents[4] / "build/release")


def asker():
    """A function that says whether ops go unwatched that were watched before: nanwatch begins a moment after torch is there."""
    library = ctypes.CDLL(BUILD / "tests/watched_ops.so")
    was_watched = False

    def are_unchecked():
        nonlocal was_watched
        watched = bool(library.ops_are_watched())
        was_watched |= watched
        return was_watched and not watched

    return are_unchecked
