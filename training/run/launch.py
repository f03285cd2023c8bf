"""Start a training run in processes of its own, and run one of these processes.

launch() is for the flow: it runs torchrun's agent (`gristmill.training.run.agent`), which starts the ranks as
`python -m gristmill.training.run.launch RUN.json`, RUN.json being a RunConfig (`gristmill.storage.checked_json`). A
single rank is started without an agent, which would load torch a second time to look after it.

Exit codes: 0 done (result.json is there); STOPPED (75, EX_TEMPFAIL of sysexits.h) the ranks got SIGTERM,
after a checkpoint if training had begun: run it again to resume; KILLED (137) or a negative one, a rank or the agent
was ended by a signal; LOST (76) a rank lost the others; HUNG (124, as timeout(1) has it) a rank made no progress;
anything else failed, and the log says why. FAILURE in the run's folder has the first error.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from gristmill.storage import checked_json, files, leftovers
from gristmill.training.config import RENDEZVOUS, RunConfig
from gristmill.training.run import heartbeat
from gristmill.training.run.deathsig import PARENT, die_with_parent
from gristmill.training.run.environment import OF_RANKS, environment_of
from gristmill.training.run.forked import fork
from gristmill.training.run.heartbeat import Hang, Limits, Watch
from gristmill.training.run.restarts import MEETING_SECONDS, Attempts, Restarts

STOPPED, LOST, HUNG, KILLED = 75, 76, 124, 137


STOP_MARKER = "stopped"
FAILURE = "failure.txt"  # one line: the error of the first rank that had one, or why there are no more restarts
LOSS = "lost.txt"  # one line: the error of the first rank that lost the others, without one of its own
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
DEFAULT_LIMITS = Limits()


class Process(Protocol):
    """What is asked of the agent, or of the only rank: what subprocess.Popen has."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


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
    limits: Limits = DEFAULT_LIMITS,
    module: str = "gristmill.training.run.launch",
    preloaded: str = "",
) -> int:
    """Run the training that run_json describes and return its exit code (see above). `processes`: on each machine.
    `module`: whose main each rank is; its run_json names the folder `out`, too. `preloaded`: the address of a process
    that forks one for a run of one rank, see `gristmill.training.run.preloaded`. Where it is gone, and for a restart,
    the rank is started as without it.

    The output of all ranks is appended to log_path, and given line by line to on_line while it grows. `env`
    is added to the environment. An exception here or in on_line, such as KeyboardInterrupt, stops the ranks
    after a checkpoint. The agent and its ranks die with the thread that calls this, however it ends, kill -9
    included (on Linux). On one machine they find each other through a file and talk through the loopback device only.
    `poll` is called ten times a second, and may raise as on_line may.

    A run whose ranks were killed, hang (see `limits` and `gristmill.training.run.heartbeat`) or lost each other is
    restarted from its newest checkpoint, at most `restarts` times within an hour. On several machines each launcher
    does so, and node 0 waits for the others.
    """
    run_json, log_path = Path(run_json).resolve(), Path(log_path)
    run = checked_json.read(str(run_json))
    out = Path(run["out"]).resolve()
    log_path.parent.mkdir(parents=True, exist_ok=True)
    budget = Restarts(restarts)
    attempts = Attempts(out, run.get("store"), nodes.rank) if nodes.count > 1 else None
    start = _Start(run_json, out, processes, log_path, env or {}, on_line, poll, nodes, module, limits)
    try:
        while True:
            if attempts and not attempts.begin(poll):
                start.say("node 0 has ended the run; its log has the reason")
                return 1
            for marker in (STOP_MARKER, FAILURE, LOSS):  # once node 0 has begun: it may share the folder
                (out / marker).unlink(missing_ok=True)
            attempt = _attempt(start, preloaded if processes == nodes.count == 1 else "", attempts)
            preloaded = ""
            if (out / STOP_MARKER).exists() and attempt.code:
                return STOPPED  # torchrun's own code would be 1, as for any failure
            if attempt.is_over:
                start.say("node 0 has started again: this machine follows")
                continue
            why = _reason(attempt, out)
            if not why:
                return 1 if attempt.code == LOST else attempt.code  # the code of the rank which failed first
            if attempts and attempts.leads and not attempt.begun:
                why = f"the other machines did not join within {MEETING_SECONDS:.0f} s, or {nodes.rendezvous} is in use"
                _fail(out, f"{why}; start the run on all machines again")
                return attempt.code
            if not (number := budget.take()):
                _fail(
                    out,
                    f"{why}; {restarts} restarts within an hour are spent (GRISTMILL_TRAINING_RESTARTS). Find the "
                    "cause in the log, and run the same command again",
                )
                return attempt.code
            start.say(
                f"{why}: starting again from the newest checkpoint, restart {number} of {restarts} within an hour"
            )
    finally:
        if attempts:
            attempts.end()


@dataclass(frozen=True)
class _Start:
    """What all attempts of a launch are started with, see `launch`."""

    run_json: Path
    out: Path
    processes: int
    log_path: Path
    env: Mapping[str, str]
    on_line: Callable[[str], None]
    poll: Callable[[], None]
    nodes: Nodes
    module: str
    limits: Limits

    def say(self, line: str) -> None:
        """Put a line of the launcher's own into the log."""
        with open(self.log_path, "a") as output:
            output.write(line + "\n")
        self.on_line(line)


@dataclass(frozen=True)
class _Attempt:
    """How one ended. `hang`: for which its ranks were killed; `is_over`: node 0 has begun another one; `begun`: whether
    a rank was there."""

    code: int
    hang: Hang | None
    is_over: bool
    begun: bool


def _reason(attempt: _Attempt, out: Path) -> str:
    """Why an attempt ended that may be repeated; empty for another one."""
    if attempt.hang:
        return f"{attempt.hang} (stacks: {attempt.hang.report})"
    if (out / FAILURE).exists():
        return ""
    if attempt.code < 0 or attempt.code == KILLED:
        return "a process of training was killed by a signal"
    if attempt.code == LOST:
        why = (out / LOSS).read_text().strip() if (out / LOSS).exists() else "its processes were aborted"
        return f"training lost some of its processes ({textwrap.shorten(why, 200)})"
    return ""


def is_interrupted(code: int) -> bool:
    """Whether a run that left this code may succeed when it is started again."""
    return code < 0 or code in (STOPPED, LOST, HUNG, KILLED)


def _fail(out: Path, sentence: str) -> None:
    files.write_bytes(str(out / FAILURE), f"{sentence}\n".encode())


def _attempt(start: _Start, preloaded: str, attempts: Attempts | None) -> _Attempt:
    """Run the agent, or the only rank, to its end."""
    out, nodes, run_json = start.out, start.nodes, start.run_json
    meeting = out / (f"rendezvous-{nodes.rank}" if nodes.count > 1 else "rendezvous")
    shutil.rmtree(meeting, ignore_errors=True)  # of a launch that was killed
    environment = environment_of(start.processes, nodes.interface)
    if start.processes == 1 and nodes.count == 1:
        command = [sys.executable, "-u", "-m", start.module, str(run_json)]
        environment = {name: value for name, value in environment.items() if name not in OF_RANKS}
        environment[PARENT] = str(os.getpid())
    else:
        meeting.mkdir(exist_ok=True)
        name = attempts.name if attempts else "none"
        command, more = _agent(run_json, start.processes, nodes, meeting, start.module, name)
        environment |= more
    with (
        tempfile.TemporaryDirectory(prefix=f"{leftovers.scratch_prefix()}heartbeats-") as beats,
        open(start.log_path, "ab") as output,
        start.log_path.open("rb") as tail,
    ):
        tail.seek(0, os.SEEK_END)
        own = {**start.env, heartbeat.HEARTBEATS: beats}
        agent: Process | None = fork(preloaded, str(run_json), own, output.fileno()) if preloaded else None
        if agent is None:
            agent = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, **own},
                start_new_session=True,  # a Ctrl-C at the terminal is for the caller, who then stops the agent
            )
        watch = Watch(Path(beats), start.processes, start.limits, _new_report(out, nodes.rank), agent.pid, nodes.count)
        hang, is_over = None, False
        try:
            pending = b""
            while True:
                ended = agent.poll() is not None  # asked before reading: what it wrote last is read below
                pending += tail.read()
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    start.on_line(line.decode(errors="replace"))
                if ended:
                    break
                start.poll()
                hang = hang or watch.look()
                is_over = is_over or bool(attempts and attempts.is_over())
                if hang or is_over:
                    agent.kill()  # a rank that hangs hears of no other signal, and its ranks die with the agent
                time.sleep(POLL_SECONDS)
            if pending:
                start.on_line(pending.decode(errors="replace"))
        finally:
            _end(agent)
            _await_end(watch.processes_of_ranks())
            shutil.rmtree(meeting, ignore_errors=True)
    assert agent.returncode is not None, "it has ended"
    return _Attempt(HUNG if hang else agent.returncode, hang, is_over, bool(watch.ranks))


def _new_report(out: Path, node: int) -> Path:
    """A folder that is not there."""
    return next(path for n in itertools.count(1) if not (path := out / f"hang-{node}-{n}").exists())


def _await_end(ranks: list[psutil.Process]) -> None:
    """Return when the ranks of an agent that has ended have ended, too: the next ones use their GPUs and files."""
    remaining = psutil.wait_procs(ranks, timeout=GRACE_SECONDS)[1]
    if remaining:
        numbers = ", ".join(str(process.pid) for process in remaining)
        raise RuntimeError(
            f"processes {numbers} of training do not end, {GRACE_SECONDS} s after they were killed: they wait for a "
            "device or a disk. Restart the machine, and run the same command again"
        )


def _agent(
    run_json: Path, processes: int, nodes: Nodes, meeting: Path, module: str, name: str
) -> tuple[list[str], dict[str, str]]:
    """The command of torchrun's agent, and what it needs in its environment. `name`: of the attempt, by which agents
    of several machines know each other."""
    command = [sys.executable, "-u", "-m", "gristmill.training.run.deathsig", str(os.getpid())]
    command += [sys.executable, "-u", "-m", "gristmill.training.run.agent"]
    environment = {}
    if nodes.count > 1:
        command += ["--nnodes", str(nodes.count), "--node-rank", str(nodes.rank)]
        command += ["--rdzv-backend=static", f"--rdzv-endpoint={nodes.rendezvous}", f"--rdzv-id={name}"]
        command += [f"--rdzv-conf=timeout={MEETING_SECONDS:.0f}"]
    else:
        # a TCP store, which is the default, would listen on all interfaces
        command += ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={meeting}/agent"]
        command += ["--local-addr", "127.0.0.1"]
        environment[RENDEZVOUS] = f"file://{meeting}/ranks"
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # it would listen on all interfaces; no rank asks it
    # the folder for logs of the ranks, which have none, would stay among temporary files
    command += ["--nproc-per-node", str(processes), "--max-restarts", "0", "--log-dir", f"{meeting}/logs"]
    return [*command, *_grace(), "-m", module, str(run_json)], environment


def _grace() -> list[str]:
    """The option of torchrun for GRACE_SECONDS, if this release of torch has it: those before kill after 30 seconds.

    Read in its text, since an import takes seconds.
    """
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None, "torch is installed"
    launcher = Path(spec.origin).with_name("distributed") / "run.py"
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


# How gloo's errors begin, whose type is RuntimeError, after the path of its source; the rest are torch's own types.
_OF_TRANSPORT = ("gloo/transport/", "gloo/rendezvous/")


def is_of_another_rank(error: BaseException) -> bool:
    """Whether an error, or its cause, is from talking to another rank, which may have ended or hang."""
    import torch.distributed as dist

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, dist.DistError) or any(text in str(seen) for text in _OF_TRANSPORT):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def main(run_json: str) -> int:
    """Run one rank."""
    if PARENT in os.environ:
        die_with_parent(int(os.environ[PARENT]))
    heartbeat.begin()
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
        lost = is_of_another_rank(error)
        if isinstance(error, OSError) and files.is_full(error):  # of the metrics, say
            error = files.disk_full(str(run.out))
        with suppress(OSError), open(run.out / (LOSS if lost else FAILURE), "x") as first:
            first_line = next(iter(str(error).splitlines()), "")
            first.write(f"rank {os.environ.get('RANK', '0')}: {type(error).__name__}: {first_line}\n")
        if lost:
            traceback.print_exc()
            return LOST
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
