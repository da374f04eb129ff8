#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds unit tests of what is loaded into a job with sanitizers, and runs them. In a job that cannot be sanitized, because a
# sanitizer's runtime must be the first library of a process. These tests are programs of their own.
#
#   scripts/sanitize.sh [--slow] [asan|tsan]...      both: address and undefined behavior, then threads (without libtorch)
#
# --slow: with asan also those that need most of the observer, which takes a compiler some six minutes. In build/asan-observer and
# build/tsan-observer. Of what is not loaded into a job: cmake --preset asan (or tsan), build, ctest --preset asan.
set -euo pipefail
cd "$(dirname "$0")/.."
slow=
presets=()
for word in "$@"; do
  if [[ $word == --slow ]]; then slow=1; else presets+=("$word"); fi
done
if ((!${#presets[@]})); then presets=(asan tsan); fi
for preset in "${presets[@]}"; do
  build=build/$preset-observer
  speeds=(quick)
  if [[ $slow && $preset == asan ]]; then speeds+=(slow); fi
  cmake --preset "$preset" -B "$build" -DNANWATCH_SANITIZE_OBSERVER=ON -DNANWATCH_TESTS=ON \
    -DNANWATCH_PYTHON:FILEPATH="${NANWATCH_PYTHON:-$PWD/.venv/bin/python}" >/dev/null
  cmake --build "$build" --target "${speeds[@]/#/sanitized_}"
  for speed in "${speeds[@]}"; do
    ctest --test-dir "$build" -L "sanitized_$speed" --no-tests=error --output-on-failure </dev/null
  done
done
