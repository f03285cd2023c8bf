"""Training as one of several machines: on each but node 0, which runs the flow."""

import time
from collections.abc import Callable
from pathlib import Path

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.finished import finished
from gristmill.flows.stages.model import local_folder, local_mixture, model_spec
from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.training.run import joining, launch
from gristmill.training.run.environment import default_processes

_LOOK_SECONDS = 2.0


def join(settings: MachineSettings, run: str, wait: float, say: Callable[[str], None]) -> int:
    """Train with node 0, to the end or until that is stopped; the exit code of `gristmill.training.run.launch`, or its
    STOPPED for all after which the same command may go on.

    `run`: the recipe that node 0 trains; run.json in its model's folder, where all nodes see that; or the address of
    what node 0 offers. `wait`: seconds that node 0 may take to begin. Raises ValueError where it does not, or this is
    node 0; NotFinishedError unless the recipe's tokens are finished.
    """
    if not settings.training_node:
        raise ValueError(
            "GRISTMILL_TRAINING_NODE is 0: use `run` on this node, and set the variable to 1, 2, ... on the others"
        )
    written = run if run.endswith(".json") else _written(settings, run, say)
    end = time.monotonic() + wait
    while not files.exists(written):
        if time.monotonic() > end:
            raise ValueError(f"{redact_url(written)} does not exist; start the run on node 0 first, {_home(settings)}")
        time.sleep(_LOOK_SECONDS)
    own = not files.is_local(written)
    run_json = _fetched(settings, written, say) if own else Path(written)
    log = run_json.with_name(f"training-{settings.training_node}.log")
    processes = settings.training_processes or default_processes()
    code = launch.launch(
        run_json,
        processes,
        log,
        nodes=settings.nodes,
        on_line=say,
        restarts=settings.training_restarts,
        limits=settings.training_limits,
    )
    if own and not code:
        joining.left(run_json.parent)
    return launch.STOPPED if launch.is_interrupted(code) else code


def _home(settings: MachineSettings) -> str:
    """The home that node 0 is to have."""
    if "://" in settings.home:
        return f"whose home must also be {redact_url(settings.home)}"
    return (
        f"whose home must also be {settings.home}, in a folder that all nodes can access, or use a "
        "home in an object store for all"
    )


def _written(settings: MachineSettings, name: str, say: Callable[[str], None]) -> str:
    """Where node 0 writes what it trains of a recipe. Tokens are fetched already, where they are in an object store."""
    recipe = load(name)
    report = finished(recipe, settings)
    if report.data is None:
        raise NotFinishedError(
            f"the tokens of {recipe.name} are not finished: run `gristmill run {name} --tokens-only` first"
        )
    folder = model_spec(settings, recipe, report.data).folder(settings.home)
    if files.is_local(folder):
        return files.join(folder, "run.json")
    say(f"fetching the tokens of {recipe.name}")
    local_mixture(settings, report.data.mixture.folder)
    return files.join(folder, joining.JOIN)


def _fetched(settings: MachineSettings, address: str, say: Callable[[str], None]) -> Path:
    """The run.json of this machine, by what node 0 offers at an address."""
    say(f"fetching the files of {redact_url(address)}")
    folder = address.rpartition("/")[0]
    out = Path(local_folder(settings, folder)) / f"node-{settings.training_node}"
    return joining.accepted(folder, lambda mixture: local_mixture(settings, mixture), out)
