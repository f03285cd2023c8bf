"""Dask clusters by a word: processes of this machine, a scheduler by its address, pods of Kubernetes, jobs of SLURM.

What a cluster asks for, images, queues, memory, is in a YAML file in the words of the tool that starts it: a
DaskCluster of the operator of dask-kubernetes, or what SLURMCluster of dask-jobqueue is called with.
"""

import copy
import logging
import os
import re
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import resource_tracker
from typing import Any

import yaml

# What Dask measures of its own processes for its dashboard, which we do not start: it takes 7% of two cores, and before
# Python 3.11.9 its profiler can hang a process (python/cpython#106883).
_UNWATCHED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "2s",
}

# Dask's pages ask nobody who they are: they show what runs, and a worker's log.
_NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


@dataclass(frozen=True)
class ClusterSettings:
    """`workers`: how many; `address`: of a scheduler (`tcp://host:8786`); `template`: the YAML file of a cluster;
    `scratch`: a folder for what processes of this machine keep on disk."""

    workers: int
    address: str = ""
    template: str = ""
    scratch: str = ""


def local(settings: ClusterSettings) -> Any:
    """Processes on this machine, one thread each, on loopback only.

    They talk by TLS, and each asks for the key of this run, which is in memory alone: any account of the machine can
    connect to loopback, and who talks to a worker can run code as its user.
    """
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    config = {**_UNWATCHED, **_NO_PAGES, "temporary-directory": settings.scratch}
    with dask.config.set(config), _interrupts_held():
        return LocalCluster(
            n_workers=settings.workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tls://",
            security=Security.temporary(),
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            # errors of jobs are raised where the flow runs; a worker whose flow is cancelled says that it is gone
            silence_logs=logging.CRITICAL,
        )


def by_address(settings: ClusterSettings) -> AbstractContextManager[str]:
    """A cluster that others started, with the workers that it has."""
    return nullcontext(settings.address)


def kubernetes(settings: ClusterSettings) -> Any:
    """Pods that the operator of dask-kubernetes starts for this run alone."""
    from dask_kubernetes.operator import KubeCluster

    manifest = dask_cluster(read_template(settings.template), settings.workers, os.environ)
    return KubeCluster(custom_cluster_spec=manifest, shutdown_on_close=True, quiet=True)


def slurm(settings: ClusterSettings) -> Any:
    """Jobs of SLURM; the scheduler is in this process, with which they end."""
    import dask

    start = slurm_cluster()
    with dask.config.set(_UNWATCHED), _interrupts_held():
        cluster = start(**read_template(settings.template))
    cluster.scale(settings.workers)
    return cluster


def slurm_cluster() -> Any:
    """The class of dask-jobqueue, whose import (0.9.0) sets a handler of SIGINT: the flow's own is put back."""
    before = signal.getsignal(signal.SIGINT)
    from dask_jobqueue import SLURMCluster

    signal.signal(signal.SIGINT, before)
    return SLURMCluster


CLUSTERS: dict[str, Callable[[ClusterSettings], Any]] = {
    "local": local,
    "dask": by_address,
    "kubernetes": kubernetes,
    "slurm": slurm,
}
# Those that are started from a template: the package that starts them, which is in the extra of their name.
TEMPLATED = {"kubernetes": "dask_kubernetes", "slurm": "dask_jobqueue"}


def check(kind: str, workers: int, address: str, template: str) -> None:
    """Raise ValueError for settings that a cluster cannot be started with, ImportError for a package that lacks."""
    if kind == "dask" and not address:
        raise ValueError("executor `dask` needs the scheduler's address: set GRISTMILL_DASK_ADDRESS=tcp://host:port")
    if kind not in TEMPLATED:
        return
    if not workers:
        raise ValueError(f"executor `{kind}` needs a number of workers: set GRISTMILL_WORKERS")
    if not template:
        raise ValueError(f"executor `{kind}` needs the YAML file of its cluster: set GRISTMILL_CLUSTER")
    if find_spec(TEMPLATED[kind]) is None:
        raise ImportError(f"executor `{kind}` needs {TEMPLATED[kind]}: pip install 'gristmill[{kind}]'")
    given = read_template(template)
    if kind == "kubernetes":
        dask_cluster(given, workers, {})


def read_template(path: str) -> dict[str, Any]:
    """The mapping of a YAML file. Raises ValueError, which names the file, if it is none."""
    with open(path, encoding="utf-8") as file:
        try:
            given = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ValueError(f"GRISTMILL_CLUSTER {path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict):
        raise ValueError(f"GRISTMILL_CLUSTER {path} is no mapping; docker/kubernetes and docker/slurm have examples")
    return given


def dask_cluster(template: Mapping[str, Any], workers: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """A DaskCluster of one run: with a name of its own, which begins as the template's, and so many workers.

    It is owned by the pod that POD_NAME and POD_UID of the environment name, and is removed with it. Raises ValueError
    for a template that is no DaskCluster.
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
    if environment.get("POD_NAME") and environment.get("POD_UID"):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": environment["POD_NAME"], "uid": environment["POD_UID"]}
        manifest["metadata"]["ownerReferences"] = [owner]
    return manifest


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """What is started meanwhile, the cluster's thread and so its workers, now and later, never gets a SIGINT.

    A Ctrl-C at the terminal goes to all processes; what it means is for the flow to say, which gets it afterwards.
    """
    # it is started with the first process otherwise, and unblocks SIGINT then
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
