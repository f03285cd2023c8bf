"""A real SLURM of one node, on loopback: munged, slurmctld and slurmd as processes of this user."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = {"munged": "/usr/sbin", "slurmctld": "/usr/sbin", "slurmd": "/usr/sbin", "sbatch": "/usr/bin"}

_CONFIGURATION = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """What this machine lacks, empty if all is there."""
    return ", ".join(
        name for name, folder in PROGRAMS.items() if not shutil.which(name, path=f"{os.environ['PATH']}:{folder}")
    )


@contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """SLURM with a node of two processors that takes jobs; gives the environment in which its commands find it."""
    import pwd

    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    host, user = socket.gethostname().split(".")[0], pwd.getpwuid(os.getuid()).pw_name
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    cpus = max(2, os.cpu_count() or 2)
    configuration = folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder, host=host, user=user, ports=ports, cpus=cpus))
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    files = [f"--{name}={folder}/munge.{name}" for name in ("pid-file", "log-file", "seed-file")]
    daemons = [
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket", *files],
        ["slurmctld", "-D", "-f", str(configuration)],
        ["slurmd", "-D", "-f", str(configuration), "-N", host],
    ]
    running = []
    try:
        for command in daemons:
            log = open(folder / f"{command[0]}.log", "w")
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            if command[0] == "munged":
                _until(lambda: (folder / "munge.socket").exists(), folder)
        _until(lambda: "idle" in _said(["sinfo", "--noheader"], environment), folder)
        yield {"SLURM_CONF": str(configuration), "PATH": environment["PATH"]}
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()


def _said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def _until(done, folder: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            logs = "\n".join(path.read_text()[-1000:] for path in folder.glob("*.log"))
            raise RuntimeError(f"SLURM does not start:\n{logs}")
        time.sleep(0.2)


def template(folder: Path) -> Path:
    """A file for GRISTMILL_CLUSTER: a worker a job, on loopback, with what it writes in a folder."""
    import yaml

    settings = {"queue": "debug", "walltime": "00:20:00", "cores": 1, "processes": 1, "memory": "1GiB"}
    settings |= {"interface": "lo", "local_directory": str(folder), "log_directory": str(folder / "logs")}
    settings |= {"worker_extra_args": ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]}
    settings |= {"shared_temp_directory": str(folder)}
    settings["scheduler_options"] = {"interface": "lo", "dashboard_address": "127.0.0.1:0"}
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path
