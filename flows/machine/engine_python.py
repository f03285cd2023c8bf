"""The Python that a training engine runs in: our own, or one that GRISTMILL_OLMO_CORE_PYTHON names."""

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

from gristmill.flows.machine.settings import MachineSettings
from gristmill.training.olmo_core import REQUIREMENTS

VARIABLE = "GRISTMILL_OLMO_CORE_PYTHON"
RELEASE = "3."  # of OLMo-core, whose modules are those that gristmill.training.olmo_core was written for
_SECONDS = 60.0
# Asked of the other Python: the release of each distribution that its standard input names, null where there is none.
_ASKED = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
def release(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
print(json.dumps({name: release(name) for name in json.load(sys.stdin)}))
"""


def engine_python(settings: MachineSettings, engine: str) -> str:
    """The Python of an engine's environment; "" for our own. Raises ValueError, which names the remedy, where there is
    none that has what the engine needs. A process of the other Python is asked."""
    if engine != "olmo_core":
        return ""
    python = settings.olmo_core_python
    if not python:
        if find_spec("olmo_core"):
            return ""
        raise ValueError(
            f"is olmo_core, which requires a separate environment, and {VARIABLE} is not set; create one, "
            f"and set the variable to its Python: {command('OLMO')} && export {VARIABLE}=$PWD/OLMO/bin/python"
        )
    releases = _releases(python)
    if missing := sorted(name for name, release in releases.items() if release is None):
        raise ValueError(
            f"is olmo_core, and {VARIABLE} is {python}, which lacks {', '.join(missing)}; install it there: {python} "
            f"-m pip install -r {REQUIREMENTS}"
        )
    if not (version := releases["ai2-olmo-core"] or "").startswith(RELEASE):
        raise ValueError(
            f"is olmo_core, and {VARIABLE} is {python}, which has ai2-olmo-core {version}, but gristmill "
            f"requires {RELEASE}x; install it: {python} -m pip install -r {REQUIREMENTS}"
        )
    return python


def command(folder: str) -> str:
    """What makes the environment of the engine olmo_core in a folder."""
    return f"python -m venv {folder} && {folder}/bin/pip install -r {REQUIREMENTS}"


def needed() -> list[str]:
    """The names of the distributions that the engine olmo_core needs."""
    lines = (line.partition("#")[0].strip() for line in Path(REQUIREMENTS).read_text(encoding="utf-8").splitlines())
    return [line.partition(">=")[0].partition("<")[0].strip() for line in lines if line]


def _releases(python: str) -> dict[str, str | None]:
    """The release that an environment has of each distribution that is needed, by name."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASKED],
            input=json.dumps(needed()),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        versions: dict[str, str | None] = json.loads(done.stdout)
        return versions
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ValueError(
            f"is olmo_core, and {VARIABLE} is {python}, which does not run as a Python ({error}); set it to "
            f"the Python of an environment with OLMo-core, or create one: {command('OLMO')}"
        ) from error
