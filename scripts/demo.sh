#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and watches an ordinary training job (scripts/demo/train.py) go NaN.
#
#   scripts/demo.sh                  on the reference torch
#   scripts/demo.sh --torch 2.15.0   on another one, in a virtual environment of its own under build/
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "demo: $*" >&2; exit 1; }

torch_version=""
case ${1:-} in
  "") ;;
  --torch) torch_version=${2:-}; [[ -n $torch_version ]] || fail "--torch needs a version, for example --torch 2.15.0" ;;
  -h | --help) sed -n '3,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) fail "'$1' is unknown; see --help" ;;
esac

scripts/setup.sh
python=${NANWATCH_PYTHON:-$PWD/.venv/bin/python}

# The first build takes minutes and shows its progress; one that has nothing to do is silent.
mkdir -p build
if ! [[ -e build/release/build.ninja ]] ||
  ! grep -qsxF "NANWATCH_PYTHON:FILEPATH=$python" build/release/CMakeCache.txt; then
  # The demo needs no tests. A tree that was configured with them keeps them.
  tests=()
  [[ -e build/release/build.ninja ]] || tests=(-DNANWATCH_TESTS=OFF)
  cmake --preset release -DNANWATCH_PYTHON:FILEPATH="$python" "${tests[@]}"
fi
targets=(nanwatch nanwatchd nanwatch_entry nanwatch_observer)
if [[ $(ninja -C build/release -n "${targets[@]}" 2>/dev/null) != *"no work to do"* ]]; then
  echo "demo: building in build/release"
  cmake --build --preset release --target "${targets[@]}"
fi

if [[ -n $torch_version ]]; then
  venv=build/torch-$torch_version
  python=$PWD/$venv/bin/python
  if ! [[ -e $venv/complete ]]; then
    echo "demo: torch $torch_version from PyPI, in $venv (several GB)"
    python3 -m venv --clear "$venv"
    "$python" -m pip install --no-input --disable-pip-version-check "torch==$torch_version" numpy </dev/null
    touch "$venv/complete"
  fi
  scripts/build-observer.sh --python "$python"
fi

# On a machine with other work, OpenMP's threads spin in each other's way: ten times the processor time, for a program this small.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
echo "demo: nanwatch run --capsule op -- python scripts/demo/train.py"
build/release/bin/nanwatch run --capsule op -- "$python" scripts/demo/train.py
echo "demo: nanwatch replay"
build/release/bin/nanwatch replay
