# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of a test's own, joined by a bridge in one of them: links that can be taken down. They end with the test's processes."""
import os
import pathlib
import subprocess

from cluster import await_condition

HUB_ADDRESS = "10.77.0.1"


def _run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


class Namespace:
    def __init__(self):
        """OSError: namespaces are not allowed here."""
        self._holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"], stderr=subprocess.DEVNULL)
        own = os.readlink("/proc/self/ns/net")
        link = pathlib.Path(f"/proc/{self._holder.pid}/ns/net")
        await_condition(lambda: self._holder.poll() is not None or os.readlink(link) != own, "the namespace is there")
        if self._holder.poll() is not None:
            raise OSError("unshare -n is not allowed")
        self.pid = self._holder.pid
        self.prefix = ["nsenter", "-t", str(self.pid), "-n", "--"]

    def ip(self, *words):
        _run(*self.prefix, "ip", *words)

    def close(self):
        self._holder.kill()
        self._holder.wait()


class Network:
    """`hub`, and `hosts` with a link to it each."""

    def __init__(self, count):
        self._all = []
        try:
            self.hub = self._new()
            self.hub.ip("link", "add", "br0", "type", "bridge")
            self.hub.ip("addr", "add", f"{HUB_ADDRESS}/24", "dev", "br0")
            self.hub.ip("link", "set", "br0", "up")
            self.hosts = [self._new_host(number) for number in range(count)]
        except (OSError, FileNotFoundError):
            self.close()
            raise

    def _new(self):
        self._all.append(Namespace())
        self._all[-1].ip("link", "set", "lo", "up")
        return self._all[-1]

    def _new_host(self, number):
        host = self._new()
        self.hub.ip("link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns", host.pid)
        self.hub.ip("link", "set", f"host{number}", "master", "br0", "up")
        host.ip("addr", "add", f"10.77.0.{10 + number}/24", "dev", "eth0")
        host.ip("link", "set", "eth0", "up")
        return host

    def set_links(self, state):
        for number in range(len(self.hosts)):
            self.hub.ip("link", "set", f"host{number}", state)

    def close(self):
        for namespace in self._all:
            namespace.close()
