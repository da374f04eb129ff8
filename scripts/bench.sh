#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures what nanwatch costs a job, and prints the tables of tests/bench/README.md. Let nothing else run meanwhile.
#
#   scripts/bench.sh [--quick] [--json FILE] [--clock wall|cpu]
#
# Steps: ratios to the bare step, beside forward hooks, set_detect_anomaly and a TorchDispatchMode check; then
# level auto with a budget of 1 %, by long blocks; then what nanwatch says of itself beside a stopwatch.
# Instructions: our own share of a clean op, by callgrind. Start-up: /bin/true and `import torch`.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=() json=() clock=()
while (($#)); do
  case $1 in
    --quick) quick=(--quick); shift ;;
    --json) (($# > 1)) || { echo "bench: --json needs a file" >&2; exit 1; }; json=(--json "$2"); shift 2 ;;
    --clock) (($# > 1)) || { echo "bench: --clock needs wall or cpu" >&2; exit 1; }; clock=(--clock "$2"); shift 2 ;;
    -h | --help) sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bench: '$1' is unknown; see --help" >&2; exit 1 ;;
  esac
done

scripts/setup.sh --tests
python=${NANWATCH_PYTHON:-$PWD/.venv/bin/python}
cmake --preset release -DNANWATCH_TESTS=ON -DNANWATCH_PYTHON:FILEPATH="$python" >/dev/null
cmake --build --preset release
library=$PWD/build/release/lib/libnanwatch.so
switched=$PWD/build/release/tests/bench/lib/libnanwatch.so  # the same with a switch between levels
segments=$(mktemp -d)
trap 'rm -rf "$segments"' EXIT

echo "machine: $(nproc) cores, $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -1), Linux $(uname -r)"
NANWATCH_DIR=$segments NANWATCH_LEVEL=full LD_PRELOAD=$switched \
  "$python" tests/bench/overhead/step_overhead.py "${quick[@]}" "${json[@]}" "${clock[@]}"
NANWATCH_DIR=$segments NANWATCH_STATE_DIR=$segments NANWATCH_LEVEL=auto NANWATCH_BUDGET=1 LD_PRELOAD=$switched \
  "$python" tests/bench/overhead/auto_budget.py --nanwatch build/release/bin/nanwatch "${quick[@]}" "${clock[@]}"
for level in full canary; do
  NANWATCH_DIR=$segments NANWATCH_STATE_DIR=$segments NANWATCH_LEVEL=$level NANWATCH_MEASURE=25 LD_PRELOAD=$switched \
    "$python" tests/bench/overhead/stopwatch.py --nanwatch build/release/bin/nanwatch "${quick[@]}" "${clock[@]}" --steps mlp,bert,resnet,gpt
done
"$python" tests/bench/overhead/separate_processes.py --preload "$library" "${quick[@]}" "${clock[@]}"
"$python" tests/bench/overhead/startup.py --preload "$library" --python "$python" "${quick[@]}"
"$python" tests/bench/overhead/instructions.py --preload "$switched" --switch build/release/tests/libcallgrind_switch.so
