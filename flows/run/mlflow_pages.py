"""MLflow's pages of a home's records, as a child process behind a gate.

    python -m gristmill.flows.run.mlflow_pages PORT < LOGIN      is that child; its home is that of the settings

`mlflow server` answers every account of the machine, and starts processes that run jobs. So this module serves MLflow's
application itself. Settings that would start processes, contact other machines or run code are off, and requests to
parts that have no such setting are refused.
"""

import gc
import os
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt

from gristmill.flows.machine.databases import ensure_mlflow
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import local_server
from gristmill.storage.printable import redact_url
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from mlflow.server import fastapi_app
    from starlette.types import ASGIApp, Receive, Scope, Send

    from gristmill.flows.run import tracking
else:
    fastapi_app = wrapt.lazy_import("mlflow.server.fastapi_app")
    tracking = wrapt.lazy_import("gristmill.flows.run.tracking")

# The two that begin with an underscore are internal to MLflow: `mlflow server` uses them to tell its workers what to
# serve, and there is no public call.
_STORE, _ARTIFACTS = "_MLFLOW_SERVER_FILE_STORE", "_MLFLOW_SERVER_ARTIFACT_ROOT"
_OFF = {
    "MLFLOW_SERVER_ALLOWED_HOSTS": "*",  # the gate has checked it
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_SERVER_JOB_ENABLE_PERIODIC_TASKS": "false",
    "MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS": "false",
    "MLFLOW_SQL_TRACE_ROLLUPS_ENABLED": "false",
    "MLFLOW_ENABLE_AI_GATEWAY": "false",
    "MLFLOW_ENABLE_REMOTE_ASSISTANT": "false",
}
# Settings that a user may have for another server.
_OF_OTHER_SERVERS = (
    "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", "_MLFLOW_STATIC_PREFIX",
    "_MLFLOW_SERVER_SERVE_ARTIFACTS", "_MLFLOW_SERVER_ARTIFACT_DESTINATION", "_MLFLOW_SERVER_ARTIFACTS_ONLY",
    "_MLFLOW_SERVER_REGISTRY_STORE", "_MLFLOW_SERVER_READ_REPLICA_BACKEND_STORE", "prometheus_multiproc_dir",
)  # fmt: skip
# Experiments, runs, models and their files. Other parts have no setting that disables them, or may lose it in the next
# release: an assistant that runs commands on this machine, jobs, a gateway to external models, webhooks, prompts.
_SERVED = re.compile(
    r"/(|health|version|graphql|get-artifact|model-versions/get-artifact|static-files/.+|(ajax-)?api/\d\.0/?mlflow/"
    r"(artifacts|datasets|experiments|logged-models|metrics|model-versions|registered-models|runs(?!/create-promptlab)|"
    r"server-info|traces|ui-telemetry|upload-artifact)(/.*)?)"
)


def start(settings: MachineSettings, port: int = 0) -> local_server.LocalServer:
    """Start MLflow's pages of a home, by default on a free port. Raises MissingExtraError if MLflow is not
    installed."""
    require("train", "MLflow's user interface")
    log = Path(settings.local_folder) / "mlflow-pages.log"
    # in the environment, which other accounts cannot read: the address of a server may have a password
    places = {
        "GRISTMILL_HOME": settings.home,
        "GRISTMILL_LOCAL": settings.local_folder,
        "GRISTMILL_MLFLOW_URI": settings.mlflow_uri,
    }
    return local_server.LocalServer(
        "MLflow", "gristmill.flows.run.mlflow_pages", log, str(port), environment=os.environ | places
    )


class _Closed:
    """MLflow's application, restricted to the parts that show and change records.

    Its startup event is not sent, because MLflow would then remove containers that other MLflow servers have started.
    """

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        if scope["type"] == "websocket":  # it has none
            return await send({"type": "websocket.close", "code": 1000})
        if not _SERVED.fullmatch(scope["path"]):
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            return await send({"type": "http.response.body", "body": b""})

        await self.app(scope, receive, send)


async def _live(receive: "Receive", send: "Send") -> None:
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


def _make_app() -> Any:
    settings = MachineSettings()
    uri = settings.tracking_uri
    if uri.startswith("http"):
        raise RuntimeError(f"MLflow's records are at {redact_url(uri)}: open that server's pages instead")
    artifacts = f"{settings.local_folder}/mlflow-artifacts"
    if uri.startswith(tracking.SQLITE):
        database = Path(uri.removeprefix(tracking.SQLITE))
        ensure_mlflow(database)
        _take_over(database, artifacts)
    for name in _OF_OTHER_SERVERS:
        os.environ.pop(name, None)
    os.environ |= {_STORE: uri, _ARTIFACTS: artifacts} | _OFF
    return _Closed(fastapi_app.app)


def _take_over(database: Path, artifacts: str) -> None:
    """Point to the artifacts of this home, if it was moved or copied, instead of those of the original."""
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        folders = connection.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall()
    for (folder,) in folders:
        if folder != artifacts and Path(folder).name == Path(artifacts).name:
            tracking.move_artifacts(database, folder, artifacts)


if __name__ == "__main__":
    gc.set_threshold(50_000)  # imports leave almost no garbage, and searching for it takes a fifth of the start
    local_server.serve(_make_app, int(sys.argv[1]))
