# SPDX-License-Identifier: Apache-2.0
"""setup_test.py SOURCE_TREE PYTHON: scripts/setup.sh on machines that lack packages, with programs that stand in for apt and dpkg.

The stand-in of dpkg-query knows the packages of a list and, as the real one, fails when asked for another.
"""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile

DPKG_QUERY = """#!/bin/sh
# dpkg-query -W -f FORMAT PACKAGE...
shift 3
status=0
for package in "$@"; do
  if grep -qx "$package" "$KNOWN"; then printf 'install ok installed %s ' "$package"
  else echo "dpkg-query: no packages found matching $package" >&2; status=1; fi
done
exit $status
"""
# It says which clusters PostgreSQL's package would make.
APT_GET = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in *" postgresql") cat "$NANWATCH_CREATECLUSTER_D"/* >>"$CLUSTERS";; esac
exit "${APT_STATUS:-0}"
"""
SUDO = """#!/bin/sh
[ "$1" = -n ] && shift
exec "$@"
"""


def stand_in(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run_setup(tree, python, known, apt_status=0, options=(), policy="exit 0"):
    """The finished process, and the packages that apt-get was asked to install. What PostgreSQL was told of clusters is `ran.clusters`."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for program, text in (("dpkg-query", DPKG_QUERY), ("apt-get", APT_GET), ("sudo", SUDO)):
            stand_in(folder, program, text)
        stand_in(folder, "policy-rc.d", f"#!/bin/sh\n{policy}\n")
        (folder / "known").write_text("".join(f"{package}\n" for package in known))
        (folder / "calls").touch()
        (folder / "clusters").touch()
        ran = subprocess.run(
            [f"{tree}/scripts/setup.sh", *options], capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "KNOWN": str(folder / "known"),
                 "CALLS": str(folder / "calls"), "CLUSTERS": str(folder / "clusters"),
                 "NANWATCH_CREATECLUSTER_D": str(folder / "etc/createcluster.d"), "APT_STATUS": str(apt_status), "NANWATCH_POLICY_RC_D": str(folder / "policy-rc.d"), "NANWATCH_PYTHON": python})
        ran.clusters = (folder / "clusters").read_text()
        ran.left = list((folder / "etc/createcluster.d").glob("*"))
        installs = [line.split() for line in (folder / "calls").read_text().splitlines() if " install " in line]
    return ran, [word for words in installs for word in words[words.index("--no-install-recommends") + 1:]]


def expect(condition, what, ran):
    if not condition:
        sys.exit(f"{what}\nstatus {ran.returncode}\n{ran.stdout}{ran.stderr}")


def main():
    tree, python = sys.argv[1:]
    ran, everything = run_setup(tree, python, [])
    expect(ran.returncode == 0 and "libprotobuf-dev" in everything and "cmake" in everything,
           "on a machine with no package, all are asked for", ran)

    expect(not {"libpqxx-dev", "libcurl4-openssl-dev", "curl", "postgresql"} & set(everything),
           "what only a gatherer needs is not asked for", ran)

    lacking = ["ccache", "libprotobuf-dev"]
    ran, installed = run_setup(tree, python, [package for package in everything if package not in lacking])
    expect(ran.returncode == 0 and sorted(installed) == lacking, f"asked for {installed}, not for {lacking}", ran)

    ran, installed = run_setup(tree, python, everything)
    expect(ran.returncode == 0 and not installed and not ran.stdout, "with all there, nothing is done or said", ran)

    ran, _ = run_setup(tree, python, [], apt_status=100)
    expect(ran.returncode == 1 and "apt-get could not install" in ran.stderr, "a failing apt-get is told", ran)

    ran, installed = run_setup(tree, python, [], options=["--tests"], policy="exit 101")
    expect(ran.returncode == 0 and "slurmctld" in installed, "Slurm is installed where services are not started", ran)
    ran, installed = run_setup(tree, python, [], options=["--tests"])
    expect(ran.returncode == 0 and "valgrind" in installed and "slurmctld" not in installed, "and nowhere else", ran)

    for options in (["--fleet"], ["--tests"]):
        ran, installed = run_setup(tree, python, [], options=options)
        expect(ran.returncode == 0 and {"libpqxx-dev", "curl"} <= set(installed) and "postgresql" not in installed,
               "a gatherer is built where it is wanted; its database is a service", ran)

    for status in (0, 100):
        ran, installed = run_setup(tree, python, [*everything, "libpqxx-dev", "curl"], options=["--fleet-demo"], apt_status=status)
        expect(installed == ["postgresql"] and ran.clusters == "create_main_cluster = false\n" and not ran.left and bool(ran.returncode) == bool(status),
               "the demo's PostgreSQL comes without a cluster, and later ones as before", ran)
    ran, installed = run_setup(tree, python, [*everything, "libpqxx-dev", "curl", "postgresql"], options=["--fleet-demo"], policy="exit 101")
    expect(ran.returncode == 0 and installed == ["prometheus-alertmanager"], "what would start a service is installed where none is started", ran)


main()
