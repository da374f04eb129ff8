#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer targets of tests/fuzz with clang and runs each, under the address and undefined-behaviour sanitizers.
#
#   scripts/fuzz.sh [--seconds N] [--keep] [TARGET...]      60 seconds each, with a new seed, which libFuzzer prints
#
# It begins with the inputs in tests/fuzz/corpus/TARGET. What leads somewhere new is kept in build/fuzz/corpus/TARGET; --keep then
# puts the fewest inputs that lead everywhere into tests/fuzz/corpus (of segments none: the target makes its own). What does harm is
# written to build/fuzz/found/ and named. Exit status 1: something was found. Repeat it with build/fuzz/tests/TARGET FILE.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=60
keep=
targets=()
while (($#)); do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --keep) keep=1 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
cmake --preset fuzz -DNANWATCH_TESTS=ON -DNANWATCH_PYTHON:FILEPATH="${NANWATCH_PYTHON:-$PWD/.venv/bin/python}" >/dev/null
if ((!${#targets[@]})); then
  targets=(wire_fuzz text_fuzz config_fuzz facts_fuzz verdict_fuzz http_fuzz segment_fuzz)
  # nanwatch-gather needs libpqxx.
  if grep -q '^NANWATCH_PQXX_LIBRARY:FILEPATH=/' build/fuzz/CMakeCache.txt; then targets+=(fleet_fuzz); fi
fi
cmake --build --preset fuzz --target "${targets[@]}"
# Kept inputs are short, so that a clone stays small.
bytes_max=8192
kept_bytes_max=2048
found=0
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  kept=tests/fuzz/corpus/$target
  bytes=$bytes_max
  if [[ $target == segment_fuzz ]]; then bytes=524288; fi
  mkdir -p "$corpus" build/fuzz/found
  seeds=("$corpus")
  if [[ -d $kept ]]; then seeds+=("$kept"); fi
  echo "== $target"
  log=build/fuzz/$target.log
  if ! build/fuzz/tests/"$target" -max_total_time="$seconds" -max_len="$bytes" -rss_limit_mb=2048 -timeout=25 \
    -artifact_prefix=build/fuzz/found/ -print_final_stats=1 "${seeds[@]}" >"$log" 2>&1; then
    found=1
  fi
  grep -E '^(INFO: Seed|stat::|SUMMARY|artifact_prefix|Done |==.*ERROR)|Test unit written|DONE ' "$log" || true
  if [[ $keep && -d $kept ]]; then
    build/fuzz/tests/"$target" -merge=1 -max_len="$kept_bytes_max" "$kept" "$corpus" >"$log.merge" 2>&1
  fi
done
exit $found
