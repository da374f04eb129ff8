#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, runs every test; the last lines are ctest's own, or say why tests failed. This is what CI runs.
# Arguments go to ctest: scripts/test.sh -L unit, scripts/test.sh -R ring.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --tests
cmake --preset release -DNANWATCH_TESTS=ON -DNANWATCH_PYTHON:FILEPATH="${NANWATCH_PYTHON:-$PWD/.venv/bin/python}"
cmake --build --preset release
# Threads of OpenMP that find no work spin, and tests that share cores spin in each other's way. Results stay the same.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
ctest --preset release --output-on-failure "$@" </dev/null && exit
status=$?
scripts/failures.py build/release
exit $status
