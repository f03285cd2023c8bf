"""A real SLURM on loopback: munged, slurmctld and a slurmd per node, as processes of this user."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "docker" / "slurm" / "workers.sbatch"
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
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPort={ports[0]}
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=2,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """What this machine lacks, empty if all is there."""
    return ", ".join(
        name for name, folder in PROGRAMS.items() if not shutil.which(name, path=f"{os.environ['PATH']}:{folder}")
    )


@contextmanager
def serve(folder: Path, nodes: int = 1, cpus: int = 0) -> Iterator[dict[str, str]]:
    """SLURM with nodes that take jobs, and as many CPUs each as this machine has, or `cpus`; gives the environment in
    which its commands find it."""
    import pwd

    ports = []
    for _ in range(1 + nodes):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    host, user = socket.gethostname().split(".")[0], pwd.getpwuid(os.getuid()).pw_name
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    cpus = cpus or max(2, os.cpu_count() or 2)
    names = [f"node{number}" for number in range(nodes)]
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=8000 State=UNKNOWN"
        for name, port in zip(names, ports[1:], strict=True)
    ]
    configuration = folder / "slurm.conf"
    values = {"folder": folder, "host": host, "user": user, "ports": ports, "nodes": "\n".join(lines)}
    configuration.write_text(_CONFIGURATION.format(**values))
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    files = [f"--{name}={folder}/munge.{name}" for name in ("pid-file", "log-file", "seed-file")]
    daemons = [
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket", *files],
        ["slurmctld", "-D", "-f", str(configuration)],
        *(["slurmd", "-D", "-f", str(configuration), "-N", name] for name in names),
    ]
    running = []
    try:
        for number, command in enumerate(daemons):
            log = open(folder / f"{command[0]}-{number}.log", "w")
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            if command[0] == "munged":
                _until(lambda: (folder / "munge.socket").exists(), folder)
        _until(lambda: _said(["sinfo", "--noheader", "--Node"], environment).count("idle") == nodes, folder)
        yield {"SLURM_CONF": str(configuration), "PATH": environment["PATH"]}
    finally:
        subprocess.run(["scancel", "--me", "--signal=KILL", "--full"], env=environment, capture_output=True)
        for process in reversed(running):
            process.terminate()
            process.wait()


def start_requeued(environment: dict[str, str]) -> None:
    """Let requeued jobs start at once. By itself SLURM waits two minutes or more."""
    waiting = _said(["squeue", "--noheader", "--array", "--states=PENDING", "--format=%i %r"], environment)
    for job, _, reason in (line.partition(" ") for line in waiting.splitlines()):
        if reason == "BeginTime":
            command = ["scontrol", "update", f"JobId={job}", "StartTime=now"]
            subprocess.run(command, env=environment, capture_output=True)


def _said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def _until(done, folder: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            logs = "\n".join(path.read_text()[-1000:] for path in folder.glob("*.log"))
            raise RuntimeError(f"SLURM does not start:\n{logs}")
        time.sleep(0.2)


def worker_script(folder: Path, **options: str) -> Path:
    """A copy of the script of the workers that ships, for one small process per task; `options`: of sbatch."""
    text = SCRIPT.read_text()
    for name, value in ({"cpus_per_task": "1", "mem": "1500M", "time": "30"} | options).items():
        directive = f"#SBATCH --{name.replace('_', '-')}="
        text, count = re.subn(f"(?m)^{directive}.*", directive + value, text)
        assert count == 1, name
    path = folder / "workers.sbatch"
    path.write_text(text)
    return path
