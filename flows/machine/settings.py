"""Settings of the machine: addresses, numbers of workers, folders. They are never in a key."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import wrapt
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from gristmill.flows.machine.wrong_values import choices, did_you_mean, shown, wanted
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.options import LanguageModelServer

if TYPE_CHECKING:
    from gristmill.storage import files
    from gristmill.tasks.engine import clusters
    from gristmill.tasks.engine.clusters import Tls
    from gristmill.tasks.engine.slurm import cluster as slurm_cluster
    from gristmill.tasks.engine.slurm.cluster import SlurmPlace
    from gristmill.training.run import heartbeat, launch
    from gristmill.training.run.heartbeat import Limits
    from gristmill.training.run.launch import Nodes
else:
    files = wrapt.lazy_import("gristmill.storage.files")
    clusters = wrapt.lazy_import("gristmill.tasks.engine.clusters")
    slurm_cluster = wrapt.lazy_import("gristmill.tasks.engine.slurm.cluster")
    launch = wrapt.lazy_import("gristmill.training.run.launch")
    heartbeat = wrapt.lazy_import("gristmill.training.run.heartbeat")


DEFAULT_HOME = ".gristmill"  # in the working folder
PREFIX, NESTED = "GRISTMILL_", "__"  # of the names of variables
# Settings that are groups of settings.
GROUPS: dict[str, type] = {"lm": LanguageModelServer, "remote_io": RemoteIOConfig}


class MachineSettings(BaseSettings):
    """Read from the environment: `GRISTMILL_HOME`, `GRISTMILL_EXECUTOR`, `GRISTMILL_REMOTE_IO__PER_HOST`, ...

    Raises ValueError for wrong values, with a sentence for each.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter=NESTED, extra="forbid", frozen=True)

    home: str = Field(DEFAULT_HOME, description="folder or address (s3://bucket/prefix) of all stages")
    local: str = Field("", description="local folder of databases, logs and copies; default: the home, if it is local")
    executor: Literal["serial", "threads", "local", "dask", "kubernetes", "slurm"] = Field(
        "local",
        description="`local`: Dask processes on this machine; `dask`: the cluster at dask_address; `kubernetes`, "
        "`slurm`: a cluster for this run, configured by `cluster`; the last three also train proxy models",
    )
    workers: int = Field(
        0,
        ge=0,
        description="number of worker processes; 0: one per core; `kubernetes` needs a number, and so does `slurm`: "
        "the tasks of its job array, each with several processes",
    )
    memory: int = Field(
        1 << 30,
        ge=0,
        description="memory limit of a process of a deduplication step, in bytes; does not change results",
    )
    dask_address: str = Field(
        "", repr=False, description="address of the Dask scheduler for the executor `dask`, such as tls://host:8786"
    )
    dask_tls_ca: str = Field(
        "", description="PEM file of the certificate authority of the cluster, for `dask` and `kubernetes`"
    )
    dask_tls_cert: str = Field("", description="PEM file of the client certificate")
    dask_tls_key: str = Field("", description="PEM file of the client key")
    cluster: str = Field(
        "", description="YAML file of a DaskCluster for `kubernetes`; job script of the workers for `slurm`"
    )
    slurm_folder: str = Field(
        "",
        description="folder on a disk that all nodes share, where runs with the executor `slurm` meet their workers; "
        "default: `slurm` in the home, if the home is a folder",
    )
    slurm_interface: str = Field(
        "", description="network interface that workers of `slurm` reach the run by, such as eth0; default: any"
    )
    mlflow_uri: str = Field(
        "",
        repr=False,
        description="address of the MLflow tracking server; default: a SQLite database in the local folder",
    )
    redis: SecretStr = Field(
        SecretStr(""), description="redis://user:password@host:port/db for the indexes of `explain similar`"
    )
    training_processes: int = Field(
        0, ge=0, description="number of training processes; 0: one per GPU, or 2 without a GPU"
    )
    training_nodes: int = Field(1, ge=1, description="number of machines that train one model")
    training_node: int = Field(
        0, ge=0, description="number of this machine, from 0; machine 0 uses `run`, the others `train join`"
    )
    training_rendezvous: str = Field("", description="HOST:PORT where machine 0 listens")
    training_restarts: int = Field(
        3, ge=0, description="number of times within an hour that a training starts again by itself"
    )
    training_hang_seconds: int = Field(
        120, gt=0, description="seconds without a finished step after which a training process counts as hanging"
    )
    training_slow_seconds: int = Field(
        3600,
        gt=0,
        description="the same for the start with its first step, an evaluation, a checkpoint and the end of a training",
    )
    training_interface: str = Field("", description="network interface for training, such as eth0; default: loopback")
    proxy_runs: int = Field(
        0,
        ge=0,
        description="number of proxy models to train at the same time on this machine; 0: one per GPU, or one per core "
        "without a GPU; a cluster trains one per worker thread",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="format of the log; `json`: JSON Lines with run, recipe, stage, phase and shard"
    )
    umask: str = Field(
        "077",
        description="umask of new files: 077 is private, 007 shares with a group",
    )
    steps: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="modules and packages of custom steps, engines and readers, separated by commas"
    )
    own_seconds: float = Field(
        3600,
        gt=0,
        description="time limit of one call of a custom step, reader or filter, in seconds",
    )
    lm: LanguageModelServer = Field(
        LanguageModelServer(), description="settings of the language model server: base_url, concurrency, and so on"
    )
    remote_io: RemoteIOConfig = Field(
        RemoteIOConfig(), description="settings of remote files: retries, connections per host, and so on"
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError("\n".join(_sentence(each, values) for each in error.errors(include_url=False))) from None
        except SettingsError as error:  # a variable that has to be JSON
            name = next((variable(group) for group in GROUPS if f'"{group}"' in f"{error}"), variable("remote_io"))
            raise ValueError(f"{name} is not JSON: set variables {name}{NESTED}... instead") from error

    @field_validator("steps", mode="before")
    @classmethod
    def _separated(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("umask")
    @classmethod
    def _three_digits(cls, value: str) -> str:
        if not re.fullmatch("0?[0-7]{3}", value):
            raise ValueError(
                f"{value!r} is not a umask; give three digits from 0 to 7, such as 077, or 007 for a group"
            )
        return value

    @model_validator(mode="after")
    def _nodes_meet(self) -> Self:
        if self.training_node >= self.training_nodes:
            raise ValueError(
                f"GRISTMILL_TRAINING_NODE {self.training_node} is not below GRISTMILL_TRAINING_NODES "
                f"{self.training_nodes}; nodes are numbered from 0"
            )
        host, _, port = self.training_rendezvous.rpartition(":")
        if self.training_nodes > 1 and not (host and port.isdecimal()):
            raise ValueError(
                f"GRISTMILL_TRAINING_RENDEZVOUS {self.training_rendezvous!r} is not a HOST:PORT, which several nodes "
                "need; give the address of node 0"
            )
        return self

    @field_validator("home", "local", "slurm_folder")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if scheme := re.match(r"[a-z][a-z0-9]+:/(?!/)", value):
            raise ValueError(f"{value} has one slash after the colon; write {scheme[0]}/ for an address")
        return value if "://" in value or not value else str(Path(value).expanduser().resolve())

    @property
    def local_folder(self) -> str:
        """The folder of databases, because SQLite needs a local file system."""
        if self.local:
            return self.local
        return str(Path(DEFAULT_HOME).resolve()) if "://" in self.home else self.home

    @property
    def places(self) -> dict[str, str]:
        """The values of placeholders in addresses."""
        return {"{home}": self.home, "{local}": self.local_folder}

    def placed_folder(self, what: str, path: str) -> Path:
        """A local folder as an absolute path, with `{home}` and `{local}` filled in. `what`: the name of the setting,
        for the error. Raises ValueError for a remote address."""
        folder = self._filled(path)
        if not files.is_local(folder):
            raise ValueError(f"{what} is {folder}, which is not a local folder; copy it to one")
        return Path(folder).expanduser().resolve()

    def _filled(self, address: str) -> str:
        for name, place in self.places.items():
            address = address.replace(name, place)
        return address

    def placed(self, settings: Settings) -> Any:
        """A source or a step with `{home}` and `{local}` filled in, in all addresses of its settings."""

        def fill(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(fill, value))
            if isinstance(value, dict):
                return {key: fill(each) for key, each in value.items()}
            if isinstance(value, Settings):
                return self.placed(value)
            return self._filled(value) if isinstance(value, str) else value

        return settings.model_copy(update={name: fill(value) for name, value in settings})

    @property
    def prefect_home(self) -> str:
        return f"{self.local_folder}/prefect"

    @property
    def tracking_uri(self) -> str:
        return self.mlflow_uri or f"sqlite:///{self.local_folder}/mlflow.db"

    @property
    def dask_tls(self) -> "Tls":
        return clusters.Tls(self.dask_tls_ca, self.dask_tls_cert, self.dask_tls_key)

    @property
    def slurm(self) -> "SlurmPlace":
        return slurm_cluster.SlurmPlace(
            self.slurm_folder or ("" if "://" in self.home else f"{self.home}/slurm"), self.slurm_interface
        )

    @property
    def training_limits(self) -> "Limits":
        return heartbeat.Limits(self.training_hang_seconds, self.training_slow_seconds)

    @property
    def nodes(self) -> "Nodes":
        return launch.Nodes(self.training_nodes, self.training_node, self.training_rendezvous, self.training_interface)


def variable(*path: str) -> str:
    """The environment variable of a field, given with the fields that it is in."""
    return PREFIX + NESTED.join(path).upper()


def _sentence(error: Any, values: Mapping[str, Any]) -> str:
    """A pydantic error as a sentence. `values`: arguments of the caller; all other values are from the environment."""
    path, kind, context = [str(part) for part in error["loc"]], error["type"], error.get("ctx", {})
    name = ".".join(path) if path and path[0] in values else variable(*path)
    if kind == "value_error":
        message = str(context["error"])
        return f"{name}: {message}" if len(path) == 1 else message
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        names = [each.name for each in fields(GROUPS[path[0]])] if path[1:] else [*MachineSettings.model_fields]
        return f"{name} is not a setting; {did_you_mean(path[-1], names) or 'remove it'}"
    value = error["input"]
    if kind == "literal_error":
        return f"{name} is {shown(value)}; {choices(value, context['expected'])}"
    return f"{name} is {shown(value)}; give {wanted(kind, context, error['msg'])}"
