"""Machines that are Linux namespaces: each with a network, mounts, processes and a host name of its own.

What a machine sees of this one's disk is read-only, as an installation is, but `/tmp`, which is its own disk: of that
no other machine sees anything. All are on one bridge, in a namespace of its own, so the network of this machine is left
as it is. Namespaces have no names: they, their links and their processes end with the first process of each, and that
with the thread that has started it, however it ends. Of a killed run only a folder is left, to be removed by
`gristmill.storage.leftovers`.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gristmill.storage import leftovers

NETWORK = "10.77.0"
INTERFACE = "eth0"
# A machine that nobody ends, ends by itself.
_LONGEST_SECONDS = 4 * 3600
_NAMESPACES = ("--net", "--mount", "--uts", "--pid")
_TRY = "ip link add one type bridge && ip link add two type veth peer name three"
# /run and /dev stay as they are, and cannot be written to.
_BOOT = """
set -e
hostname "$1"
ip link set lo up
mount --rbind "$2" /tmp
mount -t tmpfs tmpfs /dev/shm
mount -o remount,bind,ro /
"""
_SWITCH = "set -e\nip link set lo up\nip link add bridge type bridge\nip link set bridge up\n"
# The first process takes up the orphans of its machine: with SIGCHLD ignored, without a word.
_STAY = f"echo up\nexec env --ignore-signal=CHLD sleep {_LONGEST_SECONDS}\n"


def missing() -> str:
    """What this machine lacks, empty if namespaces can be made here."""
    if lacking := [name for name in ("ip", "nsenter", "setpriv", "unshare") if shutil.which(name) is None]:
        return ", ".join(lacking)
    if Path(__file__).resolve().is_relative_to("/tmp"):
        return "a checkout outside of /tmp, which is each machine's own"
    if os.getuid():
        return "the rights of root, to make namespaces"
    command = ["unshare", *_NAMESPACES, "--fork", "--mount-proc", "sh", "-c", _TRY]
    done = subprocess.run(command, capture_output=True, text=True)
    return f"the right to make namespaces ({done.stderr.strip()})" if done.returncode else ""


@dataclass
class Machine:
    """`disk`: its /tmp, seen from outside; `home`: its folder in it, seen from inside, whose path no other one has."""

    name: str
    address: str
    disk: Path
    holder: subprocess.Popen
    first: int

    @property
    def home(self) -> str:
        return f"/tmp/{self.name}"


@dataclass
class Process:
    """`log`: a file of this machine, with all that it has said."""

    popen: subprocess.Popen
    log: Path

    def kill(self, number: int = signal.SIGKILL, seconds: float = 20.0) -> None:
        """A signal to it and all of its group; SIGKILL, if some are there after so many seconds."""
        for each in (number, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, each)
            end = time.monotonic() + seconds
            while time.monotonic() < end and self.popen.poll() is None:
                time.sleep(0.1)
            if each != signal.SIGKILL:
                _until_group_ended(self.popen.pid, end)
        self.popen.wait()

    def pause(self) -> None:
        """It stands still until `go_on`; nsenter, its parent, does the same when it hears of that."""
        os.kill(_child(self.popen.pid), signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self.popen.pid, signal.SIGCONT)

    def said(self) -> str:
        return self.log.read_text(errors="replace")


def _until_group_ended(group: int, end: float) -> None:
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)


@dataclass
class Machines:
    """`folder`: of their disks; `logs`: of what their processes say, by machine and name."""

    folder: Path
    logs: Path
    environment: dict[str, str]
    switch: Machine
    running: dict[str, Machine] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)

    def boot(self, name: str, number: int) -> Machine:
        """A machine with the address `NETWORK.number`, and an empty disk."""
        disk = self.folder / name
        shutil.rmtree(disk, ignore_errors=True)
        (disk / name).mkdir(parents=True)
        disk.chmod(0o1777)
        given = (name, str(disk))
        holder, first = _begin(self.logs / f"{name}.log", [*_NAMESPACES, "--mount-proc"], _BOOT + _STAY, *given)
        machine = self.running[name] = Machine(name, f"{NETWORK}.{number}", disk, holder, first)
        veth = ["type", "veth", "peer", "name", INTERFACE, "netns", str(first)]
        self._ip(self.switch, "link", "add", f"to-{name}", *veth)
        self._ip(self.switch, "link", "set", f"to-{name}", "master", "bridge", "up")
        self._ip(machine, "addr", "add", f"{machine.address}/24", "dev", INTERFACE)
        self._ip(machine, "link", "set", INTERFACE, "up")
        return machine

    def link(self, machine: Machine, state: str) -> None:
        """Set the link between a machine and the bridge `up` or `down`."""
        self._ip(self.switch, "link", "set", f"to-{machine.name}", state)

    def power_off(self, machine: Machine) -> None:
        """All of its processes end at once; with its link down before, nobody hears of it."""
        os.kill(machine.first, signal.SIGKILL)
        machine.holder.wait()
        del self.running[machine.name]

    def start(self, machine: Machine, name: str, *command: str, **environment: str) -> Process:
        """A process of a machine, in a group of its own, with its output in `<machine>-<name>.log`."""
        log = self.logs / f"{machine.name}-{name}.log"
        own = {"HOME": f"{machine.home}/home", "TMPDIR": f"{machine.home}/tmp"}
        for path in own.values():
            (machine.disk / Path(path).relative_to("/tmp")).mkdir(parents=True, exist_ok=True)
        with open(log, "a") as output:
            popen = subprocess.Popen(
                [*_enter(machine), f"--wdns={machine.home}", *command],
                env=self.environment | own | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        process = Process(popen, log)
        self.processes.append(process)
        return process

    def ask(self, machine: Machine, *command: str, seconds: float = 120.0, **environment: str) -> str:
        """What a command says in a machine. Raises RuntimeError, with its errors, if it fails."""
        own = self.environment | {"HOME": f"{machine.home}/home"} | environment
        entered = [*_enter(machine), f"--wdns={machine.home}", *command]
        done = subprocess.run(entered, env=own, capture_output=True, text=True, timeout=seconds)
        if done.returncode:
            raise RuntimeError(f"{machine.name}: {' '.join(command)}: {done.stderr[-4000:]}")
        return done.stdout

    def _ip(self, machine: Machine, *words: str) -> None:
        subprocess.run(["nsenter", "-t", str(machine.first), "--net", "ip", *words], check=True, timeout=60)


def until(what: str, done: Callable[[], Any], process: Process | None = None, seconds: float = 600.0) -> Any:
    """What `done` returns, once that is true. Raises RuntimeError when the process ends or time is over."""
    end = time.monotonic() + seconds
    while not (value := done()):
        if process is not None and process.popen.poll() is not None:
            raise RuntimeError(f"no {what}: {process.log.name} has ended:\n{process.said()[-4000:]}")
        if time.monotonic() > end:
            raise RuntimeError(f"no {what} in {seconds:.0f} s")
        time.sleep(0.3)
    return value


def _enter(machine: Machine) -> list[str]:
    return ["nsenter", "-t", str(machine.first), "--net", "--mount", "--uts", "--pid"]


def _begin(log: Path, namespaces: list[str], script: str, *given: str) -> tuple[subprocess.Popen, int]:
    """A process that holds namespaces, and the first one in them. Both end with this thread."""
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "--fork", "--kill-child", "sh", "-c", script]
    with open(log, "a") as errors:
        holder = subprocess.Popen([*command, "boot", *given], stdout=subprocess.PIPE, stderr=errors, text=True)
    assert holder.stdout is not None
    ready, _, _ = select.select([holder.stdout], [], [], 60)
    if not ready or holder.stdout.readline() != "up\n":
        holder.kill()
        raise RuntimeError(f"no namespaces:\n{log.read_text()}")
    return holder, _child(holder.pid)


def _child(process: int) -> int:
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])


@contextmanager
def machines(logs: Path, environment: dict[str, str]) -> Iterator[Machines]:
    """A bridge for machines, which all end with the block. `environment`: of all of their processes."""
    logs.mkdir(parents=True, exist_ok=True)
    leftovers.remove_scratch()  # of a test that was killed
    with leftovers.scratch_folder("machines", "/tmp") as folder:
        holder, first = _begin(logs / "switch.log", ["--net", "--pid"], _SWITCH + _STAY)
        made = Machines(folder, logs, environment, Machine("switch", "", folder, holder, first))
        try:
            yield made
        finally:
            for process in made.processes:  # first: a machine has ended when its processes are waited for
                process.kill()
            for machine in [*made.running.values()]:
                made.power_off(machine)
            os.kill(first, signal.SIGKILL)
            holder.wait()
