#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds libnanwatch.so for MACHINE (x86_64, aarch64) against glibc 2.17 with the compiler of the
# Python package ziglang, found by $PYTHON, and looks at the result. Exits 77, which ctest counts as
# skipped, where that compiler is not installed.
#
#   cross_build.sh MACHINE SOURCE_DIR FOLDER    FOLDER takes the result and the compiler's cache
set -euo pipefail
machine=$1 source=$2 folder=$3
if ! "$PYTHON" -c 'import ziglang' 2>/dev/null; then
  echo "skipped: $PYTHON has no ziglang (pip install ziglang==0.17.0)"
  exit 77
fi
# The compiler makes its C runtime from source at first: half a minute, kept in the cache.
mkdir -p "$folder/$machine"
export ZIG_GLOBAL_CACHE_DIR=$folder/cache ZIG_LOCAL_CACHE_DIR=$folder/cache
library=$folder/$machine/libnanwatch.so
"$PYTHON" -m ziglang cc -target "$machine-linux-gnu.2.17" -std=c11 -O2 -Wall -Wextra -Werror \
  -fPIC -fvisibility=hidden -I"$source" -shared -ldl \
  -Wl,--version-script="$source/shim/entry/exports.map" -Wl,-z,nodelete \
  -o "$library" "$source"/shim/entry/*.c "$source"/shim/entry/*.S
here=$(dirname "$0")
python3 "$here/../inspect_library.py" exports "$library" "$here/libnanwatch.exports"
python3 "$here/../inspect_library.py" versions "$library" GLIBC_2.17
