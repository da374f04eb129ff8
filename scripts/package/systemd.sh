#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts the units of a .deb under a real systemd: Debian 12 in a folder, booted by systemd-nspawn with a network of its own.
#
#   scripts/package/systemd.sh [DEB] [FOLDER]     DEB: that in dist/; FOLDER: build/systemd, made at the first call
#
# A training of an ordinary user goes NaN there. The daemon of nanwatchd@USER has to read it, nanwatch-serve@USER has to say
# so on /metrics, a daemon that is killed has to be there again, and no unit may fail; then the same with the user's own
# units. Needs root, debootstrap and systemd-container. The training's Python is this machine's, seen from within.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { echo "systemd: $*" >&2; exit 1; }

deb=${1:-$(find dist -name 'nanwatch_*.deb' 2>/dev/null | sort | tail -1)}
folder=${2:-build/systemd}
((EUID == 0)) || fail "a system in a folder needs root"
[[ -f $deb ]] || fail "there is no .deb: make one by scripts/package.sh deb"
for needed in debootstrap systemd-nspawn; do
  command -v $needed >/dev/null || fail "$needed is missing: apt-get install debootstrap systemd-container"
done
python=${NANWATCH_PYTHON:-$PWD/.venv/bin/python}

if [[ ! -e $folder/etc/nanwatch-check-ready ]]; then
  echo "systemd: installing Debian 12 in $folder"
  rm -rf "$folder"
  mkdir -p "$folder"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,curl bookworm "$folder" \
    >"$folder.log" 2>&1 || fail "debootstrap failed, see $folder.log"
  touch "$folder/etc/nanwatch-check-ready"
fi

# What the training needs of this machine, at the same paths.
binds=()
while read -r path; do binds+=("--bind-ro=$path"); done < <("$python" -c '
import os, sys
found = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)))}
print(*sorted(path for path in found if path != "/usr" and not path.startswith("/usr/")), sep="\n")')

rm -rf "$folder/check"
mkdir -p "$folder/check"
cp "$deb" "$folder/check/nanwatch.deb"
cp scripts/package/systemd_within.sh "$folder/check/within.sh"
printf 'python=%q\n' "$(realpath "$(dirname "$python")")/$(basename "$python")" >"$folder/check/settings"
cp scripts/package/training.py "$folder/check/train.py"
cat >"$folder/etc/systemd/system/nanwatch-check.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /check/within.sh
StandardOutput=file:/check/output
StandardError=file:/check/output
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$folder/etc/systemd/system/multi-user.target.wants"
ln -sf ../nanwatch-check.service "$folder/etc/systemd/system/multi-user.target.wants/nanwatch-check.service"

echo "systemd: booting"
timeout 600 systemd-nspawn --quiet --register=no --keep-unit --private-network "${binds[@]}" -D "$folder" --boot --console=pipe \
  >"$folder.boot.log" 2>&1 </dev/null || true
[[ -e $folder/check/output ]] || fail "it did not boot, see $folder.boot.log"
cat "$folder/check/output"
tail -1 "$folder/check/output" | grep -q "^systemd: passed" || fail "failed, see above"
