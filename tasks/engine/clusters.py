"""Dask clusters by name: local processes, a scheduler at an address, Kubernetes pods, tasks of SLURM.

Images, queues and memory of a cluster are in a file in the format of the tool that starts it: a DaskCluster of the
dask-kubernetes operator, or a SLURM job script.
"""

import copy
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import wrapt
import yaml

from gristmill.tasks.engine import dask_processes, extras
from gristmill.tasks.engine.dask_processes import NO_PAGES, UNWATCHED, interrupts_held
from gristmill.tasks.engine.slurm import cluster as slurm_cluster
from gristmill.tasks.engine.slurm.cluster import NOWHERE, SlurmPlace

if TYPE_CHECKING:
    import dask
    import distributed
else:
    dask = wrapt.lazy_import("dask")
    distributed = wrapt.lazy_import("distributed")

_POLL_SECONDS = 0.5  # between two looks whether a worker has come

log = logging.getLogger(__name__)


class Tls(NamedTuple):
    """PEM files for an external cluster: the authority that signed its certificates, our certificate and its key."""

    ca: str = ""
    cert: str = ""
    key: str = ""

    def security(self) -> Any:
        """Dask's Security with these files for client, scheduler and worker. None without files: Dask's settings
        apply."""
        return dask_processes.security(*self) if all(self) else None

    def check(self) -> None:
        """Raise ValueError, which names the setting, for a file that is missing or cannot be read."""
        if not any(self):
            return
        for name, path in self._asdict().items():
            setting = f"GRISTMILL_DASK_TLS_{name.upper()}"
            if not path:
                raise ValueError(f"{setting} is not set, but other GRISTMILL_DASK_TLS_* are: set all three")
            try:
                open(path, "rb").close()
            except OSError as error:
                raise ValueError(
                    f"{setting} {path}: {error.strerror}; give a PEM file that this user may read"
                ) from error


NO_TLS = Tls()


@dataclass(frozen=True)
class ClusterSettings:
    """`workers`: how many, of SLURM tasks of the array; `address`: of a scheduler (`tls://host:8786`); `template`: the
    YAML file of a cluster, or the job script of SLURM's tasks; `scratch`: a folder for what processes of this machine
    keep on disk; `tls`: what a cluster of others asks for; `slurm`: where run and tasks meet."""

    workers: int
    address: str = ""
    template: str = ""
    scratch: str = ""
    tls: Tls = NO_TLS
    slurm: SlurmPlace = NOWHERE


def is_open(address: str) -> bool:
    """Whether anyone who reaches a scheduler at this address can run code as its user, because it requires no key."""
    return not address.startswith(("tls://", "inproc://", "unix://"))


def local(settings: ClusterSettings) -> Any:
    """Processes on this machine with one thread each, on loopback only.

    They use TLS, and each requires the key of this run, which is only in memory. Any account of the machine can connect
    to loopback, and a client of a worker can run code as its user.
    """
    from distributed import LocalCluster, Security  # before `dask.config.set`, which forgets what is set meanwhile

    config = {**UNWATCHED, **NO_PAGES, "temporary-directory": settings.scratch}
    with dask.config.set(config), interrupts_held():
        return LocalCluster(
            n_workers=settings.workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tls://",
            security=Security.temporary(),
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            # errors of jobs are raised where the flow runs; a worker whose flow is canceled says that it is gone
            silence_logs=logging.CRITICAL,
        )


def by_address(settings: ClusterSettings) -> AbstractContextManager[str]:
    """A cluster that is already running, with its workers."""
    return nullcontext(settings.address)


@contextmanager
def kubernetes(settings: ClusterSettings) -> Iterator[Any]:
    """Pods that the dask-kubernetes operator starts for this run only."""
    from dask_kubernetes.operator.kubecluster import kubecluster

    manifest = dask_cluster(read_template(settings.template), settings.workers, os.environ)
    if not all(settings.tls):
        log.warning("%s", UNPROTECTED)
    with _kubernetes_tls(settings.tls.security()):
        cluster = kubecluster.KubeCluster(custom_cluster_spec=manifest, shutdown_on_close=True, quiet=True)
    with cluster:
        yield cluster


UNPROTECTED = (
    "the pods of this run's Dask cluster require no certificate: anything that can reach them in the "
    "Kubernetes network can run code as this run and read its secrets; see "
    "docker/kubernetes/dask-cluster.yaml to give them a certificate"
)


@contextmanager
def _kubernetes_tls(security: Any) -> Iterator[None]:
    """Let KubeCluster (2026.3) start with TLS. By itself it assumes that every scheduler is at tcp://, and connects
    without a key."""
    if security is None:
        yield
        return
    from dask_kubernetes.operator import networking
    from dask_kubernetes.operator.kubecluster import kubecluster

    arguments = security.get_connection_args("client")

    def with_key(address: str) -> Any:
        return distributed.rpc(address.replace("tcp://", "tls://"), connection_args=arguments)

    kubecluster.rpc = networking.rpc = with_key
    try:
        yield
    finally:
        kubecluster.rpc = networking.rpc = distributed.rpc


def slurm(settings: ClusterSettings) -> AbstractContextManager[Any]:
    """Tasks of a job array, which join and leave. The scheduler is in this process."""
    return slurm_cluster.started(settings.workers, settings.template, settings.slurm)


CLUSTERS: dict[str, Callable[[ClusterSettings], Any]] = {
    "local": local,
    "dask": by_address,
    "kubernetes": kubernetes,
    "slurm": slurm,
}
# Kinds whose workers may be on other machines.
DISTANT = tuple(kind for kind in CLUSTERS if kind != "local")
GPU = "GPU"  # the resource that workers are started with: dask worker --resources GPU=1


def resources(client: Any, processes: int) -> dict[str, int]:
    """The Dask resources of a job with so many processes: a GPU for each if a worker has the resource GPU, else none.
    Waits for the first worker. Raises ValueError if workers have GPUs, but none has enough."""
    while not (workers := client.scheduler_info(n_workers=-1)["workers"]):
        time.sleep(_POLL_SECONDS)
    most = int(max(worker["resources"].get(GPU, 0) for worker in workers.values()))
    if 0 < most < processes:
        raise ValueError(
            f"a job needs {processes} GPUs on one machine, but no worker has more than {most}: start workers with "
            f"`--resources GPU={processes}`, or use fewer processes"
        )
    return {GPU: processes} if most else {}


def check(kind: str, workers: int, address: str, template: str, tls: Tls = NO_TLS, slurm: SlurmPlace = NOWHERE) -> None:
    """Raise ValueError for settings with which a cluster cannot start, MissingExtraError for a missing package."""
    if kind == "dask" and not address:
        raise ValueError("executor `dask` needs the scheduler's address: set GRISTMILL_DASK_ADDRESS=tls://host:port")
    if kind in ("dask", "kubernetes"):
        tls.check()
    if kind == "dask" and all(tls) and not address.startswith("tls://"):
        raise ValueError(
            f"GRISTMILL_DASK_ADDRESS is {address}, so GRISTMILL_DASK_TLS_KEY has no effect: start the "
            "scheduler with `--protocol tls` and use tls://host:port, or unset GRISTMILL_DASK_TLS_*"
        )
    if kind not in ("kubernetes", "slurm"):
        return
    if not workers:
        raise ValueError(f"executor `{kind}` needs a number of workers: set GRISTMILL_WORKERS")
    if not template:
        what = "job script of its workers" if kind == "slurm" else "YAML file of its cluster"
        raise ValueError(f"executor `{kind}` needs the {what}: set GRISTMILL_CLUSTER")
    if kind == "slurm":
        slurm_cluster.check(slurm, template)
        return
    extras.require(kind, f"executor {kind}")
    _check_tls(dask_cluster(read_template(template), workers, {}), tls)


def _check_tls(manifest: Mapping[str, Any], tls: Tls) -> None:
    """Raise ValueError unless scheduler, workers and run all use TLS, or all use TCP."""
    has = {part: _talks_tls(manifest["spec"][part]) for part in ("scheduler", "worker")} | {"run": all(tls)}
    if len(set(has.values())) > 1:
        lacking = " and ".join(part for part, present in has.items() if not present)
        raise ValueError(
            f"the {lacking} of GRISTMILL_CLUSTER would accept connections without TLS: set `--tls-ca-file`, "
            "`--tls-cert` and `--tls-key` for scheduler and worker, and GRISTMILL_DASK_TLS_CA, _CERT and "
            "_KEY for the run, as docker/kubernetes does, or none of them"
        )


def _talks_tls(part: Mapping[str, Any]) -> bool:
    """Whether the scheduler or worker of a DaskCluster starts with a key."""
    containers = part.get("spec", {}).get("containers", ())
    return any("--tls-key" in str(word) for each in containers for word in each.get("args", ()))


def read_template(path: str) -> dict[str, Any]:
    """Read a YAML file that contains a mapping. Raises ValueError, which names the file, for another content."""
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except OSError as error:
        raise ValueError(f"GRISTMILL_CLUSTER {path}: {error.strerror}. Give the YAML file of a DaskCluster") from error
    except yaml.YAMLError as error:
        raise ValueError(f"GRISTMILL_CLUSTER {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ValueError(f"GRISTMILL_CLUSTER {path} is not a mapping; docker/kubernetes has an example")
    return values


def dask_cluster(template: Mapping[str, Any], workers: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """The DaskCluster of one run: the template with so many workers, and a unique name that begins with its name.

    The pod of POD_NAME and POD_UID owns it, so Kubernetes removes both together. Raises ValueError for a template that
    is not a DaskCluster.
    """
    manifest = copy.deepcopy(dict(template))
    if manifest.get("kind") != "DaskCluster":
        raise ValueError(f"GRISTMILL_CLUSTER is of the kind {manifest.get('kind')}; give a DaskCluster")
    try:
        name = manifest["metadata"]["name"]
        selector = manifest["spec"]["scheduler"]["service"]["selector"]
        worker = manifest["spec"]["worker"]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"GRISTMILL_CLUSTER has no {error}: it needs metadata.name, spec.scheduler.service.selector and spec.worker"
        ) from error
    name = f"{re.sub('[^a-z0-9-]+', '-', name.lower())[:30]}-{uuid.uuid4().hex[:8]}"
    manifest["metadata"]["name"] = selector["dask.org/cluster-name"] = name
    worker["replicas"] = workers
    if _talks_tls(worker):
        # the operator names tcp:// to workers that are not told their scheduler
        for container in worker["spec"]["containers"]:
            variable = {"name": "DASK_SCHEDULER_ADDRESS", "value": f"tls://{name}-scheduler:8786"}
            container["env"] = [*container.get("env", ()), variable]
    if environment.get("POD_NAME") and environment.get("POD_UID"):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": environment["POD_NAME"], "uid": environment["POD_UID"]}
        manifest["metadata"]["ownerReferences"] = [owner]
    return manifest
