"""Commands about the machine and its home: settings, checks, automations, kernels, disk space, and what depends on
what."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Literal

import typer
import wrapt

from gristmill.flows.cli.app import Json
from gristmill.flows.cli.terminal import print_each, print_result, print_texts
from gristmill.flows.machine import runs as recorded_runs
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.variables import variables
from gristmill.flows.reports.tables import Table
from gristmill.flows.run import garbage, service_files
from gristmill.flows.run.doctor import Line, examine
from gristmill.storage.printable import redact_url
from gristmill.tasks.engine.slurm import worker as slurm_worker

if TYPE_CHECKING:
    import mlflow

    from gristmill.flows.explore.dependents import affected as dependents
    from gristmill.flows.explore.dependents import lines as dependents_lines
    from gristmill.flows.explore.dependents import retracting
    from gristmill.flows.machine import gate
    from gristmill.flows.reports.dependents import graph as home_graph
    from gristmill.flows.reports.dependents import retractions, things
    from gristmill.flows.run import automations as prefect_automations
    from gristmill.flows.run import compared, kernel_compilation, mlflow_pages, stale_marks
    from gristmill.flows.run import server as prefect_server
    from gristmill.flows.run.garbage import Garbage
    from gristmill.flows.run.local_server import LocalServer
else:
    dependents = wrapt.lazy_import("gristmill.flows.explore.dependents.affected")
    dependents_lines = wrapt.lazy_import("gristmill.flows.explore.dependents.lines")
    retracting = wrapt.lazy_import("gristmill.flows.explore.dependents.retracting")
    home_graph = wrapt.lazy_import("gristmill.flows.reports.dependents.graph")
    retractions = wrapt.lazy_import("gristmill.flows.reports.dependents.retractions")
    things = wrapt.lazy_import("gristmill.flows.reports.dependents.things")
    prefect_server = wrapt.lazy_import("gristmill.flows.run.server")
    compared = wrapt.lazy_import("gristmill.flows.run.compared")
    gate = wrapt.lazy_import("gristmill.flows.machine.gate")
    mlflow = wrapt.lazy_import("mlflow")
    mlflow_pages = wrapt.lazy_import("gristmill.flows.run.mlflow_pages")
    kernel_compilation = wrapt.lazy_import("gristmill.flows.run.kernel_compilation")
    stale_marks = wrapt.lazy_import("gristmill.flows.run.stale_marks")
    prefect_automations = wrapt.lazy_import("gristmill.flows.run.automations")


def ui(
    home: Annotated[str, typer.Option("--home", metavar="DIR", help="home of the runs; default: GRISTMILL_HOME")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of Prefect's pages; 0: a free port")] = 0,
    mlflow_port: Annotated[int, typer.Option(min=0, max=65535, help="port of MLflow's pages; 0: a free port")] = 0,
) -> None:
    """Prefect shows flows and stages, MLflow models. Each link has a login token and works only on this machine. Use
    `ssh -L` to open the pages elsewhere.

    Examples:
        gristmill ui
        gristmill ui --home /data/home --port 4200
    """
    settings = MachineSettings(home=home) if home else MachineSettings()
    if home and "://" not in home and not Path(settings.home).is_dir():
        raise ValueError(f"home not found: {settings.home}. Check --home; `gristmill settings` prints the home in use")
    if (pages := prefect_server.shown(settings)) is not None:
        print_texts(["already running:", *(f"{name:8} {link}" for name, link in pages.links.items())])
        return
    print_texts(_named_pages(settings))
    typer.echo("starting the pages, about 10 seconds", err=True)
    with _pages(settings, port, mlflow_port) as (servers, links):
        if not servers:
            return
        print_texts([*(f"{name:8} {link}" for name, link in links.items()), "Press Ctrl-C to stop"])
        ended = _first_to_end(servers)
    raise RuntimeError(f"{ended.name} stopped: {ended.how_ended()}. Read {ended.log}, and start the pages again")


def _named_pages(settings: MachineSettings) -> Iterator[str]:
    """A line for each server that the user has named: its pages are there already."""
    if (prefect := prefect_server.named()) is not None:
        yield f"Prefect  {redact_url(prefect[1])} (PREFECT_API_URL)"
    if settings.tracking_uri.startswith("http"):
        yield f"MLflow   {redact_url(settings.tracking_uri)} (GRISTMILL_MLFLOW_URI)"


def _shows_mlflow(settings: MachineSettings) -> bool:
    """Whether there are records of MLflow's to show here: without its package no run has any."""
    return not settings.tracking_uri.startswith("http") and find_spec("mlflow") is not None


@contextlib.contextmanager
def _pages(
    settings: MachineSettings, port: int, mlflow_port: int
) -> Iterator["tuple[list[LocalServer], dict[str, str]]"]:
    """A block in which the servers that the user has not named run, when they answer: they, and by name the links
    to their pages, with the login. Raises RuntimeError, with a sentence, if one cannot start."""
    # as Ctrl-C: the servers and their note go with the block
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        servers = {}
        if prefect_server.named() is None:
            servers["Prefect"] = prefect_server.child(settings, port, with_pages=True)
            stack.callback(servers["Prefect"].stop)
        if _shows_mlflow(settings):
            servers["MLflow"] = mlflow_pages.start(settings, mlflow_port)
            stack.callback(servers["MLflow"].stop)
        addresses = {name: one.wait() for name, one in servers.items()}
        paths = {"Prefect": "/"}
        if "MLflow" in servers:
            paths["MLflow"] = compared.newest_view(mlflow.MlflowClient(settings.tracking_uri))
        links = {name: gate.link(addresses[name] + paths[name], one.login) for name, one in servers.items()}
        if prefect := servers.get("Prefect"):
            stack.enter_context(prefect_server.show(settings, prefect, links))
        yield list(servers.values()), links


def _first_to_end(servers: "list[LocalServer]") -> "LocalServer":
    """The first of them whose process ends."""
    ended = SimpleQueue["LocalServer"]()

    def watch(one: "LocalServer") -> None:
        one.process.wait()
        ended.put(one)

    for one in servers:
        threading.Thread(target=watch, args=(one,), daemon=True).start()
    return ended.get()


def settings(as_json: Json = False) -> None:
    """Each setting is an environment variable. Hides secrets. Commands stop at a GRISTMILL_ variable that is not
    listed.

    Reference: docs/reference/settings.md

    Examples:
        gristmill settings
        gristmill settings --json
    """
    rows = list(variables(os.environ))
    texts = [(each.name, str(each.value), each.origin, each.description) for each in rows]
    print_result(rows, [Table(("variable", "value", "origin", "meaning"), texts)], as_json)


def service(
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="folder of the files")] = Path("."),
    slurm: Annotated[bool, typer.Option("--slurm", help="only the job scripts of SLURM")] = False,
) -> None:
    """prefect.yaml has the deployments of the flows; docker/ has images, Kubernetes and SLURM. Never overwrites a file
    that differs.

    Guide: docs/guides/schedule.md

    Examples:
        gristmill home service --to deploy
        gristmill home service --slurm
    """
    enter = [f"  cd {to}"] if to != Path() else []
    if slurm:
        print_texts(
            [
                *(f"wrote {path}" for path in service_files.write(to, "docker/slurm/")),
                "Next: change the lines with #SBATCH,",
            ]
        )
        print_texts(["set GRISTMILL_HOME, and run", *enter, "  sbatch docker/slurm/driver.sbatch RECIPE"])
        return
    print_texts([*(f"wrote {path}" for path in service_files.write(to)), "Next: set PREFECT_API_URL, and run", *enter])
    print_texts(["  prefect work-pool create gristmill --type process", "  prefect --no-prompt deploy --all"])


def worker(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="folder where run and workers meet")],
    processes: Annotated[int, typer.Option(min=0, help="number of worker processes; 0: one per CPU of the task")] = 0,
    gpus: Annotated[int, typer.Option(min=0, help="number of GPUs per worker process")] = 0,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="time to wait for the run, at first and when it is lost")
    ] = slurm_worker.WAIT_SECONDS,
) -> None:
    """Joins the run of the folder, and its next start when it was requeued. Ends with the run. Called by
    docker/slurm/workers.sbatch, in a job array.

    Guide: docs/guides/slurm.md

    Examples:
        gristmill home worker FOLDER
        gristmill home worker FOLDER --processes 1 --gpus 1
    """
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s")
    logging.getLogger("gristmill").setLevel(logging.INFO)
    allocation = slurm_worker.Allocation.of_environment(os.environ, processes, gpus)
    if slurm_worker.work(folder, allocation, wait) == "stopped":
        raise typer.Exit(128 + signal.SIGTERM)


def automations(
    webhook: Annotated[str, typer.Option(metavar="URL", help="address for failed runs, as JSON")] = "",
) -> None:
    """Uses the server at PREFECT_API_URL. The automations report failed runs and end runs whose process has died.
    Replaces automations of earlier calls.

    Guide: docs/guides/schedule.md

    Examples:
        gristmill home automations
        gristmill home automations --webhook https://hooks.example.org/gristmill
    """
    if not os.environ.get("PREFECT_API_URL"):
        raise ValueError(
            "PREFECT_API_URL is not set. Set it to the address of the server, such as http://127.0.0.1:4200/api"
        )

    print_texts(prefect_automations.write_automations(webhook))


def doctor(as_json: Json = False) -> None:
    """Checks versions, memory, disks, kernels, services, clocks and ports, and prints a fix for each problem. Exits
    with 1 if there is an error.

    Guide: docs/guides/troubleshooting.md

    Examples:
        gristmill home doctor
    """
    lines = print_each(examine(MachineSettings()), _doctor_line, as_json)
    if any(line.state == "error" for line in lines):
        raise typer.Exit(1)


def _doctor_line(line: "Line") -> str:
    fix = f"\n{'':26}{line.remedy}" if line.remedy else ""
    return f"{line.state:8} {line.subject:16} {line.found}{fix}"


def compile() -> None:
    """Without this command, the first run compiles them.

    Examples:
        gristmill home compile
    """
    count = kernel_compilation.compile_kernels(lambda line: print_texts([line]))
    print_texts([f"kernels: {count} compiled" if count else "kernels: already compiled"])


def gc(
    delete: Annotated[bool, typer.Option("--delete", help="removal of what is listed")] = False,
    days: Annotated[float, typer.Option(min=0, help="minimum age in days")] = 7,
    yes: Annotated[bool, typer.Option("--yes", help="with --delete: no confirmation")] = False,
    as_json: Json = False,
) -> None:
    """Also lists old kernel caches, files of killed runs, and folders of SLURM runs. Recorded runs keep their stages
    and models until `gristmill home forget`.

    Guide: docs/guides/disk-and-backup.md

    Examples:
        gristmill home gc
        gristmill home gc --days 30 --delete
    """
    settings = MachineSettings()
    home = settings.home
    result = garbage.find(home, days, settings.slurm.folder)
    count, size = len(result.garbage), sum(one.bytes for one in result.garbage)
    if not as_json:
        print_texts(_line(one) for one in result.garbage)
    needs_confirmation = delete and bool(result.garbage) and not yes
    if needs_confirmation and not typer.confirm(f"Delete {count} folders or files, {size / 1e6:,.1f} MB?", err=True):
        raise typer.Exit(1)
    removed = [one for one in result.garbage if garbage.remove(home, one)] if delete else []
    value = {"garbage": result.garbage, "young": result.young, "held": result.held, "removed": removed}
    items, what = (removed, "deleted") if delete else (result.garbage, "can be deleted. Add --delete to do so")
    print_result(value, _sums(home, result, items, what, days), as_json)


def forget(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="RECIPE/ID, as listed; or RECIPE, for all of its runs")
    ] = "",
    as_json: Json = False,
) -> None:
    """Without an argument, lists each run with the size of the stages that only it needs. Deletes no files: `gristmill
    home gc --delete` does.

    Guide: docs/guides/disk-and-backup.md

    Examples:
        gristmill home forget
        gristmill home forget demo/20261128-104500-123456-9f3a
    """
    home = MachineSettings().home
    held = [(one, size) for one, size in garbage.held_by(home) if run in ("", one.name, one.label)]
    if run and not held:
        raise LookupError(f"run not found in {home}: {run}. List the recorded runs with `gristmill home forget`")
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


def _sums(home: str, result: garbage.Found, items: Sequence["Garbage"], what: str, days: float) -> Iterator[str]:
    yield f"{len(items)} folders or files, {sum(one.bytes for one in items) / 1e6:,.1f} MB, {what}"
    if result.young:
        size = sum(one.bytes for one in result.young)
        yield f"kept: {len(result.young)} more, {size / 1e6:,.1f} MB, younger than {days:g} days (--days)"
    if result.held:
        yield f"kept because a run is making them: {', '.join(result.held)}"
    runs = garbage.held_by(home)
    yield f"{len(runs)} runs keep all other stages. List them with `gristmill home forget`"


def _line(one: "Garbage") -> str:
    return f"{one.bytes / 1e6:12,.1f} MB  {one.kind:10}  {one.label}"


THING = "stage, STEP@VERSION, gristmill@RELEASE, file or its digest, document id, URL or host"
ThingKind = Literal["stage", "step", "library", "release", "file", "source-file", "document", "url", "host"]
TextLike = Annotated[
    Path | None,
    typer.Option("--text-like", metavar="FILE", help="UTF-8 text; documents like it"),
]
Exports = Annotated[
    list[str] | None, typer.Option("--export", metavar="FOLDER", help="export that no run recorded; repeatable")
]


def affected(
    thing: Annotated[str, typer.Argument(metavar="THING", help=THING)] = "",
    kind: Annotated[ThingKind | None, typer.Option(help="kind of THING; default: the first that the home has")] = None,
    text_like: TextLike = None,
    export: Exports = None,
    core_hour: Annotated[float, typer.Option(min=0, help="price of a core hour")] = 0.0,
    gpu_hour: Annotated[float, typer.Option(min=0, help="price of a GPU hour")] = 0.0,
    as_json: Json = False,
) -> None:
    """Prints stages, shards, tokens, runs, trainings with their checkpoints, exports and verdicts, since when, and what
    it took to make them. Changes nothing.

    Guide: docs/guides/what-depends-on.md

    Examples:
        gristmill home affected minhash
        gristmill home affected crawl/web-00003.warc.gz --json
    """
    _check_thing(thing, text_like)
    report = dependents.affected(
        MachineSettings(),
        thing,
        kind=kind or "",
        text_like=str(text_like or ""),
        exports=export or (),
        prices=dependents.Prices(core_hour, gpu_hour),
    )
    print_result(report, dependents_lines.parts(report), as_json)


def _check_thing(thing: str, text_like: Path | None) -> None:
    if bool(thing) == (text_like is not None):
        raise typer.BadParameter(f"name one thing, or a text with --text-like. A thing is a {THING}")


def retract(
    thing: Annotated[str, typer.Argument(metavar="THING", help=THING)] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="reason, which is shown with every verdict")] = "",
    kind: Annotated[ThingKind | None, typer.Option(help="kind of THING; default: the first that the home has")] = None,
    text_like: TextLike = None,
    undo: Annotated[str, typer.Option(metavar="ID", help="retraction to remove")] = "",
    write: Annotated[bool, typer.Option("--write", help="record of the retraction, and marks")] = False,
    as_json: Json = False,
) -> None:
    """Verdicts and MLflow runs that rest on THING are marked as stale. Without THING, lists retractions; with --write
    it marks what else is stale.

    Guide: docs/guides/what-depends-on.md

    Examples:
        gristmill home retract minhash --reason "merged pages by a shared greeting"
        gristmill home retract minhash --reason "merged pages by a shared greeting" --write
    """
    settings = MachineSettings()
    if undo or not (thing or text_like):
        _list_or_undo(settings, undo, write, as_json)
        return
    _check_thing(thing, text_like)
    graph = home_graph.graph_of(settings.home)
    meant = things.recognize(graph, thing, kind or "") if text_like is None else things.text_thing(str(text_like))
    report = dependents.affected_by(settings, graph, meant)
    new = retractions.retraction(meant, reason)
    lines = [*dependents_lines.summary(report)]
    value = {"retraction": new, "written": write, "affected": report}
    if write:
        new, marks = retracting.retract(settings, meant, reason, report)
        lines += [f"retracted, as {new.id}: {new.sentence}", *marks.lines()]
        value |= {"retraction": new, "marks": marks}
    else:
        lines.append("nothing was changed. Add --write to retract it")
    print_result(value, lines, as_json)


def _list_or_undo(settings: MachineSettings, undo: str, write: bool, as_json: bool) -> None:
    if undo and write:
        one, marks = retracting.undo(settings, undo)
        value = {"undone": one, "marks": marks}
        print_result(value, [f"no longer retracted: {one.thing}", *marks.lines()], as_json)
        return
    known, gaps = retractions.retractions(settings.home)
    shown = [one for one in known if undo in ("", one.id)]
    if undo and not shown:
        raise LookupError(f"no retraction {undo} in {settings.home}. `gristmill home retract` lists them")
    lines = [f"{one.id}  {one.sentence}" for one in shown] or [f"nothing in {settings.home} is retracted"]
    if undo:
        lines.append("nothing was changed. Add --write to remove this retraction")
    value = {"retractions": shown, "gaps": gaps}
    if write:
        marks = stale_marks.mark(settings)
        lines += marks.lines()
        value |= {"marks": marks}
    print_result(value, [*lines, *gaps], as_json)
