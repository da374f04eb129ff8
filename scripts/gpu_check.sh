#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Asks a GPU what only a GPU can answer (tests/gpu), and writes one result file with the machine's description.
#
#   scripts/gpu_check.sh [--parts DIR] [--programs DIR] [--out DIR] [--only FILE,...] [--seconds N]
#   scripts/gpu_check.sh --pack DIR      where everything can be built: leaves there what a bare machine needs as --parts
#   scripts/gpu_check.sh --merge FILE... --out DIR    makes one result of those of several calls on one kind of machine
#   scripts/gpu_check.sh --dry-run       asks on the CPU, in small, to see that all fits together; keeps no answer, writes no file
#   scripts/gpu_check.sh --list          the questions
#
# Needs a Python whose torch sees a GPU (NANWATCH_PYTHON; else .venv, else python3). Installs nothing. The tools and the observer come
# from --parts (default: build/gpu/parts), else the tools from build/release; an observer that does not work here is built, by a C++
# compiler. What is missing is said line by line, and the questions that need it are not asked. All is done --seconds (default: 560)
# after the start, and the results in --out (default: tests/gpu/results), a .json, a .txt and evidence.tar.gz, are whole at any time.
# --only takes files of questions: smoke, kernels, sums, measures, batches, no_sync, ends, steps, overhead, verdicts, build.
# Exit status: 0 every question that could be asked was; 1 one failed, or wrong use; 77 no GPU: nothing was run.
set -euo pipefail
readonly caller=$PWD
cd "$(dirname "$0")/.."

fail() { echo "gpu_check: $*" >&2; exit 1; }

# Torch's first import on a cold machine may take a minute.
readonly look_s_max=120
parts=$PWD/build/gpu/parts out=tests/gpu/results programs="" pack="" list=false seconds=560 only="" merge=() dry_run=()
while (($#)); do
  case $1 in
    --parts | --programs | --out | --pack)
      (($# > 1)) || fail "$1 needs a folder"
      declare "${1#--}=$(cd "$caller" && realpath -m -- "$2")"
      shift 2
      ;;
    --only | --seconds)
      (($# > 1)) || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift 2
      ;;
    --merge)
      shift
      while (($#)) && [[ $1 != --* ]]; do merge+=("$(cd "$caller" && realpath -- "$1")"); shift; done
      ((${#merge[@]} > 1)) || fail "--merge needs two results or more"
      ;;
    --dry-run) dry_run=(--dry-run); shift ;;
    --list) list=true; shift ;;
    -h | --help) sed -n '3,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "'$1' is unknown; see --help" ;;
  esac
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "--seconds needs a number"

python=${NANWATCH_PYTHON:-}
if [[ -z $python ]]; then if [[ -x .venv/bin/python ]]; then python=$PWD/.venv/bin/python; else python=python3; fi; fi
python=$(command -v "$python") || fail "there is no Python: set NANWATCH_PYTHON to one with torch"

# ---- what a bare machine needs

# Files of Boost that the observer includes, below the folder that holds boost/.
boost_headers() {
  local sources
  mapfile -t sources < <(grep -rl --include='*.cc' --include='*.h' '#include <boost/' shim)
  for source in "${sources[@]}"; do
    g++ -std=c++20 -I. -x c++ -M "$source" | grep -oE '/[^ ]+/boost/[^ ]+' || fail "$source: no Boost headers found"
  done | sort -u
}

# The kernels as a driver takes them that has no compiler for their text; nothing where there is no ptxas.
make_cubin() {
  local ptxas
  for ptxas in /usr/local/cuda/bin/ptxas /usr/local/cuda-*/bin/ptxas "$(command -v ptxas || true)"; do
    if [[ -x $ptxas ]]; then
      "$ptxas" -arch=sm_90 shim/device/check_kernel.ptx -o "$1/check_kernel.sm_90.cubin" || fail "$ptxas does not take the kernels"
      return
    fi
  done
  echo "gpu_check: there is no ptxas: no cubin is packed for a driver that has no compiler"
}

pack_parts() {
  local release=build/release needs size
  cmake --preset release -DNANWATCH_TESTS=ON >/dev/null
  cmake --build "$release" --target nanwatch nanwatchd nanwatch_entry nanwatch_bench_observer >/dev/null
  rm -rf "$pack"
  mkdir -p "$pack/bin" "$pack/lib/nanwatch" "$pack/include"
  install -m 755 "$release"/bin/nanwatch "$release"/bin/nanwatchd "$pack/bin"
  install -m 755 "$release"/lib/libnanwatch.so "$pack/lib"
  # The one that can be switched between levels, for what is timed; else it is the user's.
  install -m 755 "$release"/tests/bench/lib/nanwatch/*.so "$pack/lib/nanwatch"
  g++ -std=c++20 -O2 -shared -fPIC -fvisibility=hidden -static-libstdc++ -static-libgcc -I. tests/gpu/grid_for.cc -o "$pack/lib/libgrid_for.so"
  strip --strip-debug "$pack"/bin/* "$pack"/lib/*.so "$pack"/lib/nanwatch/*.so
  needs=$(ldd "$pack"/bin/* | grep -vE '^/|^[^=]*:$|linux-vdso|ld-linux|lib(c|m|dl|pthread|rt)\.so' || true)
  [[ -z $needs ]] || fail "the tools need libraries that a bare machine may not have:$needs"
  make_cubin "$pack/lib"
  boost_headers | while read -r header; do install -D -m 644 "$header" "$pack/include/boost/${header#*/boost/}"; done
  git describe --always --dirty --abbrev=40 >"$pack/commit"
  sha256sum <shim/device/check_kernel.ptx | cut -d' ' -f1 >"$pack/check_kernel.sha256"
  size=$(du -sm "$pack" | cut -f1)
  ((size < 64)) || fail "$pack has $size MiB, more than the 64 that it may have"
  echo "gpu_check: $pack, $size MiB: carry it to the machine with the GPU, and name it by --parts"
}

if [[ -n $pack ]]; then pack_parts; exit; fi
if ((${#merge[@]})); then exec "$python" tests/gpu/merge.py "$out" "${merge[@]}"; fi

asked=(--parts "$parts" --out "$out" "${dry_run[@]}" ${only:+--only "$only"} ${programs:+--programs "$programs"})
if $list; then exec "$python" tests/gpu/session.py "${asked[@]}" --list --seconds "$seconds"; fi

sees_gpu=0
timeout "$look_s_max" "$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else 77)' 2>/dev/null || sees_gpu=$?
((sees_gpu != 77 || ${#dry_run[@]} > 0)) || { echo "gpu_check: no GPU: nothing was run"; exit 77; }
# 124: not even that was over in time; what can be told is told all the same.
((sees_gpu == 0 || sees_gpu == 77 || sees_gpu == 124)) || fail "$python cannot import torch: nothing was run"
exec "$python" tests/gpu/session.py "${asked[@]}" --seconds "$((seconds - SECONDS))"
