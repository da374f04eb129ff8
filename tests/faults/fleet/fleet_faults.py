# SPDX-License-Identifier: Apache-2.0
"""Faults on the way from daemons to the fleet's database, under load: at random moments, then sums are compared.

    fleet_faults.py [--rounds N] [--seed S] [--cut SECONDS] [FAULT...]      by hand; without arguments it is the short form of ctest

NANWATCH_FAULTS_LONG and NANWATCH_FAULTS_SEED are as everywhere (scripts/faults.sh).

Hosts commit all the time. After each round everything that they had committed is in the database, once and in order; the next round begins
with what the one before has left. Nobody does anything meanwhile but to start again what was killed, as systemd would.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/fleet"))
from authority import Authority
from cluster import MISSING, Cluster, Gatherer, await_condition
from host import Host
from network import HUB_ADDRESS, Network
from passage import Passage

HOSTS = 3
ROUNDS = 50 if os.environ.get("NANWATCH_FAULTS_LONG") else 3
# Records that a host commits in a round, at most: an outbox is bounded, and what stands still for long fills it. All rounds are of one run,
# of which it takes a bounded number (kOutboxRecordsPerRunMax of daemon/store/outbox_options.h).
LOAD = 2_000
LOAD_OF_A_RUN = 18_000
CUT_S = 2  # a cut of the network, at most
PATIENCE_S = 60  # and twice as long as a cut: what TCP sends again, it does at ever longer intervals
SEED = int(os.environ.get("NANWATCH_FAULTS_SEED") or random.randrange(1 << 30))


class Scene:
    """Hosts that commit, gatherers, and a database."""

    def __init__(self, seed, context=None, options=(), cluster=None, network=None):
        self.random = random.Random(seed)
        self._load_max = min(LOAD, LOAD_OF_A_RUN // ROUNDS)
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.cluster = cluster or Cluster()
        self.cluster.make_fleet()
        self.network = network
        self.new_gatherer()
        if network:
            self.hosts = [Host(nonce, self.folder, self.gatherer.url, self.gatherer.token_file, *options, prefix=network.hosts[nonce - 1].prefix)
                          for nonce in range(1, HOSTS + 1)]
        else:
            self.passage = Passage(self.gatherer.port, context)
            self.hosts = [Host(nonce, self.folder, self.passage.url, self.gatherer.token_file, *options) for nonce in range(1, HOSTS + 1)]
        self._counts = {host: 0 for host in self.hosts}
        self.lost = 0  # records, of a database that was restored
        self._began = dict(self._counts)  # with this round
        self._locks = {host: threading.Lock() for host in self.hosts}
        self._loading = threading.Event()
        self._ended = False
        self._loads = [threading.Thread(target=self._load, args=(host,)) for host in self.hosts]
        for load in self._loads:
            load.start()

    def _load(self, host):
        while not self._ended:
            self._loading.wait()
            with self._locks[host]:
                try:
                    if self._counts[host] - self._began[host] < self._load_max:
                        self._counts[host] = host.put(5)
                except (OSError, ValueError):
                    pass  # it was killed meanwhile
            self.wait(0.02)

    def wait(self, seconds):
        time.sleep(seconds)

    def moment(self, most=0.6):
        self.wait(self.random.random() * most)

    def kill_daemon(self):
        """While it commits, most times."""
        host = self.random.choice(self.hosts)
        host.kill_daemon()
        with self._locks[host]:
            self.moment(0.2)
            host.start_daemon()

    def kill_forwarder(self):
        host = self.random.choice(self.hosts)
        host.kill_forwarder()
        self.moment(0.2)
        host.start_forwarder()

    def kill_gatherer(self):
        self.gatherer.kill()
        self.moment(0.2)
        self.new_gatherer()

    def new_gatherer(self):
        where = {"listen": f"{HUB_ADDRESS}:0", "prefix": self.network.hub.prefix} if self.network else {}
        self.gatherer = Gatherer(self.cluster, self.folder, "--read-database", self.cluster.connection("asker"), **where)
        if hasattr(self, "passage"):
            self.passage.target = self.gatherer.port

    def commit_on_all(self):
        """A record on each host, which has arrived."""
        for host in self.hosts:
            with self._locks[host]:
                count = self._counts[host] = host.put(1)
            await_condition(lambda h=host, c=count: c - 1 in host_rows(self.cluster, h), f"record {count} of host {host.nonce} arrives: {self.state()}",
                            PATIENCE_S)

    def round(self, fault):
        self._began = dict(self._counts)
        self._loading.set()
        self.moment()
        fault(self)
        self.moment()
        self._loading.clear()
        for host in self.hosts:
            with self._locks[host]:
                # What a killed daemon had committed without a word counts, too.
                self._counts[host] = host.put(1)
        for host, count in self._counts.items():
            await_condition(lambda h=host, c=count: len(host_rows(self.cluster, h)) >= c and host_rows(self.cluster, h) == list(range(c)),
                            f"{count} records of host {host.nonce} are there once: {self.state()}",
                            PATIENCE_S + 2 * CUT_S)

    def state(self):
        return [host.log_path.read_text()[-300:] for host in self.hosts] + [self.gatherer.log()[-300:]]

    def close(self):
        self._ended = True
        self._loading.set()
        for load in self._loads:
            load.join()
        for host in self.hosts:
            host.close()
        if not self.network:
            self.passage.close()
        self.gatherer.kill()
        self.cluster.close()
        self._folder.cleanup()

    def sums(self):
        [[rows, distinct]] = self.cluster.sql("SELECT COUNT(*), COUNT(DISTINCT (daemon, sequence)) FROM nanwatch.fact")
        back = f"; {self.lost} or more were lost and are back" if self.lost else ""
        return f"{sum(self._counts.values())} records in {rows} rows, {distinct} of them distinct{back}"


def host_rows(cluster, host):
    try:
        return host.arrived(cluster)
    except AssertionError:
        return []  # the database is away


def kill_database(scene):
    scene.cluster.kill()
    scene.moment(0.3)
    scene.cluster.start_again()


def cut_network(scene):
    """The links of all hosts are down; where namespaces are not allowed, what is on the way stays there. Nobody hears of it."""
    scene.network.set_links("down") if scene.network else scene.passage.hold()
    scene.moment(CUT_S)
    scene.network.set_links("up") if scene.network else scene.passage.release()


def spoil(mode):
    def fault(scene):
        before, scene.passage.mode = scene.passage.spoiled, mode
        await_condition(lambda: scene.passage.spoiled >= before + 2, f"answers come {mode}")
        scene.passage.mode = "pass"
    return fault


def let_certificate_expire(scene):
    """The one that the server has now; the next is there some time later, as certbot would put it there."""
    scene.passage.context.load_cert_chain(*scene.authority.issue("server", expired=True))
    for host in scene.hosts:  # who is connected stays so
        host.kill_forwarder()
        host.start_forwarder()
    lines = sum(host.log_path.read_text().count("expired") for host in scene.hosts)
    await_condition(lambda: sum(host.log_path.read_text().count("expired") for host in scene.hosts) > lines, "somebody says that it is expired")
    scene.moment(0.3)
    scene.passage.context.load_cert_chain(*scene.authority.issue("server"))


class SmallDisk:
    """Of the database alone, in memory."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="nwdisk"))
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m,mode=0777", "none", self.path], capture_output=True)
        if done.returncode:
            self.path.rmdir()
            raise unittest.SkipTest("tmpfs cannot be mounted here: the full disk of the database is not tried")

    def fill(self):
        with open(self.path / "ballast", "wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(1 << 16))
            except OSError:
                pass

    def free(self):
        (self.path / "ballast").unlink()

    def close(self):
        subprocess.run(["umount", "-l", self.path], check=False)
        self.path.rmdir()


def fill_disk(scene):
    scene.disk.fill()
    scene.moment(2)
    scene.disk.free()
    # Where its log found no room, the server ended itself; who watches over it starts it.
    if not scene.cluster.is_running():
        scene.cluster.start_again()


def restore_backup(scene):
    """What was acknowledged since is with the hosts alone."""
    scene.cluster.back_up()
    scene.moment(2)
    scene.commit_on_all()
    scene.cluster.restore()
    scene.lost += HOSTS  # at least


FAULTS = {
    "forwarder_killed": Scene.kill_forwarder,
    "gatherer_killed": Scene.kill_gatherer,
    "database_killed": kill_database,
    "daemon_killed": Scene.kill_daemon,
    "network_cut": cut_network,
    "answers_dropped": spoil("drop"),
    "answers_late": spoil("late"),
    "answers_twice": spoil("twice"),
    "certificate_expired": let_certificate_expire,
    "disk_full": fill_disk,
    "backup_restored": restore_backup,
}


def make_scene(name, seed):
    if name == "certificate_expired":
        authority = Authority()
        scene = Scene(seed, authority.server_context(), ("--ca", authority.file))
        scene.authority = authority
        return scene, authority.close
    if name == "disk_full":
        disk = SmallDisk()
        scene = Scene(seed, cluster=Cluster(disk.path))
        scene.disk = disk
        return scene, disk.close
    if name == "network_cut":
        try:
            network = Network(HOSTS)
        except OSError as error:
            print(f"without network namespaces ({error}): ", end="", file=sys.stderr)
        else:
            return Scene(seed, network=network), network.close
    return Scene(seed), lambda: None


def try_fault(name, seed):
    """What the sums are."""
    scene, close = make_scene(name, seed)
    try:
        for _ in range(ROUNDS):
            scene.round(FAULTS[name])
        return scene.sums()
    finally:
        scene.close()
        close()


@unittest.skipIf(MISSING, MISSING)
class FleetFaults(unittest.TestCase):
    """One test a fault, below; and one of what is lost."""

    def test_a_host_that_has_nothing_to_send_hears_of_a_restored_backup(self):
        scene = Scene(SEED)
        self.addCleanup(scene.close)
        scene.cluster.back_up()
        scene.round(lambda _: None)
        had = {host: host_rows(scene.cluster, host) for host in scene.hosts}
        scene.cluster.restore()
        self.assertEqual([host_rows(scene.cluster, host) for host in scene.hosts], [[]] * HOSTS)
        # It asks when it is started, and every five minutes.
        for host in scene.hosts:
            host.kill_forwarder()
            host.start_forwarder()
        for host in scene.hosts:
            await_condition(lambda h=host: host_rows(scene.cluster, h) == had[h], f"rows of host {host.nonce} are back")

    def test_what_neither_a_restored_backup_nor_an_outbox_has_is_said(self):
        """A host that has let go of what was acknowledged. All else goes on by itself, and no answer is sure of what is missing."""
        scene = Scene(SEED)
        self.addCleanup(scene.close)
        scene.round(lambda _: None)
        scene.cluster.back_up()
        scene.round(lambda _: None)
        for host in scene.hosts:
            host.let_go_of_sent()
        scene.cluster.restore()
        missing = 0
        for host in scene.hosts:
            count = host.put(3)
            host.put("end")
            await_condition(lambda h=host, c=count: (c - 1) in host_rows(scene.cluster, h), f"what host {host.nonce} makes now arrives")
            arrived = host_rows(scene.cluster, host)
            self.assertEqual(len(arrived), len(set(arrived)))
            missing += count - len(arrived)
        self.assertGreater(missing, 0)
        await_condition(lambda: scene.cluster.sql("SELECT COUNT(*) FROM nanwatch.run WHERE ended") == [[str(HOSTS)]], "the ends arrive")

        def answer():
            return json.loads(scene.gatherer.ask("GET", "/api/v1/jobs/train/verdict")[1])
        await_condition(lambda: answer()["fleet"]["findings_missing"] == missing, "it says how many rows are missing")
        self.assertEqual(answer()["verdict"], "unknown")


for fault_name in FAULTS:
    setattr(FleetFaults, f"test_{fault_name}",
            lambda self, name=fault_name: self.assertTrue(try_fault(name, SEED)))


def main():
    global CUT_S, ROUNDS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("faults", nargs="*", metavar="FAULT", default=list(FAULTS))
    parser.add_argument("--cut", type=float, default=CUT_S, help="seconds that the network is cut, at most")
    options = parser.parse_args()
    CUT_S, ROUNDS = options.cut, options.rounds
    for name in options.faults:
        began = time.monotonic()
        print(f"{name:<20} {options.rounds} times, seed {options.seed}: ", end="", flush=True)
        print(f"{try_fault(name, options.seed)}; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main()
    else:
        print(f"seed {SEED}", file=sys.stderr)
        unittest.main()
