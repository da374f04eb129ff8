#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, runs every test; the last lines are ctest's own, or say why tests failed. This is what CI runs.
# Arguments go to ctest: scripts/test.sh -L unit, scripts/test.sh -R ring.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --tests
cmake --preset release -DNANWATCH_TESTS=ON -DNANWATCH_PYTHON:FILEPATH="${NANWATCH_PYTHON:-$PWD/.venv/bin/python}"
cmake --build --preset release
ctest --preset release --output-on-failure "$@" </dev/null && exit
status=$?
scripts/failures.py build/release
exit $status
