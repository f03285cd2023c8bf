"""Checks what a run needs: this machine, and the services that the settings name. One line per check."""

import contextlib
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import psutil
import wrapt

import gristmill
from gristmill.flows.machine.databases import MLFLOW_HOLDS, damage, trouble
from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage import exclusive, files
from gristmill.storage.printable import redact_url, redact_urls
from gristmill.tasks.engine import clusters, extras

if TYPE_CHECKING:
    import dask
    import distributed
    import httpx
    import redis

    from gristmill.flows.run import server
    from gristmill.tasks.kernels import compiled
else:
    dask = wrapt.lazy_import("dask")
    distributed = wrapt.lazy_import("distributed")
    compiled = wrapt.lazy_import("gristmill.tasks.kernels.compiled")
    server = wrapt.lazy_import("gristmill.flows.run.server")
    httpx = wrapt.lazy_import("httpx")
    redis = wrapt.lazy_import("redis")

State = Literal["ok", "warning", "error"]

_SECONDS = 5.0  # for an answer
_SKEW_WARNING, _SKEW_ERROR = 5.0, 300.0  # S3 refuses requests that are 15 minutes off
_FREE_WARNING, _FREE_ERROR = 20e9, 1e9  # bytes
_OPEN_FILES = 4096  # sockets and files of a flow with a few hundred Dask workers


@dataclass(frozen=True)
class Line:
    """A check, its result, and the fix if it failed."""

    state: State
    subject: str
    found: str
    remedy: str = ""


def examine(settings: MachineSettings) -> Iterator[Line]:
    """Yield a line for each check as soon as it is done. A service that does not answer is an error."""
    for look in (_versions, _memory, _disks, _home, _kernels, _prefect, _mlflow, _dask, _redis, _ports):
        try:
            yield from look(settings)
        except Exception as error:
            message = redact_urls(f"{type(error).__name__}: {error}".splitlines()[0])
            yield Line("error", look.__name__.strip("_"), message[:300], "check the settings, see `gristmill --help`")


def _versions(settings: MachineSettings) -> Iterator[Line]:
    python = ".".join(map(str, sys.version_info[:3]))
    names = ("gristmill", "prefect", "distributed", "numpy", "pyarrow")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    yield Line("ok", "versions", f"Python {python}, {versions}")

    if missing := extras.missing(extras.EXTRAS["train"]):
        remedy = "pip install 'gristmill[train]', unless this machine only builds corpora"
        yield Line("warning", "extra train", f"{', '.join(missing)} not installed", remedy)
    whole = [extra for extra, distributions in extras.EXTRAS.items() if not extras.missing(distributions)]
    yield Line("ok", "extras", f"installed: {', '.join(whole) or 'none'}")
    yield from _bytecode()


def _bytecode() -> Iterator[Line]:
    """Each process of a run imports many modules. If Python may not store what it compiles, as in many container
    images, each compiles them again: 20 seconds of CPU time for a run with two workers."""
    modules = (gristmill.__file__, distributed.__file__)
    if not sys.dont_write_bytecode or all(Path(cache_from_source(each)).is_file() for each in modules):
        return
    folders = " ".join(sorted({str(Path(each).parents[1]) for each in modules}))
    yield Line(
        "warning",
        "bytecode",
        "PYTHONDONTWRITEBYTECODE is set and modules are not compiled, so each process compiles them again",
        f"unset it, or run once `{sys.executable} -m compileall -q {folders}`",
    )


def _memory(settings: MachineSettings) -> Iterator[Line]:
    workers = (settings.workers or os.cpu_count() or 1) if settings.executor in ("threads", "local") else 1
    # a container's cgroup and a limit of the user may allow less than the machine has
    allowed, total = distributed.system.memory_limit(), psutil.virtual_memory().total
    have = f"{allowed / 1e9:.1f} GB" + (f" allowed of {total / 1e9:.1f}" if allowed < total else "")
    wanted = workers * 2 * settings.memory
    description = f"{have}; {workers} workers with GRISTMILL_MEMORY {settings.memory / 1000000000.0:.1f} GB"
    if wanted > allowed:
        yield Line("warning", "memory", description, "lower GRISTMILL_MEMORY or GRISTMILL_WORKERS")
    else:
        yield Line("ok", "memory", description)

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and limit < _OPEN_FILES:
        yield Line("warning", "open files", f"{limit} allowed", f"`ulimit -n {_OPEN_FILES}` before a run")
    else:
        yield Line("ok", "open files", f"{limit} allowed")


def _disks(settings: MachineSettings) -> Iterator[Line]:
    folders = {"home": settings.home, "local folder": settings.local_folder, "temporary files": tempfile.gettempdir()}
    for name, folder in folders.items():
        if not files.is_local(folder):
            continue
        setting = {"home": "GRISTMILL_HOME", "local folder": "GRISTMILL_LOCAL"}.get(name, "TMPDIR")
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            yield Line("error", name, f"{folder}: {error.strerror}", f"make it writable, or set {setting}")
            continue
        free = shutil.disk_usage(folder).free
        state: State = "error" if free < _FREE_ERROR else "warning" if free < _FREE_WARNING else "ok"
        remedy = f"free space (`gristmill home gc`), or set {setting} to a larger disk" if state != "ok" else ""
        yield Line(state, name, f"{folder}: {free / 1e9:.1f} GB free", remedy)


def _home(settings: MachineSettings) -> Iterator[Line]:
    """Write a file, read it, check that a second write is refused, list it and remove it."""
    shown = redact_url(settings.home)
    folder = files.join(settings.home, f"doctor-{uuid.uuid4().hex}")
    path, word = files.join(folder, "file"), b"grist"
    bucket = "create the bucket, and give this user permission to read, write, list and delete in it"
    try:
        created = exclusive.create(path, word)
        again = exclusive.create(path, b"other")
        read, names = exclusive.read(path), exclusive.names(folder)
    except Exception as error:
        remedy = "make it writable for this user" if files.is_local(settings.home) else bucket
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        yield Line("error", "home", redact_urls(f"{shown}: {reason}".splitlines()[0])[:300], remedy)
        return
    finally:
        with contextlib.suppress(Exception):
            files.remove(folder)
    if not created or read != word or names != ["file"]:
        yield Line("error", "home", f"{shown}: a test file was read back with different content", bucket)
    elif again:
        remedy = "use a store with conditional writes (S3: If-None-Match), or run only one run at a time in this home"
        yield Line("error", "home", f"{shown}: a conditional write created a file twice", remedy)
    else:
        yield Line("ok", "home", f"{shown}: write, read, list, remove and conditional writes work")


def _kernels(settings: MachineSettings) -> Iterator[Line]:
    complete = compiled.COMPLETE
    if complete.is_file():
        yield Line("ok", "kernels", f"compiled, in {complete.parent}")
    else:
        yield Line(
            "warning",
            "kernels",
            f"not compiled in {complete.parent}",
            "`gristmill home compile`, or the first run",
        )


def _prefect(settings: MachineSettings) -> Iterator[Line]:
    if (named := server.named()) is None:
        yield Line(
            "ok",
            "prefect",
            "each run starts its own server, or uses that of `gristmill ui`; to use another one, set PREFECT_API_URL",
        )
        return
    address, _, login = named
    yield from _service(
        "prefect",
        f"{address}/admin/version",
        login,
        "PREFECT_API_URL",
        "PREFECT_API_AUTH_STRING",
        expected=version("prefect"),
        upgrade="install the same release of prefect on the server and the client",
    )


def _mlflow(settings: MachineSettings) -> Iterator[Line]:
    uri = settings.tracking_uri
    database = Path(uri.removeprefix("sqlite:///"))
    if uri.startswith("sqlite:///") and database.is_file() and (why := damage(database)):
        problem = f"{database} {why}"
        yield Line("error", "mlflow", problem, trouble(database, MLFLOW_HOLDS).removeprefix(f"{problem}: "))
        return
    if not uri.startswith("http"):
        yield Line("ok", "mlflow", f"{redact_url(uri)}, without a server")
        return
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME", ""), os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    login = f"{user}:{password}" if user else ""
    url = f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/search?max_results=1"
    yield from _service(
        "mlflow", url, login, "GRISTMILL_MLFLOW_URI", "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    )


def _service(
    name: str, url: str, login: str, setting: str, secret: str, expected: str = "", upgrade: str = ""
) -> Iterator[Line]:
    """Whether a server answers, accepts the login, and has the time and the release (if reported) of this machine."""
    where = redact_url(url.split("/api")[0])
    auth = tuple(login.split(":", 1)) if ":" in login else None
    try:
        answer = httpx.get(url, auth=auth, timeout=_SECONDS)  # type: ignore[arg-type]
    except httpx.HTTPError as error:
        yield Line("error", name, f"{where} does not answer ({error})", f"start it, or fix {setting}")
        return
    if answer.status_code in (401, 403):
        yield Line("error", name, f"{where} refuses the login (HTTP {answer.status_code})", f"set {secret}")
        return
    if answer.status_code != 200:
        yield Line("error", name, f"{where} answers HTTP {answer.status_code}", f"check its log, or fix {setting}")
        return
    if expected and (theirs := str(answer.json())) != expected:
        yield Line("warning", name, f"{where} has release {theirs}, but this machine has {expected}", upgrade)
    else:
        yield Line("ok", name, f"{where} answers" + (f", release {expected}" if expected else ""))
    if auth and httpx.get(url, timeout=_SECONDS).status_code == 200:
        yield Line("warning", name, f"{where} also answers without a login", "enable authentication on the server")
    if date := answer.headers.get("Date"):
        yield _clock(name, parsedate_to_datetime(date).timestamp())


def _clock(name: str, theirs: float) -> Line:
    skew = time.time() - theirs
    description = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} {name}"
    if abs(skew) < _SKEW_WARNING:
        return Line("ok", "clock", f"same as {name}")
    return Line(
        "error" if abs(skew) > _SKEW_ERROR else "warning",
        "clock",
        description,
        "synchronize both clocks with NTP",
    )


def _dask(settings: MachineSettings) -> Iterator[Line]:
    if settings.executor in ("kubernetes", "slurm"):
        yield _cluster(settings)
        return
    if settings.executor != "dask":
        yield Line("ok", "executor", f"{settings.executor}, on this machine")
        return

    address, tls = settings.dask_address, settings.dask_tls
    try:
        clusters.check("dask", 0, address, "", tls)
    except ValueError as error:
        yield Line("error", "dask", str(error), "fix GRISTMILL_DASK_ADDRESS and GRISTMILL_DASK_TLS_*")
        return
    try:
        client = distributed.Client(address, timeout=_SECONDS, set_as_default=False, security=tls.security())
    except OSError as error:
        message = f"{address} does not answer ({str(error).splitlines()[0]})"
        yield Line("error", "dask", message, "start the scheduler, or fix GRISTMILL_DASK_ADDRESS")
        return
    with client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            yield Line("error", "dask", f"{address} has no workers", f"start some: `dask worker {address}`")
            return
        theirs = client.run(_on_worker)
        if clusters.is_open(address):
            message = (
                f"{address} requires no certificate: anyone who can reach it can run code as its user and read its data"
            )
            remedy = "start scheduler and workers with `--protocol tls` and certificates (docs/guides/schedule.md)"
            yield Line("warning", "dask", message, remedy)
        hanging = sum(client.run(_may_hang).values())
    if hanging:
        remedy = "start workers with DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False, or with Python 3.11.9 or newer"
        yield Line("warning", "dask", f"{hanging} of {len(workers)} workers may hang under Dask's profiler", remedy)
    ours = _on_worker()
    other = {worker: releases for worker, releases in theirs.items() if releases != ours}
    if other:
        worker, releases = next(iter(other.items()))
        differing = [
            f"{name} {releases.get(name)} instead of {ours[name]}" for name in ours if releases.get(name) != ours[name]
        ]
        message = f"{len(other)} of {len(workers)} workers differ; {worker}: {', '.join(differing)}"
        yield Line("error", "dask", message, "install the same gristmill and libraries on all workers")
    else:
        yield Line("ok", "dask", f"{address} has {len(workers)} workers with the same versions as this machine")


def _cluster(settings: MachineSettings) -> Line:
    """Whether a cluster can be requested. Only a run shows what it provides."""
    try:
        clusters.check(
            *(settings.executor, settings.workers, settings.dask_address, settings.cluster),
            *(settings.dask_tls, settings.slurm),
        )
    except (ImportError, OSError, ValueError, extras.MissingExtraError) as error:
        return Line("error", "executor", str(error), "see docker/kubernetes and docker/slurm for examples")
    if settings.executor == "kubernetes" and not all(settings.dask_tls):
        message, _, remedy = clusters.UNPROTECTED.partition("; ")
        return Line("warning", "executor", message, remedy)
    what = "array tasks" if settings.executor == "slurm" else "workers"
    return Line("ok", "executor", f"{settings.executor}, {settings.workers} {what} as in {settings.cluster}")


def _on_worker() -> dict[str, str]:
    """Versions that must be the same on a worker. This function runs on the worker."""
    names = ("gristmill", "distributed", "numpy", "pyarrow", "numba")
    return {"Python": ".".join(map(str, sys.version_info[:2])), **{name: version(name) for name in names}}


def _may_hang() -> bool:
    """Whether Dask's profiler and Python's garbage collector can deadlock (python/cpython#106883).

    Dask replaces such a worker after five minutes. This function runs on the worker.
    """
    return sys.version_info < (3, 11, 9) and bool(dask.config.get("distributed.worker.profile.enabled"))


def _redis(settings: MachineSettings) -> Iterator[Line]:
    if not (address := settings.redis.get_secret_value()):
        return

    try:
        redis.Redis.from_url(address, socket_timeout=_SECONDS).ping()
    except redis.RedisError as error:
        yield Line("error", "redis", f"does not answer ({redact_urls(str(error))})", "start it, or set GRISTMILL_REDIS")
    else:
        yield Line("ok", "redis", "answers")


def _ports(settings: MachineSettings) -> Iterator[Line]:
    def bound(host: str, port: int) -> Callable[[], Any]:
        return socket.create_server((host, port)).close

    if settings.training_nodes > 1 and settings.training_node == 0:
        address = urlsplit(f"//{settings.training_rendezvous}")
        try:
            bound(address.hostname or "", address.port or 0)()
        except OSError as error:
            remedy = "end the process that listens on it, or set another GRISTMILL_TRAINING_RENDEZVOUS on all nodes"
            yield Line("error", "ports", f"{settings.training_rendezvous}: {error.strerror}", remedy)
            return
        yield Line("ok", "ports", f"{settings.training_rendezvous} is free")
        return
    bound("127.0.0.1", 0)()
    yield Line("ok", "ports", "loopback is available")
