"""Start a training run in processes of its own, and be such a process.

launch() is for the flow: it runs torchrun's agent (`gristmill.training.run.agent`), which starts the ranks as
`python -m gristmill.training.run.launch RUN.json`, RUN.json being a RunConfig (`gristmill.storage.checked_json`). A
single rank is started without an agent, which would load torch a second time to look after it.

Exit codes: 0 done (result.json is there); STOPPED (75, EX_TEMPFAIL of sysexits.h) the ranks got SIGTERM,
after a checkpoint if training had begun: run it again to go on; KILLED (137) or a negative one, a rank or the agent
was ended by a signal; anything else failed, and the log says why; FAILURE in the run's folder has the first error.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import gristmill
from gristmill.storage import checked_json
from gristmill.training.config import RENDEZVOUS, RunConfig
from gristmill.training.run.deathsig import PARENT, die_with_parent

_KILLED = -signal.SIGKILL


class Forked:
    """A run that was forked, as subprocess.Popen has a process. `channel`: by which its exit code comes."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid, self._channel = pid, channel
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            reply = self._channel.recv(16)
            self._channel.close()
            self.returncode = int(reply) if reply else _KILLED
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            remaining = None if until is None else until - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise subprocess.TimeoutExpired(f"the run in process {self.pid}", timeout or 0)
            select.select([self._channel], [], [], remaining)
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)


def fork(address: str, run_json: str, environment: Mapping[str, str], output: int) -> Forked | None:
    """A process for a run, whose output goes to the file descriptor `output`, from the one at an address; None where
    that is gone."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        channel.connect(address)
        request = json.dumps({"run": run_json, "environment": dict(environment)}).encode()
        socket.send_fds(channel, [request], [output])
        if pid := channel.recv(32):
            return Forked(int(pid), channel)
    except OSError:
        pass
    channel.close()
    return None


STOPPED = 75
KILLED = 137
STOP_MARKER = "stopped"
FAILURE = "failure.txt"  # one line: the error of the first rank that had one, since the others fail for want of it
GRACE_SECONDS = 300  # for a step and a checkpoint after SIGTERM, before the agent kills its ranks
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Nodes:
    """The machines of a run, of which this is number `rank`. Their `out` is one folder, which all of them see; that of
    a run with a `store` is each machine's own.

    `rendezvous`: HOST:PORT at which number 0 listens for the others, on all of its interfaces. `interface`: the network
    device that ranks talk through, such as eth0; loopback if it is empty.
    """

    count: int = 1
    rank: int = 0
    rendezvous: str = ""
    interface: str = ""


ALONE = Nodes()


class Process(Protocol):
    """What is asked of the agent, or of the only rank: what subprocess.Popen has."""

    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


# variables of torchrun, which a run of one process has not
OF_RANKS = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def default_processes(python: str = "") -> int:
    """One rank per GPU; 2 on a machine without, so that what runs is sharded training. `python`: whose torch sees the
    GPUs; "": ours."""
    if python:
        command = [python, "-c", "import torch; print(torch.cuda.device_count())"]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) or 2
    import torch

    return torch.cuda.device_count() or 2


def launch(
    run_json: Path,
    processes: int,
    log_path: Path,
    *,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    poll: Callable[[], None] = lambda: None,
    nodes: Nodes = ALONE,
    restarts: int = 0,
    module: str = "gristmill.training.run.launch",
    preloaded: str = "",
    python: str = "",
) -> int:
    """Run the training that run_json describes and return its exit code (see above). `processes`: on each machine.
    `python`: that of another environment, which needs no gristmill: it gets this one; "": our own.
    `module`: whose main each rank is; its run_json names the folder `out`, too. `preloaded`: the address of a process
    that forks one for a run of one rank, see `gristmill.training.run.preloaded`. Where it is gone, and for a restart,
    the rank is started as without it.

    The output of all ranks is appended to log_path, and given line by line to on_line while it grows. `env`
    is added to the environment. An exception here or in on_line, such as KeyboardInterrupt, stops the ranks
    after a checkpoint. The agent and its ranks die with the thread that calls this, however it ends, kill -9
    included (on Linux). On one machine they find each other through a file and talk through the loopback device only.
    `poll` is called ten times a second, and may raise as on_line may.

    A run that a signal has ended is started again, at most `restarts` times, from its newest checkpoint. One on several
    machines is not: all of them would have to be.
    """
    run_json, log_path = Path(run_json).resolve(), Path(log_path)
    out = Path(checked_json.read(str(run_json))["out"]).resolve()
    log_path.parent.mkdir(parents=True, exist_ok=True)
    for restart in range(1, restarts + 2):
        for marker in (STOP_MARKER, FAILURE):
            (out / marker).unlink(missing_ok=True)
        address = preloaded if processes == nodes.count == restart == 1 else ""
        code = _attempt(run_json, out, processes, log_path, env or {}, on_line, poll, nodes, module, address, python)
        if code and (out / STOP_MARKER).exists():
            return STOPPED  # torchrun's own code would be 1, as for any failure
        if (code >= 0 and code != KILLED) or restart > restarts or nodes.count > 1:
            break
        line = f"a process of training was killed: going on from the newest checkpoint, restart {restart} of {restarts}"
        with open(log_path, "a") as output:
            output.write(line + "\n")
        on_line(line)
    return code


def _attempt(
    run_json: Path,
    out: Path,
    processes: int,
    log_path: Path,
    env: Mapping[str, str],
    on_line: Callable[[str], None],
    poll: Callable[[], None],
    nodes: Nodes,
    module: str,
    preloaded: str,
    python: str,
) -> int:
    """Run the agent, or the only rank, to its end and return its exit code."""
    meeting = out / (f"rendezvous-{nodes.rank}" if nodes.count > 1 else "rendezvous")
    shutil.rmtree(meeting, ignore_errors=True)  # of a launch that was killed
    environment = environment_of(processes, nodes.interface)
    if python:
        environment |= _own_modules(meeting / "modules")
    python = python or sys.executable
    if processes == 1 and nodes.count == 1:
        command = [python, "-u", "-m", module, str(run_json)]
        environment = {name: value for name, value in environment.items() if name not in OF_RANKS}
        environment[PARENT] = str(os.getpid())
    else:
        meeting.mkdir(exist_ok=True)
        command, more = _agent(run_json, processes, nodes, meeting, module, python)
        environment |= more
    with open(log_path, "ab") as output, log_path.open("rb") as tail:
        tail.seek(0, os.SEEK_END)
        agent: Process | None = fork(preloaded, str(run_json), env, output.fileno()) if preloaded else None
        if agent is None:
            agent = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, **env},
                start_new_session=True,  # a Ctrl-C at the terminal is for the caller, who then stops the agent
            )
        try:
            pending = b""
            while True:
                ended = agent.poll() is not None  # asked before reading: what it wrote last is read below
                pending += tail.read()
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    on_line(line.decode(errors="replace"))
                if ended:
                    break
                poll()
                time.sleep(POLL_SECONDS)
            if pending:
                on_line(pending.decode(errors="replace"))
        finally:
            _end(agent)
            shutil.rmtree(meeting, ignore_errors=True)
    assert agent.returncode is not None, "it has ended"
    return agent.returncode


def _agent(
    run_json: Path, processes: int, nodes: Nodes, meeting: Path, module: str, python: str
) -> tuple[list[str], dict[str, str]]:
    """The command of torchrun's agent, and what it needs in its environment."""
    command = [python, "-u", "-m", "gristmill.training.run.deathsig", str(os.getpid())]
    command += [python, "-u", "-m", "gristmill.training.run.agent"]
    environment = {}
    if nodes.count > 1:
        command += ["--nnodes", str(nodes.count), "--node-rank", str(nodes.rank)]
        command += ["--rdzv-backend=static", f"--rdzv-endpoint={nodes.rendezvous}"]
    else:
        # a TCP store, which is the default, would listen on all interfaces
        command += ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={meeting}/agent"]
        command += ["--local-addr", "127.0.0.1"]
        environment[RENDEZVOUS] = f"file://{meeting}/ranks"
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # it would listen on all interfaces; no rank asks it
    # the folder for logs of the ranks, which have none, would stay among temporary files
    command += ["--nproc-per-node", str(processes), "--max-restarts", "0", "--log-dir", f"{meeting}/logs"]
    return [*command, *_grace(python), "-m", module, str(run_json)], environment


def _own_modules(folder: Path) -> dict[str, str]:
    """The environment of another Python that imports this gristmill, and nothing else of what is installed here."""
    folder.mkdir(parents=True)
    (folder / "gristmill").symlink_to(Path(gristmill.__file__).resolve().parent, target_is_directory=True)
    return {"PYTHONPATH": str(folder)}


def _grace(python: str) -> list[str]:
    """The option of torchrun for GRACE_SECONDS, if this release of torch has it: those before kill after 30 seconds.

    Read in its text, since an import takes seconds.
    """
    if python == sys.executable:
        spec = importlib.util.find_spec("torch")
        assert spec is not None and spec.origin is not None, "torch is installed"
        torch = spec.origin
    else:
        command = [python, "-c", "import importlib.util; print(importlib.util.find_spec('torch').origin)"]
        torch = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    launcher = Path(torch).with_name("distributed") / "run.py"
    has_option = '"--shutdown-timeout"' in launcher.read_text(encoding="utf-8")
    return ["--shutdown-timeout", str(GRACE_SECONDS)] if has_option else []


def _end(agent: Process) -> None:
    """Make sure that the agent has ended; its ranks follow it."""
    if agent.poll() is None:
        agent.terminate()
        try:
            agent.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()


def environment_of(processes: int, interface: str) -> dict[str, str]:
    here = str(Path(gristmill.__file__).resolve().parents[1])
    device = interface or ("lo0" if sys.platform == "darwin" else "lo")
    path = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), here]
    return {
        # glibc (mallopt(3)): what a step frees stays with the process, since pages that are taken anew from the system
        # cost a tenth of a step on a CPU; the second is the largest that glibc takes
        "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
        "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
        **_allocator(),
        **os.environ,
        "PYTHONSAFEPATH": "1",  # or a file beside the caller could stand in for a module of the library
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(max(1, available_cpus() // processes)),
        "GLOO_SOCKET_IFNAME": device,  # no name lookup, so no network
        "NCCL_SOCKET_IFNAME": device,
    }


def available_cpus(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Processors that this process may use: those of its affinity, within the quota of its container or job
    (https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max), rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (groups / "cpu.max").read_text().split()
    except (OSError, ValueError):  # no such group, or not of the second version
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, math.ceil(int(quota) / int(period))))


def _allocator() -> dict[str, str]:
    """Memory of a GPU in segments that grow, since activations and gathered weights of many sizes leave gaps between
    fixed ones; unless the user has set the allocator (https://docs.pytorch.org/docs/stable/notes/cuda.html)."""
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return {} if any(name in os.environ for name in names) else {names[0]: "expandable_segments:True"}


def main(run_json: str) -> int:
    """One rank."""
    if PARENT in os.environ:
        die_with_parent(int(os.environ[PARENT]))
    run = RunConfig.model_validate(checked_json.read(run_json))
    leads = os.environ.get("RANK", "0") == "0"
    logging.basicConfig(level=logging.INFO if leads else logging.WARNING, format="%(message)s", stream=sys.stdout)
    from gristmill.training.run.loop import Stopped, train  # torch is loaded only after the parent's death is covered

    try:
        train(run)
    except Stopped as stopped:
        if leads:
            logging.info("%s", stopped)
        if os.environ.get("LOCAL_RANK", "0") == "0":
            (run.out / STOP_MARKER).touch()
        return STOPPED
    except Exception as error:
        with suppress(OSError), open(run.out / FAILURE, "x") as first:
            first_line = next(iter(str(error).splitlines()), "")
            first.write(f"rank {os.environ.get('RANK', '0')}: {type(error).__name__}: {first_line}\n")
        raise
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    logging.shutdown()
    sys.stdout.flush()
    # Everything is on disk and the process group is gone. Taking the interpreter down as usual was seen to abort a
    # finished rank once in some fifty launches ("terminate called without an active exception"), as happens when a
    # native thread asks for the interpreter while it ends.
    os._exit(code)
