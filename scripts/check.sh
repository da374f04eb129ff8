#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the source tree: run it before a commit. CI runs the same (.ci/run).
#
#   scripts/check.sh [--base COMMIT] [--seconds N]
#   scripts/check.sh CHECK...      only these checks, for example: scripts/check.sh format
#   scripts/check.sh --quick       all but tidy
#
#   format    every C and C++ file is as clang-format 14 writes it
#   includes  no #include goes against the order of the layers
#   tidy      clang-tidy 14 on the lines that changed (scripts/tidy.py says since when); needs a build
#   licenses  every source file has an SPDX line
#
# All checks run, whatever the others found. Exit status 1: one of them failed.
set -euo pipefail
cd "$(dirname "$0")/.."

# What runs when no check is named.
checks=(format includes licenses tidy)

fail() { echo "check: $*" >&2; exit 1; }

# Tracked files and those that a commit would add, by the patterns given. A tree that is no repository of git's (an archive, or one
# that belongs to somebody else) has all files below it, but for what is built or installed here.
files() {
  local names=() pattern
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard --deduplicate -- "$@" | while IFS= read -r -d '' path; do
      if [[ -f $path ]]; then printf '%s\0' "$path"; fi
    done
    return
  fi
  for pattern in "$@"; do names+=(-o -path "./$pattern"); done
  find . \( -path ./build -o -path ./.venv -o -path ./.git \) -prune -o -type f \( "${names[@]:1}" \) -printf '%P\0'
}

clang_format() {
  local name
  for name in clang-format-14 clang-format; do
    if "$name" --version 2>/dev/null | grep -q 'version 14\.'; then echo "$name"; return; fi
  done
  echo "check: clang-format 14 is missing: scripts/setup.sh --tests installs it on Debian 12" >&2
  return 1
}

check_format() {
  local program output wrong
  program=$(clang_format) || return 1
  if output=$(files '*.cc' '*.h' '*.c' '*.cu' | xargs -0 -n 50 -P "$(nproc)" "$program" --dry-run -Werror 2>&1); then return; fi
  # clang-format names the place of each difference; the file is enough here.
  mapfile -t wrong < <(sed -nE 's/^([^ :]+):[0-9]+:[0-9]+: error:.*/\1/p' <<<"$output" | sort -u)
  if ((${#wrong[@]} == 0)); then echo "check: $program failed: $output"; return 1; fi
  echo "check: clang-format 14 would change ${#wrong[@]} files; to do that:"
  echo "  $program -i ${wrong[*]}"
  return 1
}

check_includes() {
  if [[ ! -e tests/artifact/include_direction.py ]]; then echo "check: there is no tests/artifact/include_direction.py: includes are not checked"; return; fi
  python3 tests/artifact/include_direction.py
}

check_tidy() { python3 scripts/tidy.py "${tidy_arguments[@]}"; }

# In the first line, or the second where the first names an interpreter.
check_licenses() {
  local missing
  mapfile -t missing < <(files '*.cc' '*.h' '*.c' '*.cu' '*.S' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' '*.proto' '*.cc.in' .ci/run |
    xargs -0 awk 'FNR > 2 { nextfile } /SPDX-License-Identifier: Apache-2\.0/ { has[FILENAME] } FNR == 1 { seen[FILENAME] }
      END { for (name in seen) if (!(name in has)) print name }' | sort)
  if ((${#missing[@]} == 0)); then return; fi
  echo "check: no line 'SPDX-License-Identifier: Apache-2.0' in ${#missing[@]} files:"
  printf '  %s\n' "${missing[@]}"
  return 1
}

tidy_arguments=() named=() quick=false
while (($#)); do
  case $1 in
    --base | --seconds) (($# > 1)) || fail "$1 needs a value"; tidy_arguments+=("$1" "$2"); shift 2 ;;
    --quick) quick=true; shift ;;
    -h | --help) sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    format | includes | tidy | licenses) named+=("$1"); shift ;;
    *) fail "'$1' is unknown; see --help" ;;
  esac
done
if ((${#named[@]})); then checks=("${named[@]}"); fi

failed=() passed=()
for check in "${checks[@]}"; do
  if $quick && [[ $check == tidy ]]; then continue; fi
  if "check_$check"; then passed+=("$check"); else failed+=("$check"); fi
done
((${#failed[@]} == 0)) || fail "failed: ${failed[*]}"
echo "check: passed: ${passed[*]}"
