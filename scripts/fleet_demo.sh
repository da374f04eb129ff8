#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows a fleet on one machine: PostgreSQL in a temporary folder, two gatherers, Prometheus' Alertmanager where it is
# installed, and four "hosts" (a daemon, a state directory and, where root may make them, a network namespace each).
# torchrun starts two jobs of two hosts and four ranks each. In one of them rank 3 makes a NaN that its other ranks
# receive. The fleet shows both jobs and names that rank.
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
  -h | --help) sed -n '3,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
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

# Each host with a name and in a network of its own, joined by a bridge in another: all of it ends with the processes
# that hold it.
namespaces=() hub=() address=127.0.0.1
new_namespace() {
  unshare --net --uts sh -c "hostname $1 && exec sleep infinity" 2>/dev/null &
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
  new_namespace hub || return 1
  local in_hub=(nsenter -t "${namespaces[0]}" -n -- ip)
  "${in_hub[@]}" link add br0 type bridge && "${in_hub[@]}" addr add 10.77.0.1/24 dev br0 && "${in_hub[@]}" link set br0 up || return 1
  for rank in 0 1 2 3; do
    new_namespace "host$rank" || return 1
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

# Hosts 0 and 1 train a job that is healthy, hosts 2 and 3 the one that goes bad.
names=(fleet-demo-healthy fleet-demo)

# Sets `host`: what a command is started with on one of the hosts. Not a function around the command, so that $! is
# the command's own process. In TMPDIR torchrun leaves a folder behind.
on_host() {
  host=()
  if ((${#namespaces[@]})); then host=(nsenter -t "${namespaces[$1 + 1]}" -n -u -- env GLOO_SOCKET_IFNAME=eth0); fi
  host+=(env NANWATCH_DIR="$folder/segments$1" NANWATCH_STATE_DIR="$folder/state$1" NANWATCH_JOB="${names[$1 / 2]}"
    NANWATCH_OUTBOX=1 OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE TMPDIR="$folder")
}

daemons=() forwarders=() launchers=()
start_daemon() {
  mkdir -m 700 "$folder/state$1"
  on_host "$1"
  "${host[@]}" "$bin/nanwatchd" >"$folder/daemon$1" 2>&1 &
  daemons+=($!)
  # Before a rank starts one itself, which nobody would end.
  for _ in {1..600}; do
    compgen -G "$folder/segments$1/daemon*.lock" >/dev/null && break
    kill -0 $! 2>/dev/null || fail "a daemon ended: $(cat "$folder/daemon$1")"
    sleep 0.1
  done
  "${host[@]}" "$bin/nanwatch" forward --to "${urls[$1 % 2]}" --token-file "$folder/token" 2>"$folder/forward$1" &
  forwarders+=($!)
}
# Two ports that differ: without namespaces the jobs share an address.
free_ports() {
  "$python" -c 'import socket
both = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in both))'
}
# A host is a node of its job, and the first of them is the master of the job.
start_ranks() {
  local job=$(($1 / 2)) master=127.0.0.1 arguments
  if ((${#namespaces[@]})); then master=10.77.0.1$((job * 2)); fi
  arguments=(--nnodes=2 --node-rank=$(($1 % 2)) --nproc-per-node=2 --master-addr="$master" --master-port="${ports[job]}"
    --rdzv-id="${names[job]}" scripts/demo/fleet_rank.py)
  if ((job == 1)); then arguments+=(--zero-in-rank=3); fi
  echo "fleet_demo: host $1: nanwatch run -- torchrun ${arguments[*]}"
  on_host "$1"
  # This module is what the command torchrun calls.
  "${host[@]}" "$bin/nanwatch" run -- "$python" -m torch.distributed.run "${arguments[@]}" >"$folder/run$1" 2>&1 &
  launchers+=($!)
}
send_the_rest() {
  on_host "$1"
  "${host[@]}" "$bin/nanwatch" forward --once --to "${urls[$1 % 2]}" --token-file "$folder/token" 2>&1 |
    sed '/goes over plain http/d'
}

for number in 0 1 2 3; do start_daemon "$number"; done
read -ra ports <<<"$(free_ports)"
for number in 0 1 2 3; do start_ranks "$number"; done
for number in 0 1 2 3; do
  wait "${launchers[number]}" || fail "the ranks of host $number failed: $(tail -n 40 "$folder/run$number")"
done
# What is left goes out.
kill "${daemons[@]}" && wait "${daemons[@]}" || true
kill "${forwarders[@]}" && wait "${forwarders[@]}" || true
for number in 0 1 2 3; do send_the_rest "$number"; done

ask() {
  echo "fleet_demo: nanwatch $* --fleet ${urls[1]}"
  "${hub[@]}" "$bin/nanwatch" "$@" --fleet "${urls[1]}" --token-file "$folder/token" 2>&1 | sed '/goes over plain http/d'
}
ask ps
for name in "${names[@]}"; do ask report "$name"; done
if [[ -n $manager ]]; then
  echo "fleet_demo: amtool alert query --alertmanager.url=$manager"
  for _ in {1..300}; do
    "${hub[@]}" amtool alert query --alertmanager.url="$manager" -o extended >"$folder/said" 2>&1
    grep -q NanwatchAnomaly "$folder/said" && break
    sleep 0.1
  done
  cat "$folder/said"
fi
