"""A server on a free port of loopback, as a child process: it ends with its parent, and answers who has its login.

The child ends when the pipe to its parent closes, which the kernel does however the parent ends, kill -9 included. It
is in a session of its own, so that a Ctrl-C at the terminal does not reach it and the parent can still record its end.
"""

import contextlib
import gc
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt

import gristmill
from gristmill.flows.machine.databases import private_folder

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from gristmill.flows.machine import gate
else:
    gate = wrapt.lazy_import("gristmill.flows.machine.gate")
    uvicorn = wrapt.lazy_import("uvicorn")

_END_SECONDS = 10.0  # for what was sent still to be written, before the child ends all the same
_ERROR = "error: "  # how the line begins in which a child says why it cannot answer, in place of its address


class LocalServer:
    """The child that runs `module`, whose main program calls `serve`; started at once. `name`: of it, in sentences.

    `log`: the file of what it says, only for its user. `environment`: more of it for the child. `login`: user and
    password as Basic authentication has them, `gristmill:TOKEN`; the child reads it from its standard input, since
    others may read arguments.
    """

    def __init__(self, name: str, module: str, log: Path, *arguments: str, **environment: str) -> None:
        private_folder(log.parent)
        self.name, self.log = name, log
        self.login = f"gristmill:{secrets.token_urlsafe(32)}"
        self._line: str | None = None
        root = str(Path(gristmill.__file__).resolve().parents[1])
        path = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with open(log, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                text=True,
                env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path))},
            )
        assert self.process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):  # it has ended: `wait` says so
            self.process.stdin.write(f"{self.login}\n")
            self.process.stdin.flush()

    def wait(self) -> str:
        """Its address, `http://127.0.0.1:PORT`, when it answers. Raises RuntimeError with a sentence if it cannot."""
        assert self.process.stdout is not None, "it is a pipe"
        if self._line is None:
            self._line = self.process.stdout.readline().rstrip("\n")
        if self._line.startswith(_ERROR):
            raise RuntimeError(self._line.removeprefix(_ERROR))
        if not self._line:
            raise RuntimeError(f"{self.name} cannot start ({self.how_ended()}): see {self.log}")
        return self._line

    def how_ended(self) -> str:
        """Waits for its end."""
        code = self.process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """End it, once it has written what it was sent."""
        assert self.process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def serve(make_app: Callable[[], "ASGIApp"], port: int = 0) -> None:
    """Be the child: serve the application to who has the login, until the standard input ends. `make_app` may raise
    RuntimeError with a sentence for the parent."""
    answers = os.dup(1)  # for the one line; what libraries print goes to the log
    os.dup2(2, 1)
    os.umask(0o077)
    login = _first_line()
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
        listening = socket.create_server(("127.0.0.1", port))
    except (RuntimeError, OSError) as error:
        os.write(answers, f"{_ERROR}{error}\n".encode())
        os._exit(1)
    address = f"127.0.0.1:{listening.getsockname()[1]}"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                os.write(answers, f"http://{address}\n".encode())

    # a client that is ending keeps its connections open, and asks nothing more
    config = uvicorn.Config(gate.Gate(app, login), log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    server = Server(config)
    running.append(server)
    server.should_exit = ending.is_set()
    with listening:
        server.run(sockets=[listening])
    gc.freeze()  # or Python looks for cycles in all that was imported before it ends


def _first_line() -> str:
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode()
