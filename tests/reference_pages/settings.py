"""The page of all settings of a machine."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from pydantic import SecretStr

from gristmill.flows.machine.settings import GROUPS, MachineSettings, variable
from gristmill.flows.machine.variables import OTHERS
from tests.reference_pages.markdown import code, fence, page, table


def settings_page() -> str:
    """Each variable with its default and its meaning, and where settings come from."""
    return page(
        "# Settings",
        "This page lists every environment variable `GRISTMILL_...`, with its default and meaning.",
        "Settings describe a machine: folders, workers, services. They never change a result. Print the values in use:",
        fence("gristmill settings", "sh"),
        "## Where settings come from",
        "Gristmill reads settings only from the environment of the process. There is no settings file, and recipes do "
        "not change settings. A variable wins over the default. A few commands have an option that wins over the "
        "variable, such as `gristmill ui --home`. `gristmill settings` prints the origin of each value, and hides "
        "secrets.",
        fence("export GRISTMILL_HOME=/data/home\nGRISTMILL_WORKERS=4 gristmill run recipe.yaml", "sh"),
        "A command stops at a variable that begins with `GRISTMILL_` and is not on this page. "
        "Libraries read their own variables: Prefect `PREFECT_...`, MLflow `MLFLOW_...`, S3 `AWS_...`.",
        "## Machine",
        table(("variable", "default", "meaning"), _machine()),
        "## Remote files",
        f"`{variable('remote_io')}` can also hold all of these as one JSON object.",
        table(("variable", "default", "meaning"), _group("remote_io")),
        "## Language model server",
        f"`{variable('lm')}` can also hold all of these as one JSON object.",
        table(("variable", "default", "meaning"), _group("lm")),
        "## Deployments and tests",
        table(("variable", "meaning"), [(code(name), meaning) for name, meaning in OTHERS.items()]),
    )


def _machine() -> Iterator[tuple[str, ...]]:
    for name, field in MachineSettings.model_fields.items():
        if name not in GROUPS:
            yield code(variable(name)), code(_value(field.default)), field.description or ""


def _group(name: str) -> Iterator[tuple[str, ...]]:
    for each in fields(GROUPS[name]):
        yield code(variable(name, each.name)), code(f"{each.default}"), each.metadata["description"]


def _value(default: Any) -> str:
    if isinstance(default, SecretStr):
        return default.get_secret_value()
    return ",".join(default) if isinstance(default, tuple) else f"{default}"
