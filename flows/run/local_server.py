"""A server on a loopback port as a child process. It ends with its parent and answers only requests with its login.

The child ends when the pipe to its parent closes. The kernel closes it however the parent ends, including kill -9. The
child has its own session, so a Ctrl-C at the terminal does not reach it and the parent can still record its end.
"""

import contextlib
import gc
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt

import gristmill

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from gristmill.flows.machine import gate
else:
    gate = wrapt.lazy_import("gristmill.flows.machine.gate")
    uvicorn = wrapt.lazy_import("uvicorn")

_END_SECONDS = 10.0  # for what was sent still to be written, before the child ends all the same
_ERROR = "error: "  # begins the line that a child prints instead of its address if it cannot start


class LocalServer:
    """A child process that runs `module`, whose main program calls `serve`. It starts immediately.

    name: for messages. log: the file of its output, readable only by its user, as is a folder that is created for it.
    environment: all variables of the child; PYTHONPATH is added. login: `gristmill:TOKEN`, for Basic authentication.
    The child reads it from its standard input, because other accounts can read arguments. process: the child.
    """

    def __init__(self, name: str, module: str, log: Path, *arguments: str, environment: Mapping[str, str]) -> None:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.name, self.log = name, log
        self.login = f"gristmill:{secrets.token_urlsafe(32)}"
        self._line: str | None = None
        root = str(Path(gristmill.__file__).resolve().parents[1])
        path = [root, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        with open(log, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as output:
            os.fchmod(output.fileno(), 0o600)  # one that was there before
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                text=True,
                env={**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))},
            )
        assert self.process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `wait` reports
            self.process.stdin.write(f"{self.login}\n")
            self.process.stdin.flush()

    def wait(self) -> str:
        """Wait until it answers; return its address, `http://127.0.0.1:PORT`. Raises RuntimeError if it cannot
        start."""
        assert self.process.stdout is not None, "it is a pipe"
        if self._line is None:
            self._line = self.process.stdout.readline().rstrip("\n")
        if self._line.startswith(_ERROR):
            raise RuntimeError(self._line.removeprefix(_ERROR))
        if not self._line:
            raise RuntimeError(f"{self.name} cannot start ({self.how_ended()}): see {self.log}")
        return self._line

    def how_ended(self) -> str:
        """Wait for its end; return the signal or exit code."""
        code = self.process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """End it after it has written everything it received."""
        assert self.process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def serve(make_app: Callable[[], "ASGIApp"], port: int = 0) -> None:
    """The main program of the child: serve the application to clients with the login until the standard input ends.

    The login is the first line of the standard input. `make_app` may raise RuntimeError with a sentence for the parent.
    `port`: 0 for a free one.
    """
    answers = os.dup(1)  # for the one line; what libraries print goes to the log
    os.dup2(2, 1)
    os.umask(0o077)
    if not (login := _first_line()):
        return  # the parent has ended
    ending, running = threading.Event(), list[Any]()

    def end_with_parent() -> None:
        while os.read(0, 1):  # a buffered reader in use would abort an interpreter that ends by an error
            pass
        ending.set()
        for server in running:
            server.should_exit = True
        if running:
            threading.Event().wait(_END_SECONDS)
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        app = make_app()
        listening = _listening(port)
    except RuntimeError as error:
        os.write(answers, f"{_ERROR}{' '.join(str(error).split())}\n".encode())
        os._exit(1)
    address = f"http://{gate.LOOPBACK}:{listening.getsockname()[1]}"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                os.write(answers, f"{address}\n".encode())

    # a client that is ending keeps its connections open, and asks nothing more
    config = uvicorn.Config(
        gate.Gate(app, login), log_level="error", access_log=False, lifespan="on", timeout_graceful_shutdown=1,
        proxy_headers=False, server_header=False,
    )  # fmt: skip
    server = Server(config)
    running.append(server)
    server.should_exit = ending.is_set()
    with listening:
        server.run(sockets=[listening])
    gc.freeze()  # otherwise Python searches all imported modules for cycles before it ends


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((gate.LOOPBACK, port))
    except OSError as error:
        raise RuntimeError(f"port {port} of {gate.LOOPBACK} cannot be used ({os.strerror(error.errno or 0)})") from None


def _first_line() -> str:
    """The first line of the standard input; empty if it ends first. Read without a buffer, which would consume later
    input."""
    line = b""
    while (byte := os.read(0, 1)) != b"\n":
        if not byte:
            return ""
        line += byte
    return line.decode()
