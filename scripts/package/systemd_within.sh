# SPDX-License-Identifier: Apache-2.0
# What systemd.sh runs within the system that it boots.
set -euo pipefail
source /check/settings
user=trainer
state=/var/lib/nanwatch/$user
metrics=http://127.0.0.1:9464/metrics

fail() {
  echo "systemd: $*"
  journalctl --no-pager -o cat -u "nanwatch*" -n 40 || true
  exit 1
}
# await WHAT COMMAND...: until it succeeds.
await() {
  local what=$1 deadline=$((SECONDS + 120))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || fail "$what did not come"
    sleep 0.2
  done
}
as_user() { runuser -u $user -- env -C /check HOME=/home/$user XDG_RUNTIME_DIR="/run/user/$(id -u $user)" "$@"; }
has_anomaly() { curl -sf $metrics | grep -q '^nanwatch_anomalies_total{.*class="produce".* 1$'; }

# That its sandbox is one: a user's systemd passes over what it may not set up.
is_confined() {
  local pid
  pid=$(as_user systemctl --user show -P MainPID "$1")
  grep -q '^CapBnd:[[:space:]]*0*$' "/proc/$pid/status" || fail "$1 of the user keeps capabilities"
  for kind in user mnt; do
    [[ $(readlink "/proc/$pid/ns/$kind") != $(readlink /proc/1/ns/$kind) ]] || fail "$1 of the user has no $kind namespace of its own"
  done
}
exposure_of_user() {
  as_user systemd-analyze --user security --offline=yes --threshold=30 --no-pager /usr/lib/systemd/user/"$1".service | tail -1
}

was_restarted() { [[ $(systemctl show -P NRestarts nanwatchd@$user) == 1 ]] && systemctl is-active nanwatchd@$user; }

# systemd-nspawn puts a boot id of its own over the kernel's, which a unit with ProtectKernelTunables does not see. A host has
# one.
echo "boot id: $(cat /proc/sys/kernel/random/boot_id), in a unit: $(systemd-run --quiet --pipe --wait -p ProtectKernelTunables=yes \
  cat /proc/sys/kernel/random/boot_id)"
while umount /proc/sys/kernel/random/boot_id 2>/dev/null; do :; done
chmod 711 /root
ip link set lo up 2>/dev/null || true
dpkg -i /check/nanwatch.deb
id $user >/dev/null 2>&1 || useradd --create-home $user
rm -rf /var/lib/nanwatch /home/$user/.local

echo "-- units of the system"
systemctl daemon-reload
systemctl start nanwatchd@$user nanwatch-serve@$user
await "/metrics" curl -sf $metrics
as_user NANWATCH_STATE_DIR=$state nanwatch run -- "$python" train.py || fail "the training failed"
await "the anomaly on /metrics" has_anomaly
echo "metrics: $(curl -s $metrics | grep '^nanwatch_anomalies_total{' | cut -c1-120)"
systemctl kill --signal=KILL nanwatchd@$user
await "the daemon's restart" was_restarted
for unit in nanwatchd@$user nanwatch-serve@$user; do
  systemctl stop $unit
  [[ $(systemctl show -P Result $unit) == success ]] || fail "$unit ended with $(systemctl show -P Result $unit)"
  echo "$unit: started, stopped, $(systemctl show -P NRestarts $unit) restarts, $(systemd-analyze security --no-pager $unit | tail -1)"
done

echo "-- units of the user"
rm -rf /var/lib/nanwatch
loginctl enable-linger $user
await "the user's systemd" as_user systemctl --user is-active default.target
as_user systemctl --user start nanwatchd nanwatch-serve
await "/metrics" curl -sf $metrics
as_user nanwatch run -- "$python" train.py || fail "the training failed"
await "the anomaly on /metrics" has_anomaly
for unit in nanwatchd nanwatch-serve; do
  as_user systemctl --user is-active --quiet $unit || fail "$unit is not active"
  is_confined $unit
  as_user systemctl --user stop $unit
  [[ $(as_user systemctl --user show -P Result $unit) == success ]] || fail "$unit of the user did not end well"
  exposure=$(exposure_of_user $unit) || fail "$unit of the user: $exposure"
  echo "$unit of the user: confined, started, stopped, $exposure"
done
# A job in a unit of its own.
mkdir -p /home/$user/.config/systemd/user
printf '[Service]\nType=oneshot\nExecStart=/usr/bin/nanwatch run --verdict %%h/verdict.json -- %s /check/train.py\n' "$python" \
  >/home/$user/.config/systemd/user/training.service
chown -R $user: /home/$user/.config
as_user systemctl --user daemon-reload
as_user systemctl --user start training || fail "the training in a unit failed"
grep -q '"verdict": *"anomaly"' /home/$user/verdict.json || fail "the verdict of the training in a unit is not an anomaly"
echo "a training in a unit of the user: watched"
# As the unit says for where user namespaces are forbidden.
mkdir -p /home/$user/.config/systemd/user/nanwatchd.service.d
printf '[Service]\nPrivateUsers=no\nCapabilityBoundingSet=~\n' >/home/$user/.config/systemd/user/nanwatchd.service.d/override.conf
chown -R $user: /home/$user/.config
as_user systemctl --user daemon-reload
as_user systemctl --user start nanwatchd
await "the daemon without a user namespace" as_user systemctl --user is-active nanwatchd
as_user systemctl --user stop nanwatchd
rm -r /home/$user/.config/systemd
echo "nanwatchd of the user, PrivateUsers=no: started, stopped"
echo "systemd: passed under systemd $(systemctl --version | head -1 | cut -d' ' -f2)"
