"""The Prefect server that records the flows of this process, if the user has not configured one.

It is the server of `gristmill ui`, if that shows the home, or a child process. Prefect can start a child itself
(`SubprocessASGIServer`), but that one has no login, receives the terminal's Ctrl-C before the flow has recorded its
end, and keeps running when the flow's process is killed. So this module runs the same application, `create_app`, behind
our gate.

    python -m gristmill.flows.run.server PORT [--pages]   is such a child; with `--pages` as `prefect server start`
"""

import asyncio
import atexit
import contextlib
import gc
import json
import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import wrapt

from gristmill.flows.machine.databases import check_own, ensure_database, private_folder, template_of, trouble
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run.local_server import LocalServer, serve
from gristmill.storage import files
from gristmill.storage.leftovers import has_ended, is_of_this_host, this_process

if TYPE_CHECKING:
    from prefect import settings as prefect_settings
    from prefect.server import database as prefect_database
    from prefect.server.api import server as api_server
    from prefect.server.database import dependencies as database_dependencies
    from starlette.types import ASGIApp
else:
    api_server = wrapt.lazy_import("prefect.server.api.server")
    prefect_database = wrapt.lazy_import("prefect.server.database")
    database_dependencies = wrapt.lazy_import("prefect.server.database.dependencies")
    prefect_settings = wrapt.lazy_import("prefect.settings")

HOLDS = "Prefect's records of earlier runs; no run needs them, and they contain no data"
# With smaller batches the recorder of task runs loses some in bursts (seen with prefect 3.8 and 3.9). Flows use no
# block types, and two servers that start at the same time in a new home would both insert them. Without the memo, a
# server that a user starts in the home inserts them.
_SETTINGS = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}
# Settings that a user may have for a server with another login or address. Ours has the login of the gate and a port of
# its own.
_OF_OTHER_SERVERS = (
    "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_UI_API_URL", "PREFECT_SERVER_UI_SERVE_BASE", "PREFECT_UI_SERVE_BASE"
)  # fmt: skip
_NAMING = frozenset({"PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH", "PREFECT_HOME"})
# Files where Prefect looks for its settings, each with the text by which one with a server's address is recognized.
_SETTINGS_FILES = {
    ".env": "PREFECT_API_URL",
    "prefect.toml": "url",
    "pyproject.toml": "[tool.prefect",
    "~/.prefect/profiles.toml": "PREFECT_API_URL",
}
_MODULE, _PAGES = "gristmill.flows.run.server", "--pages"

_children: dict[Path, LocalServer] = {}  # servers of this process, by the folder of their database


class Pages(NamedTuple):
    """The note in a home that `gristmill ui` shows it: its process, the address and login of its Prefect server, and
    the links that it has printed, by name."""

    process: str
    address: str
    login: str
    links: dict[str, str]


def may_be_named() -> bool:
    """Whether a user may have configured a server, in the environment or a settings file. Does not import Prefect."""
    return not _NAMING.isdisjoint(os.environ) or any(
        word in path.read_text(encoding="utf-8", errors="replace")
        for name, word in _SETTINGS_FILES.items()
        if (path := Path(name).expanduser()).is_file()
    )


def named() -> tuple[str, str, str] | None:
    """API address, address of the pages and login (`user:password`) of the server that the user has configured."""
    if not may_be_named():
        return None
    prefect = prefect_settings.get_current_settings()
    if not prefect.api.url:
        return None
    login = prefect.api.auth_string.get_secret_value() if prefect.api.auth_string else ""
    return prefect.api.url, prefect.ui_url or prefect.api.url, login


def home_folder(settings: MachineSettings) -> Path:
    """The folder of Prefect's database and log: the user's PREFECT_HOME, or one in the home. Raises RuntimeError if it
    belongs to another account."""
    folder = Path(os.environ.get("PREFECT_HOME") or settings.prefect_home).absolute()
    check_own(folder)
    return folder


def start(settings: MachineSettings) -> None:
    """Start the server of this home, unless one is running. It ends with this process."""
    own = _children.get(home_folder(settings))
    if shown(settings) is not None or (own is not None and own.process.poll() is None):
        return
    _children[home_folder(settings)] = own = child(settings)
    atexit.register(own.stop)


def child(settings: MachineSettings, port: int = 0, with_pages: bool = False) -> LocalServer:
    """Start a server of the home as a child process, by default on a free port. `with_pages`: also with pages,
    schedules and automations."""
    folder = home_folder(settings)
    private_folder(folder)
    environment = {name: value for name, value in os.environ.items() if name not in _OF_OTHER_SERVERS}
    environment = _SETTINGS | environment | {"PREFECT_HOME": str(folder), "PREFECT_SERVER_UI_API_URL": "/api"}
    arguments = [str(port), _PAGES] if with_pages else [str(port)]
    return LocalServer("Prefect's server", _MODULE, folder / "server.log", *arguments, environment=environment)


def endpoint(settings: MachineSettings) -> tuple[str, str]:
    """Wait until the server that records this process answers; return its API address and login. Raises
    RuntimeError."""
    if (pages := shown(settings)) is not None:
        return f"{pages.address}/api", pages.login
    start(settings)
    own = _children[home_folder(settings)]
    return f"{own.wait()}/api", own.login


def has_pages(settings: MachineSettings) -> bool:
    """Whether the server has pages where a person can watch the flow: the user's server, or `gristmill ui`."""
    return home_folder(settings) not in _children


def why_none(settings: MachineSettings) -> str:
    """Why the server fails, in one sentence with the fix; empty if no reason is found."""
    if why := trouble(home_folder(settings) / "prefect.db", HOLDS):
        return why
    own = _children.get(home_folder(settings))
    if own is None:
        ended = "`gristmill ui`, whose server recorded this run, has ended: run the same command again"
        return "" if shown(settings) else ended
    if own.process.poll() is None:
        return ""
    return f"the Prefect server of this run has ended ({own.how_ended()}): run the same command again"


def _note(settings: MachineSettings) -> Path:
    return home_folder(settings) / "pages.json"


@contextlib.contextmanager
def show(settings: MachineSettings, server: LocalServer, links: dict[str, str]) -> Iterator[None]:
    """A block in which new runs of the home use this server of this process, which has pages."""
    path = _note(settings)
    files.write_json(str(path), Pages(this_process(), server.wait(), server.login, links)._asdict())
    path.chmod(0o600)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def shown(settings: MachineSettings) -> Pages | None:
    """The note of a `gristmill ui` that shows this home now, on this host; else None."""
    try:
        pages = Pages(**json.loads(_note(settings).read_text()))
    except FileNotFoundError:
        return None
    except TypeError:  # written by another release, whose server may record differently
        return None
    return pages if is_of_this_host(pages.process) and not has_ended(pages.process) else None


os.register_at_fork(after_in_child=_children.clear)  # the servers are children of the parent


def _app() -> "ASGIApp":
    settings = prefect_settings.get_current_settings()
    database = settings.home / "prefect.db"
    url = settings.server.database.connection_url
    if url is None or url.get_secret_value() == _url(database):  # the user has not set another one
        made_by = f"prefect {version('prefect')}"
        ensure_database(database, made_by, _migrate, _migrate, HOLDS, template_of("prefect"))
    create_app = api_server.create_app
    gc.freeze()  # Prefect collects garbage when it makes its application, which would search all imported modules
    return create_app(ephemeral=_PAGES not in sys.argv, final=True)


def _migrate(path: Path) -> None:
    """Create Prefect's tables in an empty database, or migrate those of an older release."""
    with (
        database_dependencies.temporary_database_interface(),
        prefect_settings.temporary_settings({prefect_settings.PREFECT_SERVER_DATABASE_CONNECTION_URL: _url(path)}),
    ):
        asyncio.run(prefect_database.provide_database_interface().create_db())


def _url(path: Path) -> str:
    """The address of a SQLite database, as Prefect writes it."""
    return f"sqlite+aiosqlite:///{path}"


if __name__ == "__main__":
    gc.set_threshold(50_000)  # imports leave almost no garbage, and searching for it takes a fifth of the start
    serve(_app, int(sys.argv[1]))
