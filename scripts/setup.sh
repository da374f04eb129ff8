#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building needs, and nothing that is there already.
#
#   scripts/setup.sh            Debian packages, and .venv with the reference torch
#   scripts/setup.sh --tests    also what the tests and benches need
#   scripts/setup.sh --fleet    also what nanwatch-gather needs, and what sends to it
#   scripts/setup.sh --fleet-demo   also PostgreSQL, without a database cluster: no service begins to run
#
# NANWATCH_PYTHON=/path/python uses that Python's torch; no .venv is made then.
# Never asks a question. Quiet and quick when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
  g++ binutils cmake ninja-build ccache
  protobuf-compiler libprotobuf-dev libspdlog-dev libfmt-dev libutf8proc-dev libmbedtls-dev zlib1g-dev libboost-dev libsqlite3-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libjs-dygraphs
  python3 python3-venv
)
# Of curl the library is used, whose package has another name in each release.
fleet_packages=(libpqxx-dev curl)
test_packages=("${fleet_packages[@]}" libcurl4-openssl-dev libgtest-dev libgmock-dev valgrind git procps clang clang-format clang-tidy tmux bubblewrap musl-tools chromium zsh fish lintian)
# These bring services that Debian starts at once. They are installed only where none would be started, as in
# a container; elsewhere their tests skip.
service_test_packages=(munge slurmctld slurmd slurm-client prometheus prometheus-alertmanager postgresql)

fail() { echo "setup: $*" >&2; exit 1; }

# Prints those of its arguments that dpkg does not have installed.
missing_packages() {
  local installed
  # It fails when it does not know one of them, which is what we want to find out.
  installed=" $(dpkg-query -W -f '${Status} ${Package} ' "$@" 2>/dev/null || true) "
  for package in "$@"; do
    [[ $installed == *" install ok installed $package "* ]] || echo "$package"
  done
}

# Whether the system forbids packages to start their services (policy-rc.d says 101 then).
starts_no_services() {
  local status=0
  "${NANWATCH_POLICY_RC_D:-/usr/sbin/policy-rc.d}" munge start >/dev/null 2>&1 || status=$?
  ((status == 101))
}

# Sets `as_root`: what a command that needs root is started with. $1 is what to run by hand where it cannot be had.
as_root=()
become_root() {
  if ((EUID == 0)); then return; fi
  command -v sudo >/dev/null || fail "these Debian packages are missing, and installing them needs root:" \
    "run '$1' as root, then this again"
  as_root=(sudo)
  # Only a person at a terminal can type a password.
  if [[ ! -t 0 || -n ${CI:-} ]]; then as_root=(sudo -n); fi
}

install_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is not a Debian system; make sure that the equivalents of these are installed: $*" >&2
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then return; fi
  become_root "apt-get install ${missing[*]}"
  echo "setup: Debian packages: ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 update </dev/null ||
    echo "setup: apt-get update failed; going on with the package lists that are there" >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends "${missing[@]}" </dev/null ||
    fail "apt-get could not install: ${missing[*]} (its reason stands above)"
}

# PostgreSQL's programs. Debian's package makes a cluster and starts it, unless postgresql-common is told not to.
# A subshell, so that the file is there for this installation alone, however it ends.
install_postgresql() (
  folder=${NANWATCH_CREATECLUSTER_D:-/etc/postgresql-common/createcluster.d}
  file=$folder/nanwatch-setup.conf
  if ! command -v dpkg-query >/dev/null || [[ -z $(missing_packages postgresql) ]]; then exit; fi
  become_root "apt-get install postgresql"
  "${as_root[@]}" mkdir -p "$folder"
  trap '"${as_root[@]}" rm -f "$file"' EXIT
  echo "create_main_cluster = false" | "${as_root[@]}" tee "$file" >/dev/null
  install_packages postgresql
)

# The virtual environment: one pip call for all lists whose present content was not installed yet.
install_venv() {
  local stamp=.venv/nanwatch-setup lists=() arguments=() note=""
  if ! .venv/bin/python -c '' 2>/dev/null; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
      fail "python3 is $(python3 --version 2>&1); 3.10 or newer is needed"
    echo "setup: virtual environment .venv, with $(python3 --version)"
    python3 -m venv --clear .venv || fail "'python3 -m venv .venv' failed (its reason stands above)"
  fi
  mapfile -t lists < <(sha256sum "$@" | grep -vxFf <(cat "$stamp" 2>/dev/null) | cut -d' ' -f3)
  if ((${#lists[@]} == 0)); then return; fi

  [[ " ${lists[*]} " != *" scripts/requirements.txt "* ]] || note=" (torch and what it brings: several GB)"
  echo "setup: Python packages of ${lists[*]}$note"
  # All lists again, so that pip resolves them together.
  for list in "$@"; do arguments+=(-r "$list"); done
  .venv/bin/python -u -m pip install --no-input --disable-pip-version-check "${arguments[@]}" </dev/null |
    sed --unbuffered '/^Requirement already satisfied/d' || fail "pip could not install them (its reason stands above)"
  sha256sum "${lists[@]}" >>"$stamp"
}

# A Python brought by the user has its own torch; whether it is a supported one is for the build to say.
check_given_python() {
  [[ -x $NANWATCH_PYTHON ]] || fail "NANWATCH_PYTHON is '$NANWATCH_PYTHON', which is not a program"
  "$NANWATCH_PYTHON" scripts/cmake/torch_probe.py >/dev/null ||
    fail "NANWATCH_PYTHON is '$NANWATCH_PYTHON', and its torch was not found (the reason stands above)"
}

tests=false fleet=false fleet_demo=false
case ${1:-} in
  "") ;;
  --tests) tests=true ;;
  --fleet) fleet=true ;;
  --fleet-demo) fleet=true fleet_demo=true ;;
  *) fail "'$1' is unknown; the options are --tests, --fleet and --fleet-demo" ;;
esac

packages=("${build_packages[@]}")
requirements=(scripts/requirements.txt)
if $fleet; then packages+=("${fleet_packages[@]}"); fi
# Its package starts it, now and at each start of the machine.
if $fleet_demo && starts_no_services; then packages+=(prometheus-alertmanager); fi
if $tests; then
  packages+=("${test_packages[@]}")
  if starts_no_services; then packages+=("${service_test_packages[@]}"); fi
  requirements+=(scripts/requirements-tests.txt)
fi

install_packages "${packages[@]}"
if $fleet_demo; then install_postgresql; fi
if [[ -n ${NANWATCH_PYTHON:-} ]]; then check_given_python; else install_venv "${requirements[@]}"; fi
