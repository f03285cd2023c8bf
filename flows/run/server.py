"""The embedded Prefect server: a child process on a free port of loopback, one for all flows of this process.

It ends when the pipe to its parent closes, which the kernel does however the parent ends, kill -9 included. It is
in a session of its own, so that a Ctrl-C at the terminal does not reach it and the flow can still record its end.
Prefect would start a server itself, which does neither.

    python -m gristmill.flows.run.server SOCKET      is such a child; SOCKET is the number of an open, listening socket
"""

import gristmill.flows.run.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
import asyncio
import atexit
import gc
import os
import secrets
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

from gristmill.flows.machine.databases import ensure_database, private_folder

_END_SECONDS = 10.0  # for what is recorded still to be written, before the server ends all the same
_START_SECONDS = 300.0

_server: "EmbeddedServer | None" = None


class EmbeddedServer:
    """The child. Connections wait in the socket until it answers, so its address is good at once.

    It answers who has `login`, as `user:password`: a password of this server, since any account of the machine can
    connect to loopback.
    """

    def __init__(self, home: Path) -> None:
        private_folder(home)
        self.login = f"gristmill:{secrets.token_urlsafe(32)}"
        self.log = home / "server.log"
        here = str(Path(gristmill.__file__).resolve().parents[1])
        path = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            open(self.log, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as log,
        ):
            self.address = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gristmill.flows.run.server", str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[listening.fileno()],
                start_new_session=True,
                env=os.environ
                | {
                    "PREFECT_HOME": str(home),
                    "PREFECT_SERVER_API_AUTH_STRING": self.login,
                    "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
                },
            )

    def wait_until_ready(self) -> None:
        """Return when the server answers. Raises RuntimeError if it has ended or does not answer in time."""
        try:
            with urllib.request.urlopen(f"{self.address}/health", timeout=_START_SECONDS) as answer:
                answer.read()
        except OSError as error:
            raise RuntimeError(f"the embedded Prefect server did not start ({error}): see {self.log}") from error

    def stop(self) -> None:
        """End the server once it has written what it was sent."""
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.close()
        self.process.wait()


def start(home: Path) -> EmbeddedServer:
    """The server of this process, started now if there is none; it ends with the process."""
    global _server
    if _server is None or _server.process.poll() is not None:
        _server = EmbeddedServer(home)
        atexit.register(_server.stop)
    return _server


def is_embedded() -> bool:
    """Whether flows of this process are recorded by a server that ends with it."""
    return _server is not None


def _forget() -> None:
    global _server
    _server = None


os.register_at_fork(after_in_child=_forget)  # a fork has no child of its own


def _serve(number: int) -> None:
    """Be the server, on the listening socket of that number."""
    ending = threading.Event()
    running: list[Any] = []

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        ending.set()
        for server in running:
            server.should_exit = True
        if running:
            threading.Event().wait(_END_SECONDS)
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    os.umask(0o077)

    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    database = settings.home / "prefect.db"
    url = settings.server.database.connection_url
    if url is None or url.get_secret_value() == _url(database):  # no other was set
        ensure_database(database, _migrate)
    app = create_app(ephemeral=True, final=True)
    # a client that is ending keeps its connections open, and asks nothing more
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    running.append(server)
    server.should_exit = ending.is_set()
    with socket.socket(fileno=number) as listening:
        server.run(sockets=[listening])


def _migrate(path: Path) -> None:
    """Make Prefect's tables in an empty database."""
    from prefect.server.database import provide_database_interface
    from prefect.server.database.dependencies import temporary_database_interface
    from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL, temporary_settings

    with temporary_database_interface(), temporary_settings({PREFECT_SERVER_DATABASE_CONNECTION_URL: _url(path)}):
        asyncio.run(provide_database_interface().create_db())


def _url(path: Path) -> str:
    """A database's address, as Prefect writes that of its home."""
    return f"sqlite+aiosqlite:///{path}"


if __name__ == "__main__":
    gc.set_threshold(50_000)  # imports leave next to no garbage, and to look for it is a fifth of the start
    _serve(int(sys.argv[1]))
    gc.freeze()  # or Python looks for cycles in all that was imported before it ends
