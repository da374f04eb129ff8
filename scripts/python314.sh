#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests attaching to a Python that loads the library by itself (sys.remote_exec, 3.14): a Debian sid in a folder has one, with a torch.
#
#   scripts/python314.sh [FOLDER]     FOLDER: build/python314 if none is named; made at the first call
#
# Needs root, debootstrap and a finished build/release; 4 GB and some minutes at the first call, for Debian's packages and an observer for
# its torch. Everything stays in FOLDER. ctest runs it only where build/python314 exists.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "python314: $*" >&2; exit 1; }

folder=${1:-build/python314}
((EUID == 0)) || fail "a system in a folder needs root"
[[ -x build/release/bin/nanwatch ]] || fail "there is no build/release/bin/nanwatch: build first"
if [[ ${NANWATCH_PYTHON314_APART:-} != 1 ]]; then
  # What is mounted below goes with this process.
  NANWATCH_PYTHON314_APART=1 exec unshare --mount "$0" "$@"
fi

within() { chroot "$folder" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

if [[ ! -e $folder/usr/bin/apt-get ]]; then
  command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
  mkdir -p "$folder"
  debootstrap --variant=minbase sid "$folder" >"$folder.log" 2>&1 || fail "debootstrap failed, see $folder.log"
fi
mount -t proc proc "$folder/proc"
mount --rbind /dev "$folder/dev"
if [[ ! -e $folder/nanwatch/ready ]]; then
  within apt-get -q update >/dev/null
  within apt-get -q -y install --no-install-recommends python3 python3-torch libtorch-dev g++ binutils cmake ninja-build libboost-dev \
    </dev/null >>"$folder.log" 2>&1 || fail "apt-get failed, see $folder.log"
  mkdir -p "$folder/nanwatch/prefix/lib/nanwatch"
  touch "$folder/nanwatch/ready"
fi

mkdir -p "$folder/nanwatch/source" "$folder/nanwatch/prefix/bin" "$folder/nanwatch/prefix/lib"
git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -c | tar -C "$folder/nanwatch/source" -x
within /nanwatch/source/scripts/build-observer.sh --python /usr/bin/python3 --prefix /nanwatch/prefix --no-setup
cp --preserve build/release/bin/nanwatch build/release/bin/nanwatchd "$folder/nanwatch/prefix/bin/"
cp --preserve build/release/lib/libnanwatch.so "$folder/nanwatch/prefix/lib/"
within env NANWATCH_BUILD=/nanwatch/prefix PYTHONDONTWRITEBYTECODE=1 \
  /usr/bin/python3 /nanwatch/source/tests/e2e/promises/late_test.py -v
