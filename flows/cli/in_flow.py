"""A flow run by a command: the embedded server starts meanwhile, and a stop is said in a line."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer

from gristmill.flows.cli.app import settings

Made = TypeVar("Made")


def start_server_again() -> None:
    """Start the embedded server of a home that has had one, ahead of all else that a command does: its start is what
    is waited for. Where there was none, none is made for a command that may be wrong."""
    if (Path(settings().prefect_home) / "prefect.db").exists():
        _start_server()


def _start_server() -> None:
    from gristmill.flows.run.prefect_env import EMBEDDED

    if EMBEDDED:
        from gristmill.flows.run import server

        home = Path(settings().prefect_home)
        if not (home / "prefect.db").exists():
            typer.echo("prefect: making its database, once for this home", err=True)
        server.start(home)


def in_flow(flow: str, recipe: str, run: Callable[[], Made], find: Callable[[], Made | None] = lambda: None) -> Made:
    """What `run` returns, a flow that it imports once the embedded server is starting. `find`: returns it without a
    flow and without the server, if all is finished."""
    from gristmill.storage.remote.redact import redact_url

    typer.echo(f"{flow} of {recipe}, in {redact_url(settings().home)}", err=True)
    # until the flow sees to it itself
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        if (finished := find()) is not None:
            return finished
        _start_server()  # while Prefect is imported here
        return run()
    except (KeyboardInterrupt, SystemExit):
        typer.echo("gristmill: stopped; what is finished is kept, and the same command goes on from there", err=True)
        raise
