"""The two pages on which a home's records are looked at, as long as a command shows them: Prefect's and MLflow's."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from queue import SimpleQueue
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.machine import gate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import mlflow_pages, server
from gristmill.flows.run.local_server import LocalServer
from gristmill.storage.printable import redact_url

if TYPE_CHECKING:
    import mlflow

    from gristmill.flows.run import compared
else:
    mlflow = wrapt.lazy_import("mlflow")
    compared = wrapt.lazy_import("gristmill.flows.run.compared")


def named(settings: MachineSettings) -> Iterator[str]:
    """A line for each server that the user has named: its pages are there already."""
    if (prefect := server.named()) is not None:
        yield f"Prefect  {redact_url(prefect[1])} (PREFECT_API_URL)"
    if settings.tracking_uri.startswith("http"):
        yield f"MLflow   {redact_url(settings.tracking_uri)} (GRISTMILL_MLFLOW_URI)"


def shows_mlflow(settings: MachineSettings) -> bool:
    """Whether there are records of MLflow's to show here: without its package no run has any."""
    return not settings.tracking_uri.startswith("http") and find_spec("mlflow") is not None


@contextlib.contextmanager
def up(settings: MachineSettings, port: int, mlflow_port: int) -> Iterator[tuple[list[LocalServer], dict[str, str]]]:
    """A block in which the servers that the user has not named run, when they answer: they, and by name the links to
    their pages, with the login. Raises RuntimeError, with a sentence, if one cannot start."""
    # as Ctrl-C: the servers and their note go with the block
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        servers = {}
        if server.named() is None:
            servers["Prefect"] = server.child(settings, port, with_pages=True)
            stack.callback(servers["Prefect"].stop)
        if shows_mlflow(settings):
            servers["MLflow"] = mlflow_pages.start(settings, mlflow_port)
            stack.callback(servers["MLflow"].stop)
        addresses = {name: one.wait() for name, one in servers.items()}
        paths = {"Prefect": "/"}
        if "MLflow" in servers:
            paths["MLflow"] = compared.newest_view(mlflow.MlflowClient(settings.tracking_uri))
        links = {name: gate.link(addresses[name] + paths[name], one.login) for name, one in servers.items()}
        if prefect := servers.get("Prefect"):
            stack.enter_context(server.show(settings, prefect, links))
        yield list(servers.values()), links


def first_to_end(servers: list[LocalServer]) -> LocalServer:
    """The first of them whose process ends."""
    ended = SimpleQueue[LocalServer]()

    def watch(one: LocalServer) -> None:
        one.process.wait()
        ended.put(one)

    for one in servers:
        threading.Thread(target=watch, args=(one,), daemon=True).start()
    return ended.get()
