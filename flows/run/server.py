"""The embedded Prefect server: a child process on a free port of loopback, one for all flows of this process.

It ends when the pipe to its parent closes, which the kernel does however the parent ends, kill -9 included. It is
in a session of its own, so that a Ctrl-C at the terminal does not reach it and the flow can still record its end.
Prefect would start a server itself, which does neither.

    python -m gristmill.flows.run.server SOCKET READY      is such a child; SOCKET is the number of an open, listening
                                                           socket, READY that of a pipe, in which it says that it
                                                           answers, or why it cannot
"""

import gristmill.flows.run.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
import asyncio
import atexit
import contextlib
import gc
import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt

from gristmill.flows.machine.databases import DamagedDatabaseError, ensure_database, private_folder, trouble

if TYPE_CHECKING:
    import uvicorn
    from prefect import settings as prefect_settings
    from prefect.server import database as prefect_database
    from prefect.server.api import server as api_server
    from prefect.server.database import dependencies as database_dependencies
else:
    api_server = wrapt.lazy_import("prefect.server.api.server")
    prefect_database = wrapt.lazy_import("prefect.server.database")
    database_dependencies = wrapt.lazy_import("prefect.server.database.dependencies")
    prefect_settings = wrapt.lazy_import("prefect.settings")
    uvicorn = wrapt.lazy_import("uvicorn")

_END_SECONDS = 10.0  # for what is recorded still to be written, before the server ends all the same
_START_SECONDS = 300.0

HOLDS = "Prefect's records of earlier runs, which no run needs, and no data"
_ANSWERS = "\n"  # what the child writes into the pipe when it answers; before that, why it cannot
_TRIES = 3  # of a server that is killed before it has answered

log = logging.getLogger(__name__)

_server: "EmbeddedServer | None" = None


class EmbeddedServer:
    """The child. Connections wait in the socket until it answers, so its address is good at once.

    It answers who has `login`, as `user:password`: a password of this server, since any account of the machine can
    connect to loopback. The socket is this process's, too: when the child dies, another one takes it over, and clients
    ask again. `failure` says why there is none any more; who asks then is refused at once.
    """

    def __init__(self, home: Path) -> None:
        private_folder(home)
        self.login = f"gristmill:{secrets.token_urlsafe(32)}"
        self.home, self.log = home, home / "server.log"
        self.failure = ""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}/api"
        self._ending, self._lock = False, threading.Lock()
        self._begin()
        threading.Thread(target=self._watch, name="prefect-server", daemon=True).start()

    def _begin(self) -> None:
        here = str(Path(gristmill.__file__).resolve().parents[1])
        path = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self._ready, ready = os.pipe()
        given = [self._listening.fileno(), ready]
        try:
            with open(self.log, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "gristmill.flows.run.server", *map(str, given)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=given,
                    start_new_session=True,
                    env=os.environ
                    | {
                        "PREFECT_HOME": str(self.home),
                        "PREFECT_SERVER_API_AUTH_STRING": self.login,
                        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
                    },
                )
        finally:
            os.close(ready)

    def _watch(self) -> None:
        """Start the child again when it has died, until one cannot start."""
        tries = 0
        while True:
            code = self.process.wait()
            with open(self._ready, encoding="utf-8") as ready:
                said = ready.read()
            answered, said = said == _ANSWERS, said.removeprefix(_ANSWERS)
            with self._lock:
                if self._ending:
                    return
                tries = 0 if answered else tries + 1
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                if tries == _TRIES or (code >= 0 and not answered):
                    self.failure = said or trouble(self.home / "prefect.db", HOLDS)
                    self.failure = self.failure or f"the embedded Prefect server cannot start ({how}): see {self.log}"
                    break
                log.warning("the embedded Prefect server has died (%s) and is started again; the run goes on", how)
                try:
                    self._begin()
                except OSError as error:
                    self.failure = f"the embedded Prefect server has died ({how}); another cannot start ({error})"
                    break
        self._refuse()

    def _refuse(self) -> None:
        """Answer all with an error, so that nobody waits for a server that does not come."""
        said = self.failure.encode()
        answer = b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # the end
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(1)
                connection.recv(1 << 16)
                connection.sendall(answer % (len(said), said))

    def wait_until_ready(self) -> None:
        """Return when the server answers. Raises RuntimeError if it has ended or does not answer in time."""
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=_START_SECONDS) as answer:
                    answer.read()
                    return
            except OSError as error:
                if self.failure or time.monotonic() > until:
                    said = self.failure or f"the embedded Prefect server does not answer ({error}): see {self.log}"
                    raise RuntimeError(said) from None
                time.sleep(0.1)  # it has died, and is started again

    def why_none(self) -> str:
        """Why it does not do what it is asked, in one sentence with the remedy; empty if nothing is found."""
        return self.failure or trouble(self.home / "prefect.db", HOLDS)

    def stop(self) -> None:
        """End the server once it has written what it was sent."""
        with self._lock:
            self._ending = True
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.close()
        self.process.wait()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # who waits in accept() returns
        self._listening.close()


def start(home: Path) -> EmbeddedServer:
    """The server of this process, started now if there is none; it ends with the process."""
    global _server
    if _server is None or _server.failure:
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


def _serve(number: int, ready: int) -> None:
    """Be the server, on the listening socket of that number."""
    ending = threading.Event()
    running: list[Any] = []

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
    os.umask(0o077)

    settings = prefect_settings.get_current_settings()
    database = settings.home / "prefect.db"
    url = settings.server.database.connection_url
    if url is None or url.get_secret_value() == _url(database):  # no other was set
        try:
            ensure_database(database, f"prefect {version('prefect')}", _migrate, _migrate, HOLDS)
        except DamagedDatabaseError as error:
            os.write(ready, str(error).encode())
            os._exit(1)

    create_app = api_server.create_app
    gc.freeze()  # Prefect looks for cycles when its application is made, in all that was imported
    app = create_app(ephemeral=True, final=True)
    # a client that is ending keeps its connections open, and asks nothing more
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                os.write(ready, _ANSWERS.encode())

    server = Server(config)
    running.append(server)
    server.should_exit = ending.is_set()
    with socket.socket(fileno=number) as listening:
        server.run(sockets=[listening])


def _migrate(path: Path) -> None:
    """Make Prefect's tables in an empty database, or bring those of an older release to this one's."""
    with (
        database_dependencies.temporary_database_interface(),
        prefect_settings.temporary_settings({prefect_settings.PREFECT_SERVER_DATABASE_CONNECTION_URL: _url(path)}),
    ):
        asyncio.run(prefect_database.provide_database_interface().create_db())


def _url(path: Path) -> str:
    """A database's address, as Prefect writes that of its home."""
    return f"sqlite+aiosqlite:///{path}"


if __name__ == "__main__":
    gc.set_threshold(50_000)  # imports leave next to no garbage, and to look for it is a fifth of the start
    _serve(*map(int, sys.argv[1:]))
    gc.freeze()  # or Python looks for cycles in all that was imported before it ends
