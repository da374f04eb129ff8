#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fault tests (tests/faults/README.md), one line each: what it is, how long it took, ok or failed.
#
#   scripts/faults.sh [--long] [--seed N] [NUMBER...]
#
# --long runs the long form: some ten minutes for test 16, minutes for others. A seed that is not given is a new one.
# NUMBER: only these tests, by their number in the table. Needs a build (scripts/test.sh). Exit status 1: one failed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${NANWATCH_BUILD:-$PWD/build/release}

seed=$RANDOM$RANDOM
wanted=()
while (($#)); do
  case $1 in
    --long) export NANWATCH_FAULTS_LONG=1 ;;
    --seed) seed=$2; shift ;;
    *) wanted+=("$1") ;;
  esac
  shift
done
export NANWATCH_FAULTS_SEED=$seed
echo "seed $seed"

failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# one NUMBER NAME COMMAND...
one() {
  local number=$1 name=$2 begun=$SECONDS result=ok
  shift 2
  if ((${#wanted[@]})) && [[ " ${wanted[*]} " != *" $number "* ]]; then return; fi
  if ! "$@" >"$log" 2>&1; then
    result="FAILED: $*"
    failed=1
  fi
  printf '%2s  %-44s %5ds  %s\n' "$number" "$name" $((SECONDS - begun)) "$result"
  if [[ $result != ok ]]; then tail -n 20 "$log"; fi
}
# A binary of unit tests and its cases.
# A filter that fits nothing is a mistake here.
cases() {
  "$build/tests/$1" --gtest_brief=1 --gtest_filter="$2" | tee "$log.cases"
  local result=${PIPESTATUS[0]}
  if grep -q '^\[==========\] 0 tests' "$log.cases"; then result=1; fi
  rm -f "$log.cases"
  return "$result"
}
faults() { cases nanwatch_faults_test "$1"; }
e2e() { ctest --test-dir "$build" --output-on-failure --no-tests=error -R "$1"; }
all() { local command; for command in "$@"; do eval "$command" || return 1; done; }

one 1 "a job is killed while it writes" cases nanwatch_ring_process_test 'RingWithAKilledWriter.*'
one 2 "a job crashes after a NaN" e2e 'promise\.crashes$'
one 3 "the daemon is killed while it reads" all "cases nanwatch_daemon_process_test 'KilledDaemonTest.*'" \
  "cases nanwatch_ring_process_test 'RingWithAKilledReader.*'"
one 4 "the daemon is killed while it stores" faults 'KilledInStoreTest.*'
one 5 "the daemon is stopped" faults 'StoppedDaemonTest.*'
one 6 "a thread of the job is stopped" faults 'StoppedWriterTest.*'
one 7 "the disk is full" faults 'DiskFullTest.*'
one 8 "the disk is slow" faults 'SlowDiskTest.*'
one 9 "the disk gives errors; a power cut" faults 'DiskErrorsTest.*:PowerCutTest.*'
one 10 "the database is spoilt" faults 'SpoiltStoreTest.*'
one 11 "the state directory vanishes" faults 'VanishedStateTest.*'
one 12 "the clock jumps" faults 'ClockJumpsTest.*'
one 13 "job and daemon stand still" all "cases nanwatch_ingest_test 'WriterLivenessTest.*'" "faults 'StoppedDaemonTest.*:*FrozenCgroupTest.*'"
one 14 "hostile indexes" all "faults 'HostileIndexTest.*'" "cases nanwatch_ring_process_test '*HostileMemory.*'"
one 15 "hostile records" all "faults 'HostileRecordsTest.*'" "$build/tests/segment_fuzz --rounds 1000 --seed $seed"
one 16 "a segment that changes while it is read" faults 'DoubleFetchTest.*'
one 17 "a segment is cut or replaced" all "cases nanwatch_ingest_test 'GuardedMappingTest.*:*CutShort*'" \
  "cases nanwatch_host_test 'CutSegment.*:RemovedSegment.*'" "cases nanwatch_loop_test '*CutShort*:*MadeAnew*:*ACopy*'"
one 18 "something else has our name" all "cases nanwatch_host_test 'SegmentDirectory.*'" \
  "cases nanwatch_ingest_test '*RefusesSymbolicLinksAndFifos'"
one 19 "files of others" all "cases nanwatch_host_test 'SegmentDirectory.*'" "faults 'SpoofedRunTest.AFile*'"
one 21 "claims to be another run" faults 'SpoofedRunTest.*'
one 22 "more than the daemon can take" faults 'TooManyTest.*'
one 23 "a storm of findings" all "e2e 'promise\.storm$'" "cases nanwatch_emit_test '*'"
one 24 "forks" e2e 'entry_(fork|inert)_test|promise\.(forked_child|children)$'
one 25 "other loaders and processes" e2e 'entry_|other_torch'
one 26 "ways to end" e2e 'promise\.(crashes|ended_job)$|property\.twins'
one 27 "many threads" all "cases nanwatch_wire_test '*Thread*'" "cases nanwatch_emit_test '*Thread*'"
one 28 "other versions" all "cases nanwatch_ingest_test '*Version*:SegmentFileTest.*'" \
  "cases nanwatch_store_test 'DatabaseFileTest.*'"
one 29 "containers and small file systems" all "cases nanwatch_host_test '*Room*'" "e2e 'promise\.(containers|shared_memory)$'"
one 30 "numbers of every kind" e2e 'check_property_test|promise\.unusual_tensors$'
one 31 "faults between hosts and a fleet's database" e2e 'fleet\.faults$'
one 32 "a hostile sender of a fleet" e2e 'fleet\.hostile$'
exit $failed
