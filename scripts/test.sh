#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, runs every test; the last lines are ctest's own, or say why tests failed. This is what CI runs.
# Arguments go to ctest: scripts/test.sh -L unit, scripts/test.sh -R ring.
# NANWATCH_TESTS_UNTIL, seconds since 1970: tests that would end later are left out, and named. CI sets it: on a slow machine all of
# them take longer than it waits.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --tests
cmake --preset release -DNANWATCH_TESTS=ON -DNANWATCH_PYTHON:FILEPATH="${NANWATCH_PYTHON:-$PWD/.venv/bin/python}"
cmake --build --preset release
# Threads of OpenMP that find no work spin, and tests that share cores spin in each other's way. Results stay the same.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
run() { ctest --preset release --output-on-failure "$@" </dev/null || { failed=$?; scripts/failures.py build/release || true; }; }
failed=0
if [[ -z ${NANWATCH_TESTS_UNTIL:-} ]]; then
  run "$@"
  exit $failed
fi
# Every fifth test in each part, so that all kinds are in each. What one day leaves out, the next begins with.
parts=5
day=$(($(date +%s) / 86400))
longest_s=0
for ((part = 0; part < parts; ++part)); do
  first=$(((part + day) % parts + 1))
  began_s=$(date +%s)
  if ((part && began_s + longest_s * 5 / 4 > NANWATCH_TESTS_UNTIL)); then
    echo "Not run, because time is up: every ${parts}th test from the ${first}. on:"
    ctest --preset release -N -I "$first,,$parts" "$@" | grep 'Test *#'
    continue
  fi
  run -I "$first,,$parts" "$@"
  took_s=$(($(date +%s) - began_s))
  if ((took_s > longest_s)); then longest_s=$took_s; fi
done
exit $failed
