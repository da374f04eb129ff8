#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the observer for the torch of one Python, and puts it beside those for other versions.
#
#   scripts/build-observer.sh --python PYTHON [--prefix DIR] [--no-setup]
#
# PYTHON is the interpreter that runs the training job (only its torch's headers and libraries are used; they come with the
# wheel). DIR is where nanwatch is installed; without it, the observer goes to the prefix that this script was
# installed in, or to the build tree, build/release. With --no-setup nothing
# is installed: for machines without package lists, where Boost's headers may be named by CPATH.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

fail() { echo "build-observer: $*" >&2; exit 1; }

# Relative paths are meant from where the script was called.
from_caller() { if [[ $1 == /* ]]; then echo "$1"; else echo "$caller/$1"; fi; }

python="" prefix=build/release setup=true
# An installed copy lies in PREFIX/share/nanwatch.
if [[ $PWD == */share/nanwatch && -x ${PWD%/share/nanwatch}/bin/nanwatch ]]; then prefix=${PWD%/share/nanwatch}; fi
while (($#)); do
  case $1 in
    --python | --prefix)
      (($# > 1)) || fail "$1 needs a value"
      if [[ $1 == --python ]]; then python=$2; else prefix=$(from_caller "$2"); fi
      shift 2
      ;;
    --no-setup) setup=false; shift ;;
    -h | --help) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "'$1' is unknown; see --help" ;;
  esac
done
[[ -n $python ]] || fail "--python is missing: the interpreter that runs the training job, for example --python .venv/bin/python"
if [[ $python == */* ]]; then python=$(from_caller "$python"); fi
found=$(command -v "$python") || fail "there is no program '$python': --python must name a Python interpreter"
python=$(from_caller "$found")

probe=$("$python" scripts/cmake/torch_probe.py) || fail "no torch found with $python (the reason stands above)"
IFS=';' read -r torch_dir torch_version new_string_abi <<<"$probe"
minor=${torch_version%.*}
# An installed copy may be nobody's to write to.
work=build
mkdir -p build 2>/dev/null && [[ -w build ]] || work=$(mktemp -d -t nanwatch-observer-XXXXXX)
build=$work/observer-$minor
abi=$([[ $new_string_abi == 1 ]] && echo new || echo old)
echo "build-observer: torch $torch_version in $torch_dir, $abi string ABI"

if $setup; then NANWATCH_PYTHON=$python scripts/setup.sh; fi
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_UNITY_BUILD=ON -DNANWATCH_OBSERVER_ONLY=ON \
  -DNANWATCH_PYTHON="$python" >"$build.log" 2>&1 || { cat "$build.log" >&2; fail "cmake failed"; }
# To the log goes everything; to whoever waits, how far it is: each step on a terminal, each tenth of them elsewhere.
show_progress() {
  local line tenth=-1 terminal=false
  if [[ -t 1 ]]; then terminal=true; fi
  while IFS= read -r line; do
    echo "$line" >>"$build.log"
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] && $line != *"Re-checking globbed"* ]] || continue
    if $terminal; then
      printf '\rbuild-observer: %s of %s compiled' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    elif ((BASH_REMATCH[1] * 10 / BASH_REMATCH[2] > tenth)); then
      tenth=$((BASH_REMATCH[1] * 10 / BASH_REMATCH[2]))
      echo "build-observer: ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} compiled"
    fi
  done
  if $terminal; then echo; fi
}
echo "build-observer: compiling takes about a minute; its log is $build.log"
cmake --build "$build" 2>&1 | show_progress || { cat "$build.log" >&2; fail "the observer did not compile"; }

mkdir -p "$prefix/lib/nanwatch"
for built in "$build"/lib/nanwatch/*.so; do
  [[ -e $built ]] || fail "the build left no observer in $build/lib/nanwatch"
  # A job may have the old one mapped: replace the name, leave the file that is in use alone.
  install -m 755 "$built" "$prefix/lib/nanwatch/.new-$(basename "$built")"
  mv -f "$prefix/lib/nanwatch/.new-$(basename "$built")" "$prefix/lib/nanwatch/$(basename "$built")"
  echo "build-observer: $prefix/lib/nanwatch/$(basename "$built")"
done
