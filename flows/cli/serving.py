"""The machine: its settings, what it lacks, automations, kernels, and what may be removed."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import Json
from gristmill.flows.cli.terminal import print_each, print_result, print_texts
from gristmill.flows.machine import runs as recorded_runs
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.variables import variables
from gristmill.flows.reports.tables import Table
from gristmill.flows.run import garbage
from gristmill.flows.run.doctor import Line, examine
from gristmill.flows.run.service_files import write

if TYPE_CHECKING:
    from gristmill.flows.run import automations as prefect_automations
    from gristmill.flows.run import kernel_compilation, web_pages
    from gristmill.flows.run import server as prefect_server
    from gristmill.flows.run.garbage import Garbage
else:
    prefect_server = wrapt.lazy_import("gristmill.flows.run.server")
    web_pages = wrapt.lazy_import("gristmill.flows.run.web_pages")
    kernel_compilation = wrapt.lazy_import("gristmill.flows.run.kernel_compilation")
    prefect_automations = wrapt.lazy_import("gristmill.flows.run.automations")


def ui(
    home: Annotated[
        str, typer.Option("--home", metavar="DIR", help="the home whose runs are shown; default: GRISTMILL_HOME")
    ] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="of Prefect's pages; default: a free one")] = 0,
    mlflow_port: Annotated[int, typer.Option(min=0, max=65535, help="of MLflow's pages; default: a free one")] = 0,
) -> None:
    """Prefect shows flows, stages and their artifacts; MLflow compares the models of experiments. Each page has one
    address, a link with the login of this session: without it nothing can be read or changed. Runs that begin while the
    pages are up are recorded by their server: they start sooner, and you see them while they run.

    A browser that cannot open the link opens http://127.0.0.1:PORT with the user gristmill and the token as password.

    Only this machine is served. On a machine elsewhere, forward the ports: `ssh -L 4200:127.0.0.1:4200 -L
    5000:127.0.0.1:5000 HOST`, with --port 4200 --mlflow-port 5000.

    Examples: gristmill ui
              gristmill ui --home /data/home --port 4200
    """
    settings = MachineSettings(home=home) if home else MachineSettings()
    if home and "://" not in home and not Path(settings.home).is_dir():
        raise ValueError(f"there is no home {settings.home}: a run makes one; `gristmill settings` shows yours")
    if (pages := prefect_server.shown(settings)) is not None:
        print_texts(["these pages are up already:", *(f"{name:8} {link}" for name, link in pages.links.items())])
        return
    print_texts(web_pages.named(settings))
    typer.echo("starting the pages: some ten seconds", err=True)
    with web_pages.up(settings, port, mlflow_port) as (servers, links):
        if not servers:
            return
        print_texts([*(f"{name:8} {link}" for name, link in links.items()), "Ctrl-C ends them"])
        ended = web_pages.first_to_end(servers)
    raise RuntimeError(f"{ended.name} has ended ({ended.how_ended()}): see {ended.log}; then start the pages again")


def settings(as_json: Json = False) -> None:
    """Each setting is an environment variable. The origin is `default`, or `environment`. Secrets, and users and
    passwords in addresses, are not shown. A variable GRISTMILL_... that is not listed is an error of every command.

    GRISTMILL_WORKERS=4 gristmill settings"""
    rows = list(variables(os.environ))
    texts = [(each.name, str(each.value), each.origin, each.description) for each in rows]
    print_result(rows, [Table(("variable", "value", "origin", "meaning"), texts)], as_json)


def service(
    to: Annotated[Path, typer.Option(help="the folder; files of it that differ are never overwritten")] = Path("."),
) -> None:
    """prefect.yaml has the deployments of the flows; docker/ has images, Kubernetes and SLURM."""
    enter = [f"  cd {to}"] if to != Path() else []
    print_texts([*(f"wrote {path}" for path in write(to)), "Next: set PREFECT_API_URL, then", *enter])
    print_texts(["  prefect work-pool create gristmill --type process", "  prefect --no-prompt deploy --all"])


def automations(
    webhook: Annotated[str, typer.Option(help="address that failed runs are sent to, as a JSON object")] = "",
) -> None:
    """The server is the one of PREFECT_API_URL. A failed run is sent to a webhook; a cancelled run whose worker is gone
    is ended, and so is a run whose process has died. Automations that an earlier call wrote are replaced."""
    if not os.environ.get("PREFECT_API_URL"):
        raise ValueError("automations belong to a server: set PREFECT_API_URL, as http://127.0.0.1:4200/api")

    print_texts(prefect_automations.write_automations(webhook))


def doctor(as_json: Json = False) -> None:
    """Checks versions, memory, disks, home, kernels, Prefect, MLflow, Dask, Redis, clocks and ports. Each line says
    what to do. Exits with 1 if a line is an error."""
    lines = print_each(examine(MachineSettings()), _finding, as_json)
    if any(line.state == "error" for line in lines):
        raise typer.Exit(1)


def _finding(line: "Line") -> str:
    remedy = f"\n{'':26}{line.remedy}" if line.remedy else ""
    return f"{line.state:8} {line.subject:16} {line.found}{remedy}"


def compile() -> None:
    """A first run does the same."""
    count = kernel_compilation.compile_kernels(lambda line: print_texts([line]))
    print_texts([f"kernels: {count} compiled" if count else "kernels: all are compiled"])


def gc(
    delete: Annotated[bool, typer.Option("--delete", help="remove them; without it they are only listed")] = False,
    days: Annotated[float, typer.Option(min=0, help="what was written in so many days stays")] = 7,
    yes: Annotated[bool, typer.Option("--yes", help="with --delete: do not ask")] = False,
    as_json: Json = False,
) -> None:
    """Caches of kernels of older versions are listed, and what killed runs left for workers.

    Every run holds its stages, and what these were made from, until you forget it (`gristmill home forget`). Models
    stay until then, too. Of a finished stage the manifest stays, so that later stages are still found.
    """
    home = MachineSettings().home
    result = garbage.find(home, days)
    count, size = len(result.garbage), sum(one.bytes for one in result.garbage)
    if not as_json:
        print_texts(_line(one) for one in result.garbage)
    needs_confirmation = delete and bool(result.garbage) and not yes
    if needs_confirmation and not typer.confirm(f"remove {count} of them, {size / 1e6:,.1f} MB?", err=True):
        raise typer.Exit(1)
    removed = [one for one in result.garbage if garbage.remove(home, one)] if delete else []
    value = {"garbage": result.garbage, "young": result.young, "held": result.held, "removed": removed}
    concerned, what = (removed, "removed") if delete else (result.garbage, "can be removed (--delete does it)")
    print_result(value, _sums(home, result, concerned, what, days), as_json)


def forget(
    run: Annotated[str, typer.Argument(help="RECIPE/ID, as listed; or RECIPE: all of its runs")] = "",
    as_json: Json = False,
) -> None:
    """Without a name, each run is listed with the size of the stages that only it needs. Forgetting removes nothing
    by itself; from then on `gc` may remove a model of the run, too."""
    home = MachineSettings().home
    held = [(one, size) for one, size in garbage.held_by(home) if run in ("", one.name, one.label)]
    if run and not held:
        raise LookupError(f"no run {run} is recorded in {home}; `gristmill home forget` lists those that are")
    if run:
        for one, _ in held:
            recorded_runs.forget(home, one)
    value = [{"run": one.label, "flow": one.flow, "ended": one.ended, "bytes": size} for one, size in held]
    ends = [f"ended {one.ended}" if one.ended else "did not end" for one, _ in held]
    lines = (
        f"{size / 1e6:12,.1f} MB  {one.label}  {one.flow or 'run'}, {end}{': forgotten' if run else ''}"
        for (one, size), end in zip(held, ends, strict=True)
    )
    print_result(value, lines, as_json)


def _sums(home: str, result: garbage.Found, concerned: Sequence["Garbage"], what: str, days: float) -> Iterator[str]:
    yield f"{len(concerned)} folders or files, {sum(one.bytes for one in concerned) / 1e6:,.1f} MB, {what}"
    if result.young:
        size = sum(one.bytes for one in result.young)
        yield f"{len(result.young)} more, {size / 1e6:,.1f} MB, are younger than {days:g} days (--days)"
    if result.held:
        yield f"made now, and left alone: {', '.join(result.held)}"
    runs = garbage.held_by(home)
    yield f"{len(runs)} runs hold all other stages: `gristmill home forget` lists them, with what each holds"


def _line(one: "Garbage") -> str:
    return f"{one.bytes / 1e6:12,.1f} MB  {one.kind:10}  {one.label}"
