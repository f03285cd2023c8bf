"""The environment variables of the machine's settings: known ones with their values, and unknown ones."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pydantic import SecretStr

from gristmill.flows.machine.settings import GROUPS, PREFIX, MachineSettings, variable
from gristmill.storage.printable import redact_url

HIDDEN = "********"
DEFAULT, ENVIRONMENT = "default", "environment"
# Variables that are not machine settings, and what reads them. `*` stands for any suffix.
SECRETS, TESTS = f"{PREFIX}SECRET_*", f"{PREFIX}TEST_*"
OTHERS = {
    SECRETS: "value of `{secret:name}` in addresses of recipes, in GRISTMILL_SECRET_NAME",
    f"{PREFIX}WEBHOOK": "docker/: address for failed runs",
    f"{PREFIX}RUNS": "docker/: number of concurrent flow runs; default: 1",
    f"{PREFIX}TAG": "docker/compose.yaml: tag of the images; default: latest",
    f"{PREFIX}PREFECT_PORT": "docker/compose.yaml: port of Prefect on loopback; default: 4200",
    f"{PREFIX}MLFLOW_PORT": "docker/compose.yaml: port of MLflow on loopback; default: 5000",
    f"{PREFIX}DASK_WORKERS": "docker/compose.yaml: number of Dask worker processes; default: 2",
    f"{PREFIX}WORKER_MEMORY": "docker/compose.yaml: memory of all Dask workers; default: 8g",
    f"{PREFIX}TRAINING_MEMORY": "docker/compose.yaml: memory of a flow, including training; default: 8g",
    TESTS: "tests and benchmarks of a checkout: CONTRIBUTING.md, docs/explanation/benchmarks.md",
}
_SECRET = (SECRETS.removesuffix("*"), f"{PREFIX}WEBHOOK")  # beginnings of the names whose values are not shown
# Kubernetes writes the addresses of a Service `gristmill-...` into the environment of the pods beside it.
_OF_KUBERNETES = re.compile(r"GRISTMILL(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)")
_LINK = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True)
class Variable:
    """`value`: for display, without secrets. `origin`: `default`, `environment`, or the variable that contains it."""

    name: str
    value: Any
    origin: str
    description: str


def variables(environment: Mapping[str, str]) -> Iterator[Variable]:
    """All known variables: those of the settings with the current values, then those of `OTHERS`."""
    given, settings = {name.upper(): value for name, value in environment.items()}, MachineSettings()
    for name, field in MachineSettings.model_fields.items():
        value = getattr(settings, name)
        if name in GROUPS:
            yield from _group_variables(value, name, given)
        else:
            origin = ENVIRONMENT if variable(name) in given else DEFAULT
            yield Variable(variable(name), _shown(value), origin, field.description or "")
    for name, description in OTHERS.items():
        matches = [each for each in given if _matches(each, name)]
        if name not in matches:
            yield Variable(name, "", DEFAULT, description)
        for each in sorted(matches):
            value = HIDDEN if each.startswith(_SECRET) else given[each]
            yield Variable(each, value, ENVIRONMENT, description)


def _group_variables(group: Any, name: str, given: Mapping[str, str]) -> Iterator[Variable]:
    for each in fields(group):
        full = variable(name, each.name)
        whole = variable(name) if variable(name) in given else DEFAULT  # all of them may be given as one JSON object
        origin = ENVIRONMENT if full in given else whole
        yield Variable(full, getattr(group, each.name), origin, each.metadata["description"])


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return redact_url(value.get_secret_value())
    if isinstance(value, tuple):
        return ",".join(value)
    return redact_url(value) if isinstance(value, str) else value


def check_names(environment: Mapping[str, str]) -> None:
    """Raise ValueError for a variable GRISTMILL_... that nothing reads, with the nearest name."""
    grouped = [variable(name, each.name) for name, group in GROUPS.items() for each in fields(group)]
    known = [*map(variable, MachineSettings.model_fields), *grouped, *OTHERS]
    for name, value in environment.items():
        upper = name.upper()
        if not upper.startswith(PREFIX) or any(_matches(upper, each) for each in known):
            continue
        if _OF_KUBERNETES.fullmatch(upper) or (upper.endswith("_PORT") and _LINK.match(value)):
            continue
        # without what all of them begin with, which would make any two alike
        near = difflib.get_close_matches(upper.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known], 1)
        hint = f". Did you mean {PREFIX}{near[0]}?" if near else "."
        raise ValueError(f"unknown setting: {name}{hint} List all settings with `gristmill settings`")


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) and name != pattern[:-1] if pattern.endswith("*") else name == pattern
