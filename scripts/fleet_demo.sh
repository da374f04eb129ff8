#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows a fleet on one machine: PostgreSQL in a temporary folder, two gatherers, Prometheus' Alertmanager where it is
# installed, and four "hosts" (a daemon, a state directory, a rank and, where root may make them, a network namespace
# each) that train together. Rank 3 makes a NaN that all receive; the fleet names it.
#
#   scripts/fleet_demo.sh
#
# Installs what is missing, PostgreSQL without a cluster of its own, builds, and leaves nothing behind but that. Debian's
# package of the Alertmanager starts a service, so it is installed only where none would be started, as in a container.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "fleet_demo: $*" >&2; exit 1; }
case ${1:-} in
  "") ;;
  -h | --help) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) fail "'$1' is unknown; see --help" ;;
esac

scripts/setup.sh --fleet-demo
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ||
  fail "PostgreSQL is missing in /usr/lib/postgresql: install it, then run this again"
python=${NANWATCH_PYTHON:-$PWD/.venv/bin/python}
postgres=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
tests=()
[[ -e build/release/build.ninja ]] || tests=(-DNANWATCH_TESTS=OFF)
# Also where there is a tree: it may have been made while libpqxx was missing.
cmake --preset release -DNANWATCH_PYTHON:FILEPATH="$python" "${tests[@]}" >/dev/null
cmake --build --preset release --target nanwatch nanwatchd nanwatch-gather nanwatch_entry nanwatch_observer
bin=$PWD/build/release/bin

folder=$(mktemp -d)
as_user=()
if ((EUID == 0)); then as_user=(runuser -u postgres --); fi
cleanup() {
  local jobs
  mapfile -t jobs < <(jobs -p)
  if ((${#jobs[@]})); then kill "${jobs[@]}" 2>/dev/null || true; wait || true; fi
  "${as_user[@]}" "$postgres/pg_ctl" stop -m immediate -D "$folder/pg/data" >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap cleanup EXIT

# Each host in a network of its own, joined by a bridge in another: all of it ends with the processes that hold it.
namespaces=() hub=() address=127.0.0.1
new_namespace() {
  unshare -n sleep infinity 2>/dev/null &
  namespaces+=($!)
  for _ in {1..50}; do
    [[ $(readlink /proc/$!/ns/net) != $(readlink /proc/self/ns/net) ]] && break
    kill -0 $! 2>/dev/null || return 1
    sleep 0.1
  done
  nsenter -t $! -n -- ip link set lo up
}
make_network() {
  local rank pid
  new_namespace || return 1
  local in_hub=(nsenter -t "${namespaces[0]}" -n -- ip)
  "${in_hub[@]}" link add br0 type bridge && "${in_hub[@]}" addr add 10.77.0.1/24 dev br0 && "${in_hub[@]}" link set br0 up || return 1
  for rank in 0 1 2 3; do
    new_namespace || return 1
    pid=${namespaces[rank + 1]}
    "${in_hub[@]}" link add "host$rank" type veth peer name eth0 netns "$pid" &&
      "${in_hub[@]}" link set "host$rank" master br0 up &&
      nsenter -t "$pid" -n -- ip addr add "10.77.0.1$rank/24" dev eth0 &&
      nsenter -t "$pid" -n -- ip link set eth0 up || return 1
  done
}
if make_network 2>/dev/null; then
  echo "fleet_demo: a network namespace for each host"
  hub=(nsenter -t "${namespaces[0]}" -n --) address=10.77.0.1
else
  namespaces=()
  echo "fleet_demo: without network namespaces, which are not allowed here"
fi

echo "fleet_demo: PostgreSQL in $folder"
chmod 711 "$folder"
# Whoever reaches its socket is its superuser: nobody but us, and postgres where we are root.
mkdir -m 700 "$folder/pg"
if ((EUID == 0)); then chown postgres "$folder/pg"; fi
"${as_user[@]}" "$postgres/initdb" -D "$folder/pg/data" -U owner -A trust --no-sync >/dev/null
"${as_user[@]}" "$postgres/pg_ctl" start -w -D "$folder/pg/data" -l "$folder/pg/log" \
  -o "-c listen_addresses='' -c unix_socket_directories=$folder/pg -c unix_socket_permissions=0700" >/dev/null
database() { echo "host=$folder/pg dbname=postgres user=$1"; }
"$bin/nanwatch-gather" maintain --database "$(database owner)"
"$postgres/psql" -q -d "$(database owner)" -c \
  "CREATE ROLE sender LOGIN IN ROLE nanwatch_ingest; CREATE ROLE asker LOGIN IN ROLE nanwatch_read;
   CREATE ROLE alerter LOGIN IN ROLE nanwatch_read, nanwatch_alert"

(umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' ' >"$folder/token")

# Each says in its log where it listens.
urls=()
for number in 1 2; do
  "${hub[@]}" "$bin/nanwatch-gather" serve --listen "$address:0" --token-file "$folder/token" --database "$(database sender)" --read-database "$(database asker)" \
    2>"$folder/gather$number" &
  for _ in {1..600}; do
    grep -qs 'listening at' "$folder/gather$number" && break
    kill -0 $! 2>/dev/null || fail "a gatherer ended: $(cat "$folder/gather$number")"
    sleep 0.1
  done
  urls+=("$(sed -n 's/.*listening at //p' "$folder/gather$number")")
done
echo "fleet_demo: gatherers at ${urls[*]}"

manager=""
if command -v prometheus-alertmanager amtool ss >/dev/null; then
  printf 'route: {receiver: nobody}\nreceivers: [{name: nobody}]\n' >"$folder/alertmanager.yml"
  "${hub[@]}" prometheus-alertmanager --config.file="$folder/alertmanager.yml" --storage.path="$folder/alerts" \
    --web.listen-address="$address:0" --cluster.listen-address= >"$folder/manager" 2>&1 &
  for _ in {1..600}; do
    manager=$("${hub[@]}" ss -Hltnp | sed -n "s/.* \([^ ]*:[0-9]*\) .*pid=$!,.*/http:\/\/\1/p")
    [[ -n $manager ]] && break
    kill -0 $! 2>/dev/null || fail "the Alertmanager ended: $(tail -n 3 "$folder/manager")"
    sleep 0.1
  done
  "${hub[@]}" "$bin/nanwatch-gather" alert --database "$(database alerter)" --alertmanager "$manager" 2>"$folder/alert" &
  echo "fleet_demo: Alertmanager at $manager"
else
  echo "fleet_demo: without an Alertmanager, which is not installed (Debian: prometheus-alertmanager)"
fi

# Sets `host`: what a command is started with on one of the hosts. Not a function around the command, so that $! is
# the command's own process.
on_host() {
  host=()
  if ((${#namespaces[@]})); then host=(nsenter -t "${namespaces[$1 + 1]}" -n -- env GLOO_SOCKET_IFNAME=eth0); fi
  host+=(env NANWATCH_DIR="$folder/segments$1" NANWATCH_STATE_DIR="$folder/state$1" NANWATCH_JOB=fleet-demo
    NANWATCH_OUTBOX=1 RANK="$1" WORLD_SIZE=4 OMP_WAIT_POLICY=PASSIVE)
}
echo "fleet_demo: four hosts with a rank each"
ranks=() forwarders=() daemons=()
for rank in 0 1 2 3; do
  mkdir -m 700 "$folder/state$rank"
  on_host "$rank"
  "${host[@]}" "$bin/nanwatchd" >"$folder/daemon$rank" 2>&1 &
  daemons+=($!)
  # Before a rank starts one itself, which nobody would end.
  for _ in {1..600}; do
    compgen -G "$folder/segments$rank/daemon*.lock" >/dev/null && break
    kill -0 $! 2>/dev/null || fail "a daemon ended: $(cat "$folder/daemon$rank")"
    sleep 0.1
  done
  "${host[@]}" "$bin/nanwatch" forward --to "${urls[rank % 2]}" --token-file "$folder/token" 2>"$folder/forward$rank" &
  forwarders+=($!)
done
for rank in 0 1 2 3; do
  on_host "$rank"
  "${host[@]}" "$bin/nanwatch" run -- "$python" scripts/demo/fleet_rank.py "$folder/store" >"$folder/run$rank" 2>&1 &
  ranks+=($!)
done
for rank in "${ranks[@]}"; do wait "$rank" || fail "a rank failed: $(tail -n 5 "$folder"/run*)"; done
# What is left goes out.
kill "${daemons[@]}" && wait "${daemons[@]}" || true
kill "${forwarders[@]}" && wait "${forwarders[@]}" || true
for rank in 0 1 2 3; do
  on_host "$rank"
  "${host[@]}" "$bin/nanwatch" forward --once --to "${urls[rank % 2]}" --token-file "$folder/token" 2>&1 |
    sed '/goes over plain http/d'
done

fleet=(--fleet "${urls[1]}" --token-file "$folder/token")
echo "fleet_demo: nanwatch report fleet-demo --fleet ${urls[1]}"
"${hub[@]}" "$bin/nanwatch" report fleet-demo "${fleet[@]}" 2>&1 | sed '/goes over plain http/d'
if [[ -n $manager ]]; then
  echo "fleet_demo: amtool alert query --alertmanager.url=$manager"
  for _ in {1..300}; do
    "${hub[@]}" amtool alert query --alertmanager.url="$manager" -o extended >"$folder/said" 2>&1
    grep -q NanwatchAnomaly "$folder/said" && break
    sleep 0.1
  done
  cat "$folder/said"
fi
