#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer targets of tests/fuzz with clang and runs each, under the address and undefined-behaviour sanitizers.
#
#   scripts/fuzz.sh [--seconds N] [TARGET...]      60 seconds each, with a new seed, which libFuzzer prints
#
# Inputs that lead somewhere new are kept in build/fuzz/corpus/TARGET; what does harm is written to build/fuzz/found/ and named.
# Exit status 1: something was found. Repeat it with build/fuzz/tests/TARGET FILE.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=60
targets=()
while (($#)); do
  case $1 in
    --seconds) seconds=$2; shift ;;
    *) targets+=("$1") ;;
  esac
  shift
done
if ((!${#targets[@]})); then targets=(segment_fuzz text_fuzz facts_fuzz); fi
cmake --preset fuzz -DNANWATCH_TESTS=ON -DNANWATCH_PYTHON:FILEPATH="${NANWATCH_PYTHON:-$PWD/.venv/bin/python}" >/dev/null
cmake --build --preset fuzz --target "${targets[@]}"
found=0
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus" build/fuzz/found
  echo "== $target"
  log=build/fuzz/$target.log
  if ! build/fuzz/tests/"$target" -max_total_time="$seconds" -max_len=524288 -rss_limit_mb=2048 -timeout=25 \
    -artifact_prefix=build/fuzz/found/ -print_final_stats=1 "$corpus" >"$log" 2>&1; then
    found=1
  fi
  grep -E '^(INFO: Seed|stat::|SUMMARY|artifact_prefix|Done |==.*ERROR)|Test unit written|DONE ' "$log" || true
done
exit $found
