# SPDX-License-Identifier: Apache-2.0
"""merge.py OUT FILE...: one result file, in OUT, of those of several calls on one kind of machine. Of two answers the later one stays."""
import pathlib
import sys

import result

if __name__ == "__main__":
    try:
        print(f"gpu_check: {result.merge_files(sys.argv[2:], pathlib.Path(sys.argv[1]))}")
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"gpu_check: {error}")
