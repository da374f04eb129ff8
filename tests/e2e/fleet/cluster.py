# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL of a test's own, and the fleet's programs beside it.

The cluster is in a temporary folder and listens on a socket there and nowhere else. PostgreSQL refuses to run as root: then it runs as the
user postgres, which Debian's package makes.
"""
import glob
import http.client
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))
from watched_job import BUILD, await_condition

GATHER = BUILD / "bin/nanwatch-gather"
PROGRAMS = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(pathlib.Path(path).parent.name))
MISSING = "" if PROGRAMS and GATHER.exists() else "PostgreSQL or nanwatch-gather is not there (scripts/setup.sh --tests)"
TOKEN = "0123456789abcdef0123"


class Cluster:
    def __init__(self, disk=None):
        """`disk`: a folder for its data."""
        # Not below the test's own folder: another user must get there, and the name of a socket is short.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nwpg"))
        self._as_user = []
        if os.geteuid() == 0:
            self._as_user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(self.folder, "postgres")
        self._data, self._log = (disk or self.folder) / "data", self.folder / "log"
        self._run("initdb", "-D", self._data, "-U", "owner", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")
        self.start()

    def _run(self, program, *arguments, **options):
        done = subprocess.run([*self._as_user, f"{PROGRAMS[-1]}/{program}", *map(str, arguments)], cwd="/", text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        if done.returncode:
            raise AssertionError(f"{program}: {done.stdout}")
        return done.stdout

    def start(self):
        settings = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c unix_socket_permissions=0700 -c max_connections=40 -c shared_buffers=32MB"
        # Not with a pipe for its output, which the server would keep open.
        with open(os.devnull, "w") as nothing:
            subprocess.run([*self._as_user, f"{PROGRAMS[-1]}/pg_ctl", "start", "-w", "-t", "60", "-D", self._data, "-l", self._log, "-o", settings],
                           cwd="/", check=True, stdout=nothing, stderr=nothing)

    def kill(self):
        """All of it, as a power cut would. The postmaster's pid is in the first line of its file; it makes no others while it is stopped."""
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)
        for child in pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        os.kill(postmaster, signal.SIGKILL)

    def stop(self):
        self._run("pg_ctl", "stop", "-w", "-m", "fast", "-D", self._data)

    def back_up(self):
        self.stop()
        self._backup = self._data.with_name("backup")
        subprocess.run(["cp", "-a", self._data, self._backup], check=True)
        self.start()

    def restore(self):
        """What was there when it was backed up; of what came since it knows nothing."""
        self.stop()
        shutil.rmtree(self._data)
        self._backup.rename(self._data)
        self.start()

    def is_running(self):
        return subprocess.run([*self._as_user, f"{PROGRAMS[-1]}/pg_ctl", "status", "-D", self._data], cwd="/", capture_output=True).returncode == 0

    def start_again(self):
        """After a kill: its processes see that the postmaster is gone, and only then is there room for another."""
        await_condition(self._try_start, "PostgreSQL starts again")

    def _try_start(self):
        try:
            self.start()
            return True
        except subprocess.CalledProcessError:
            return False

    def processor_seconds(self):
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        children = pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return processor_seconds(postmaster) + sum(processor_seconds(child) for child in children)

    def connection(self, user):
        return f"host={self.folder} dbname=postgres user={user}"

    def sql(self, text, user="owner"):
        """Rows of texts."""
        done = subprocess.run([f"{PROGRAMS[-1]}/psql", "-X", "-q", "-A", "-t", "-F", "|", "-v", "ON_ERROR_STOP=1", "-d", self.connection(user), "-c", text],
                              capture_output=True, text=True)
        if done.returncode:
            raise PermissionError(done.stderr) if "permission denied" in done.stderr else AssertionError(done.stderr)
        return [line.split("|") for line in done.stdout.splitlines()]

    def close(self):
        subprocess.run([*self._as_user, f"{PROGRAMS[-1]}/pg_ctl", "stop", "-m", "immediate", "-D", self._data], cwd="/", capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_fleet(self):
        """The schema, and a user for each role."""
        maintained = maintain(self)
        self.sql("CREATE ROLE sender LOGIN IN ROLE nanwatch_ingest; CREATE ROLE asker LOGIN IN ROLE nanwatch_read;"
                 " CREATE ROLE alerter LOGIN IN ROLE nanwatch_read, nanwatch_alert")
        return maintained


def maintain(cluster, *options):
    return subprocess.run([GATHER, "maintain", "--database", cluster.connection("owner"), *options], check=True, capture_output=True, text=True).stdout


def processor_seconds(pid):
    """Of a process and its children that have ended, so far."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")


class Gatherer:
    def __init__(self, cluster, folder, *options, token=True, listen="127.0.0.1:0", prefix=()):
        """`prefix`: what it is started with, as nsenter."""
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN + "\n")
        self.token_file.chmod(0o600)
        self._log_path = folder / f"gather-{len(list(folder.glob('gather-*')))}.log"
        with open(self._log_path, "w") as log:
            self._process = subprocess.Popen([*prefix, GATHER, "serve", "--listen", listen, "--database", cluster.connection("sender"),
                                              *(["--token-file", self.token_file] if token else []), *options], stderr=log)
        await_condition(lambda: self._process.poll() is not None or "listening at" in self.log(), "the gatherer listens")
        self.url = re.search(r"listening at (http://[^ ]*)/", self.log())[1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def log(self):
        return self._log_path.read_text()

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers={"Authorization": f"Bearer {TOKEN}", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def send(self, request, **headers):
        return self.ask("POST", "/v1/logs", request, **{"Content-Type": "application/x-protobuf", **headers})

    def metric(self, name):
        text = self.ask("GET", "/metrics")[1].decode()
        return int(re.search(rf"^{name} (\d+)$", text, re.M)[1])

    def memory(self):
        return self._memory("VmRSS")

    def peak_memory(self):
        return self._memory("VmHWM")

    def _memory(self, what):
        """Bytes."""
        status = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(rf"^{what}:\s+(\d+) kB", status, re.M)[1]) * 1024

    def processor_seconds(self):
        return processor_seconds(self._process.pid)

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)

    def kill(self):
        self._process.kill()
        self._process.wait(60)

    def stop(self, timeout=60):
        self._process.terminate()
        return self._process.wait(timeout)
