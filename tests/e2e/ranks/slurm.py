# SPDX-License-Identifier: Apache-2.0
"""A Slurm of one node, for a test: its own configuration, keys, ports and spool in a temporary directory.

The programs are Debian's (munge, slurmctld, slurmd, slurm-client). Nothing of the system's own Slurm, where it has one, is read or changed.
"""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from watched_job import await_condition

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")
STARTS_WITHIN_S = 120
# proctrack/linuxproc and task/none need no cgroups; config_overrides lets a small machine have CPUs enough for the ranks.
CONFIGURATION = """
ClusterName=nanwatch-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
SlurmctldTimeout=600
SlurmdTimeout=600
MessageTimeout=100
KillWait=30
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """Why no Slurm can be started here; "" where one can."""
    # Debian keeps daemons where only root looks.
    missing = [program for program in PROGRAMS if not shutil.which(program, path=_path())]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: munge slurmctld slurmd slurm-client)"
    return "" if os.geteuid() == 0 else "slurmd starts the tasks of users, so it needs root"


def _path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _free_ports(count):
    # Held together, so that they differ.
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Slurm:
    """Started by the constructor, stopped by close()."""

    def __init__(self):
        self._processes = []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nanwatch-slurm-"))
        self.folder.chmod(0o755)
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "SALLOC_"))}
        self.environment = ours | {"PATH": _path(), "SLURM_CONF": str(self.folder / "slurm.conf")}
        try:
            self._start_munge()
            for _ in range(3):  # another program may take a port before Slurm does
                if self._start_slurm():
                    return
            raise AssertionError(f"Slurm did not start:\n{self._logs()}")
        except BaseException:
            self.close()
            raise

    def _start_munge(self):
        (self.folder / "munge").mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        munge = self.folder / "munge"
        self._spawn("munged", "--foreground", "--force", "--num-threads=1", f"--key-file={key}", f"--socket={munge}/socket",
                    f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        await_condition((munge / "socket").exists, "munged listens", STARTS_WITHIN_S)

    def _start_slurm(self):
        controller_port, node_port = _free_ports(2)
        text = CONFIGURATION.format(folder=self.folder, host=socket.gethostname().split(".")[0],
                                    controller_port=controller_port, node_port=node_port)
        (self.folder / "slurm.conf").write_text(text)
        for name in ("state", "spool"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        daemons = [self._spawn(program, "-D", "-f", self.folder / "slurm.conf") for program in ("slurmctld", "slurmd")]
        deadline = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < deadline and all(daemon.poll() is None for daemon in daemons):
            state = subprocess.run(["sinfo", "-h", "-o", "%t"], env=self.environment, capture_output=True, text=True)
            if state.stdout.strip() == "idle":
                return True
            time.sleep(0.05)
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
        return False

    def _spawn(self, program, *arguments):
        with open(self.folder / f"{program}.out", "wb") as out:
            process = subprocess.Popen([program, *(str(word) for word in arguments)], env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=out, start_new_session=True)
        self._processes.append(process)
        return process

    def run(self, *command, timeout, **options):
        """Runs srun, sbatch or scontrol against this Slurm."""
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout, **options)

    def state_of(self, job):
        """PENDING, RUNNING, COMPLETED, ..."""
        shown = self.run("scontrol", "show", "job", job, timeout=60, env=self.environment).stdout
        return shown.partition("JobState=")[2].split(" ")[0]

    def _logs(self):
        files = [*self.folder.glob("*.log"), *self.folder.glob("*.out"), *self.folder.glob("munge/log")]
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-2000:]}" for file in files)

    def close(self):
        subprocess.run(["scancel", "--full", "--signal=KILL", "-u", "root"], env=self.environment, capture_output=True)
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
