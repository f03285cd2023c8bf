"""Start a training run in processes of its own, and be such a process.

launch() is for the flow: it runs torchrun's agent, which starts the ranks as `python -m training.launch
RUN.json`, RUN.json being a RunConfig
(`storage.checked_json`).

Exit codes: 0 done (result.json is there); STOPPED (75, EX_TEMPFAIL of sysexits.h) the ranks got SIGTERM,
after a checkpoint if training had begun: run it again to go on; anything else failed, and the log says why.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from storage import checked_json
from training.config import RENDEZVOUS, RunConfig
from training.deathsig import PARENT, die_with_parent

STOPPED = 75
STOP_MARKER = "stopped"
GRACE_SECONDS = 300  # for a step and a checkpoint after SIGTERM, before the agent kills its ranks
POLL_SECONDS = 0.1


def default_processes() -> int:
    """One rank per GPU; 2 on a machine without, so that what runs is sharded training."""
    import torch

    return torch.cuda.device_count() or 2


def launch(
    run_json: Path,
    processes: int,
    log_path: Path,
    *,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
) -> int:
    """Run the training that run_json describes on this machine and return its exit code (see above).

    The output of all ranks is appended to log_path, and given line by line to on_line while it grows. `env`
    is added to the environment. An exception here or in on_line, such as KeyboardInterrupt, stops the ranks
    after a checkpoint. The agent and its ranks die with the thread that calls this, however it ends, kill -9
    included (on Linux). They find each other through a file and talk through the loopback device only.
    """
    run_json, log_path = Path(run_json).resolve(), Path(log_path)
    out = RunConfig.model_validate(checked_json.read(str(run_json))).out
    (out / STOP_MARKER).unlink(missing_ok=True)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    meeting = out.resolve() / "rendezvous"
    shutil.rmtree(meeting, ignore_errors=True)  # of a launch that was killed
    meeting.mkdir()
    command = [sys.executable, "-u", "-m", "training.deathsig", str(os.getpid())]
    command += [
        sys.executable,
        "-u",
        "-m",
        "torch.distributed.run",
        # a TCP store, which is the default, would listen on all interfaces
        "--rdzv-backend=c10d",
        "--rdzv-conf=store_type=file",
        f"--rdzv-endpoint={meeting}/agent",
        "--local-addr",
        "127.0.0.1",
    ]
    # the folder for logs of the ranks, which have none, would stay among temporary files
    command += ["--nproc-per-node", str(processes), "--max-restarts", "0", "--log-dir", f"{meeting}/logs"]
    command += [*_grace(), "-m", "training.launch", str(run_json)]
    with open(log_path, "ab", opener=_private) as output, log_path.open("rb") as tail:
        tail.seek(0, os.SEEK_END)
        agent = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(processes, {RENDEZVOUS: f"file://{meeting}/ranks", **(env or {})}),
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
                time.sleep(POLL_SECONDS)
            if pending:
                on_line(pending.decode(errors="replace"))
        finally:
            _end(agent)
            shutil.rmtree(meeting, ignore_errors=True)
    if agent.returncode and (out / STOP_MARKER).exists():
        return STOPPED  # torchrun's own code would be 1, as for any failure
    return agent.returncode


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _grace() -> list[str]:
    """The option of torchrun for GRACE_SECONDS, if this release of torch has it: those before kill after 30 seconds.

    Read in its text, since an import takes seconds.
    """
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None, "torch is installed"
    launcher = Path(found.origin).with_name("distributed") / "run.py"
    known = '"--shutdown-timeout"' in launcher.read_text(encoding="utf-8")
    return ["--shutdown-timeout", str(GRACE_SECONDS)] if known else []


def _end(agent: subprocess.Popen) -> None:
    """Make sure that the agent has ended; its ranks follow it."""
    if agent.poll() is None:
        agent.terminate()
        try:
            agent.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()


def _environment(processes: int, extra: Mapping[str, str]) -> dict[str, str]:
    here = str(Path(__file__).resolve().parents[1])
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    path = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), here]
    return {
        **os.environ,
        "PYTHONSAFEPATH": "1",  # or a file beside the caller could stand in for a module of the library
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // processes)),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # it would listen on all interfaces, and no rank asks it
        "GLOO_SOCKET_IFNAME": loopback,  # no name lookup, so no network
        "NCCL_SOCKET_IFNAME": loopback,
        **extra,
    }


def main(run_json: str) -> int:
    """One rank."""
    if PARENT in os.environ:
        die_with_parent(int(os.environ[PARENT]))
    run = RunConfig.model_validate(checked_json.read(run_json))
    leads = os.environ.get("RANK", "0") == "0"
    logging.basicConfig(level=logging.INFO if leads else logging.WARNING, format="%(message)s", stream=sys.stdout)
    from training.loop import Stopped, train  # torch is loaded only after the parent's death is covered

    try:
        train(run)
    except Stopped as stopped:
        if leads:
            logging.info("%s", stopped)
            (run.out / STOP_MARKER).touch()
        return STOPPED
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    logging.shutdown()
    sys.stdout.flush()
    # Everything is on disk and the process group is gone. Taking the interpreter down as usual was seen to abort a
    # finished rank once in some fifty launches ("terminate called without an active exception"), as happens when a
    # native thread asks for the interpreter while it ends.
    os._exit(code)
