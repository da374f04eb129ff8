#!/usr/bin/env bash
# Asks a GPU what only a GPU can answer (tests/gpu), and writes one result file with the machine's description.
#
#   scripts/gpu_check.sh [--parts DIR] [--programs DIR] [--out DIR]
#   scripts/gpu_check.sh --pack DIR      where everything can be built: leaves there what a bare machine needs as --parts
#   scripts/gpu_check.sh --dry-run       asks on the CPU, in small, to see that all fits together; keeps no answer, writes no file
#   scripts/gpu_check.sh --list          the questions
#
# Needs a Python whose torch sees a GPU (NANWATCH_PYTHON; else .venv, else python3) and a C++ compiler. Installs nothing. The tools
# come from --parts (default: build/gpu/parts), else from build/release; the observer is built here. What is missing is said line by
# line, and the questions that need it are not asked. Results go to --out (default: tests/gpu/results), as .json and .txt.
# Exit status: 0 every question that could be asked was; 1 one failed, or wrong use; 77 no GPU: nothing was run.
set -euo pipefail
readonly caller=$PWD
cd "$(dirname "$0")/.."

fail() { echo "gpu_check: $*" >&2; exit 1; }

readonly files=(kernels sums measures verdicts no_sync steps)
readonly build_s_max=240 ask_s_max=300
work=build/gpu  # relative, as all that is said in a result: it is no matter where the tree lies
parts=$PWD/$work/parts out=tests/gpu/results programs="" pack="" list=false dry_run=()
while (($#)); do
  case $1 in
    --parts | --programs | --out | --pack)
      (($# > 1)) || fail "$1 needs a folder"
      declare "${1#--}=$(cd "$caller" && realpath -m -- "$2")"
      shift 2
      ;;
    --dry-run) dry_run=(--dry-run); shift ;;
    --list) list=true; shift ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "'$1' is unknown; see --help" ;;
  esac
done

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

pack_parts() {
  local release=build/release needs size
  cmake --preset release >/dev/null
  cmake --build "$release" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}" --target nanwatch nanwatchd nanwatch_entry nanwatch_observer >/dev/null
  rm -rf "$pack"
  mkdir -p "$pack/bin" "$pack/lib/nanwatch" "$pack/include"
  install -m 755 "$release"/bin/nanwatch "$release"/bin/nanwatchd "$pack/bin"
  install -m 755 "$release"/lib/libnanwatch.so "$pack/lib"
  install -m 755 "$release"/lib/nanwatch/*.so "$pack/lib/nanwatch"
  strip --strip-debug "$pack"/bin/* "$pack"/lib/*.so "$pack"/lib/nanwatch/*.so
  needs=$(ldd "$pack"/bin/* | grep -vE '^/|^[^=]*:$|linux-vdso|ld-linux|lib(c|m|dl|pthread|rt)\.so' || true)
  [[ -z $needs ]] || fail "the tools need libraries that a bare machine may not have:$needs"
  boost_headers | while read -r header; do install -D -m 644 "$header" "$pack/include/boost/${header#*/boost/}"; done
  git rev-parse HEAD >"$pack/commit"
  size=$(du -sm "$pack" | cut -f1)
  ((size < 64)) || fail "$pack has $size MiB, more than the 64 that it may have"
  echo "gpu_check: $pack, $size MiB: carry it to the machine with the GPU, and name it by --parts"
}

# ---- parts here

# part NAME STATE WORDS: one line for people, and one for the result.
part() {
  echo "part $1: $2${3:+: $3}"
  printf '%s\t%s\t%s\n' "$1" "$2" "${3:-}" >>"$work/parts.tsv"
}

# What a log says of why: its first error, else its last line.
why_in() { { grep -m1 -E 'error:|Error at|Error:' "$1" || grep -v '^ *$' "$1" | tail -1 || true; } | sed "s|$PWD/||g" | cut -c1-300; }

make_grid_for() {
  if ${CXX:-g++} -std=c++20 -O2 -shared -fPIC -fvisibility=hidden -I. tests/gpu/grid_for.cc -o "$work/libgrid_for.so" >"$work/grid_for.log" 2>&1; then
    part grid_for built "tests/gpu/grid_for.cc"
  else
    part grid_for missing "it did not compile: $(why_in "$work/grid_for.log")"
  fi
}

take_tools() {
  local from name
  for from in "$parts" build/release; do
    name=$([[ $from == "$parts" ]] && echo "the packed parts" || echo "build/release")
    [[ -x $from/bin/nanwatch && -x $from/bin/nanwatchd && -e $from/lib/libnanwatch.so ]] || continue
    install -m 755 "$from"/bin/nanwatch "$from"/bin/nanwatchd "$prefix/bin"
    install -m 755 "$from"/lib/libnanwatch.so "$prefix/lib"
    if "$prefix/bin/nanwatch" --version >"$work/tools.log" 2>&1; then
      part tools taken "from $name, $(head -1 "$work/tools.log")"
      return
    fi
    rm -f "$prefix"/bin/* "$prefix"/lib/libnanwatch.so
    part tools useless "those of $name do not run here: $(why_in "$work/tools.log")"
  done
  part tools missing "neither --parts nor build/release has them: pack them elsewhere with --pack"
}

make_observer() {
  local began=$SECONDS packed
  if CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) CPATH=$parts/include${CPATH:+:$CPATH} timeout "$build_s_max" \
    scripts/build-observer.sh --python "$python" --prefix "$prefix" --no-setup >"$work/observer.log" 2>&1; then
    part observer built "in $((SECONDS - began)) s"
    return
  fi
  part observer not_built "$(why_in "$work/observer.log") (all of it: $work/observer.log)"
  packed=$(ls "$parts"/lib/nanwatch/*.so 2>/dev/null || true)
  if [[ -n $packed ]]; then
    install -m 755 "$parts"/lib/nanwatch/*.so "$prefix/lib/nanwatch"
    part observer taken "the packed one, built elsewhere"
  else
    part observer missing "and none was packed"
  fi
}

prove_observer() {
  [[ -e $prefix/lib/libnanwatch.so ]] || return 0
  if NANWATCH_DIR=$segments LD_PRELOAD=$prefix/lib/libnanwatch.so "$python" -c \
    'import sys; sys.path.insert(0, "tests/bench/overhead"); import observer_switch; observer_switch.ObserverSwitch()' >"$work/prove.log" 2>&1; then
    part observer_in_torch works
  else
    part observer_in_torch fails "$(why_in "$work/prove.log")"
  fi
}

# ---- the questions

# ask FILE SECONDS_MAX WORDS...: whatever becomes of it, the others are asked too.
ask() {
  local file=$1 limit=$2 status=0 left=$((asking_until - SECONDS))
  shift 2
  if ((left < 15)); then
    printf '%s\t%s\n' "$file" "the $ask_s_max s for all questions were over" >>"$work/endings.tsv"
    return
  fi
  ((limit < left)) || limit=$left
  timeout --kill-after=10 "$limit" "$@" --answers "$work/answers.jsonl" "${dry_run[@]}" || status=$?
  case $status in
    0 | 1) printf '%s\t%s\n' "$file" "tests/gpu/$file.py ended before it (status $status)" ;;
    124 | 137) printf '%s\t%s\n' "$file" "tests/gpu/$file.py was stopped after $limit s" ;;
    *) printf '%s\t%s\n' "$file" "tests/gpu/$file.py ended with status $status" ;;
  esac >>"$work/endings.tsv"
}

list_questions() {
  for file in "${files[@]}"; do "$python" tests/gpu/"$file".py --list; done
}

if $list; then list_questions; exit; fi
if [[ -n $pack ]]; then pack_parts; exit; fi

sees_gpu=0
"$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else 77)' 2>/dev/null || sees_gpu=$?
((sees_gpu != 77 || ${#dry_run[@]} > 0)) || { echo "gpu_check: no GPU: nothing was run"; exit 77; }
((sees_gpu == 0 || sees_gpu == 77)) || fail "$python cannot import torch: nothing was run"

mkdir -p "$work"
rm -f "$work"/*.tsv "$work"/*.jsonl
prefix=$PWD/$work/prefix
rm -rf "$prefix"
mkdir -p "$prefix/bin" "$prefix/lib/nanwatch"
segments=$(mktemp -d)
trap 'rm -rf "$segments"' EXIT

make_grid_for
take_tools
make_observer
prove_observer
list_questions >"$work/questions.tsv"

asking_until=$((SECONDS + ask_s_max))
export PYTHONUNBUFFERED=1
tools=(--nanwatch "$work/prefix/bin/nanwatch") grid=(--grid-for "$work/libgrid_for.so")
watched=(env "NANWATCH_DIR=$segments" "NANWATCH_STATE_DIR=$segments/state" NANWATCH_LEVEL=full)
[[ ! -e $prefix/lib/libnanwatch.so ]] || watched+=("LD_PRELOAD=$prefix/lib/libnanwatch.so")
ask kernels 100 "$python" tests/gpu/kernels.py --seconds 60 "${grid[@]}"
ask sums 30 "$python" tests/gpu/sums.py --seconds 20 "${grid[@]}"
ask measures 30 "$python" tests/gpu/measures.py --seconds 20 "${grid[@]}"
ask no_sync 40 "${watched[@]}" "$python" tests/gpu/no_sync.py
ask verdicts 120 "$python" tests/gpu/verdicts.py "${tools[@]}" ${programs:+--programs "$programs"}
ask steps 150 "${watched[@]}" "$python" tests/gpu/steps.py --seconds 70 "${tools[@]}" "${grid[@]}"

[[ ! -e $parts/commit ]] || cp "$parts/commit" "$work/commit"
"$python" tests/gpu/write_results.py "$work" "$out" "${dry_run[@]}"
