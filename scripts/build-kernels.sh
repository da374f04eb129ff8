#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the check kernels to shim/device/check_kernel.ptx, which is checked in: building an observer needs no clang.
#
#   scripts/build-kernels.sh           writes the file
#   scripts/build-kernels.sh --check   compares with it instead; status 77 where there is no clang 14, the compiler of Debian 12
#
# The text loads on drivers from CUDA 12.0 on and GPUs from sm_70 on: PTX ISA 6.0. nvcc 13 makes ISA 9.0, which drivers before r580
# refuse. Another clang makes another text of the same meaning, so the version is fixed.
set -euo pipefail
cd "$(dirname "$0")/.."

kernel=shim/device/check_kernel
fail() { echo "build-kernels: $*" >&2; exit 1; }

check=false
case ${1:-} in
  "") ;;
  --check) check=true ;;
  *) fail "'$1' is unknown; the only option is --check" ;;
esac

clang=""
for candidate in clang++-14 clang++; do
  # One look at the whole answer: a pipe that grep leaves early would fail.
  [[ $($candidate --version 2>/dev/null) == *"clang version 14."* ]] && { clang=$candidate; break; }
done
if [[ -z $clang ]]; then
  echo "build-kernels: there is no clang 14 here (Debian 12's package clang)" >&2
  $check && exit 77
  exit 1
fi

made=$(mktemp)
trap 'rm -f "$made"' EXIT
# No CUDA of this machine's: the same text wherever it is made. Sums are to be the same as on a CPU: no contraction.
"$clang" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-path=/nonexistent --cuda-gpu-arch=sm_70 \
  -Xclang -target-feature -Xclang +ptx60 -std=c++20 -O3 -ffp-contract=off -Wall -Wextra -Werror \
  -I. -S "$kernel.cu" -o "$made" || fail "$kernel.cu did not compile"
if $check; then
  cmp "$made" "$kernel.ptx" || fail "$kernel.ptx is not what $kernel.cu compiles to: run scripts/build-kernels.sh"
else
  cp "$made" "$kernel.ptx"
  echo "build-kernels: $kernel.ptx, $(wc -c <"$made") bytes, by $("$clang" --version | head -1)"
fi
