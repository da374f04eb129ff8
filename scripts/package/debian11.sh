#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries a wheel on an older system: Debian 11 (glibc 2.31, Python 3.9) in a folder, with the newest torch for that Python.
#
#   scripts/package/debian11.sh [WHEEL] [FOLDER]     WHEEL: that in dist/; FOLDER: build/debian11, made at the first call
#
# A small training goes NaN there under `nanwatch run`, and the verdict has to name the op. The wheel needs the observer for
# torch 2.8: scripts/package.sh wheel --all-torches. Needs root, debootstrap and, at the first call, 12 GB and ten minutes.
# Everything stays in FOLDER.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { echo "debian11: $*" >&2; exit 1; }

torch=2.8.0
wheel=${1:-$(find dist -name 'nanwatch-*.whl' 2>/dev/null | sort | tail -1)}
folder=${2:-build/debian11}
((EUID == 0)) || fail "a system in a folder needs root"
[[ -f $wheel ]] || fail "there is no wheel: make one by scripts/package.sh wheel --all-torches"
python=${NANWATCH_PYTHON:-$PWD/.venv/bin/python}
if [[ ${NANWATCH_DEBIAN11_APART:-} != 1 ]]; then
  # What is mounted below goes with this process.
  NANWATCH_DEBIAN11_APART=1 exec unshare --mount "$0" "$@"
fi

within() { chroot "$folder" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }

if [[ ! -e $folder/usr/bin/pip3 ]]; then
  command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
  mkdir -p "$folder"
  echo "debian11: installing Debian 11 in $folder"
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip bullseye "$folder" >"$folder.log" 2>&1 ||
    fail "debootstrap failed, see $folder.log"
fi
mount -t proc proc "$folder/proc"
mount --rbind /dev "$folder/dev"
if [[ ! -e $folder/nanwatch/ready ]]; then
  echo "debian11: installing torch $torch"
  mkdir -p "$folder/nanwatch/wheels"
  platforms=()
  for tag in manylinux1 manylinux2010 manylinux2014 manylinux_2_17 manylinux_2_27 manylinux_2_28; do
    platforms+=(--platform "${tag}_$(uname -m)")
  done
  # By this machine's pip, which knows its own index and proxies, and asks for what torch needs on its own Python.
  "$python" -m pip download --quiet --only-binary=:all: --implementation cp --python-version 3.9 --abi cp39 "${platforms[@]}" \
    --platform any --dest "$folder/nanwatch/wheels" "torch==$torch" importlib-metadata
  within python3 -m venv /nanwatch/venv
  within /nanwatch/venv/bin/pip install --quiet --no-index --find-links /nanwatch/wheels torch
  rm -r "$folder/nanwatch/wheels"
  touch "$folder/nanwatch/ready"
fi

cp "$wheel" "$folder/nanwatch/"
within /nanwatch/venv/bin/pip install --quiet --no-index --no-deps --force-reinstall "/nanwatch/$(basename "$wheel")"
cp scripts/package/training.py "$folder/nanwatch/train.py"
within /nanwatch/venv/bin/nanwatch run --verdict /nanwatch/verdict.json -- /nanwatch/venv/bin/python /nanwatch/train.py
found=$(within /nanwatch/venv/bin/python -c '
import nanwatch
verdict = nanwatch.load_verdict("/nanwatch/verdict.json")
origin = verdict["incidents"][0]["origin"]
print(verdict["verdict"], origin["op"], origin["step"])')
[[ $found == "anomaly aten::log 2" ]] || fail "the verdict there is '$found' and not 'anomaly aten::log 2'"
echo "debian11: $(basename "$wheel") works with torch $torch on $(within cat /etc/debian_version)"
