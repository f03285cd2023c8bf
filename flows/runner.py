"""One stage as one Prefect task: reused if it is finished, else worked on shard by shard, checked, and told of."""

import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefect import task
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flows.workshop import Workshop
from storage import stages
from storage.stages import Stage
from storage.versions import code_version
from tasks.executor import Executor
from tasks.jobs import Job, do

_PROGRESS_SECONDS = 2.0


@dataclass(frozen=True)
class Built:
    """A finished stage: where it lies and what its manifest says."""

    stage: Stage
    folder: str
    manifest: dict = field(repr=False)
    reused: bool

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def key(self) -> str:
        return self.stage.key

    def part(self, shard: int) -> str:
        return stages.part(self.folder, shard)


class Phases:
    """What a stage's body works with: its folder, and `map` for the shards of one of its phases."""

    def __init__(self, folder: str, code: Mapping[str, str], executor: Executor, progress: "Telling"):
        self.folder = folder
        self._code = code
        self._executor = executor
        self._progress = progress

    def map(self, phase: str, work: Callable[..., dict], arguments: dict[int, dict[str, Any]]) -> dict[int, dict]:
        """Run `work(folder, shard, **arguments[shard])` for every shard not yet done; records by shard, in order."""
        code = self._code[work.__module__]
        jobs = [Job(work, code, self.folder, phase, shard, given) for shard, given in arguments.items()]
        records: dict[int, dict] = {}
        self._progress.phase(phase, len(jobs))
        for index, (record, found) in self._executor.map(do, jobs):
            records[jobs[index].shard] = record
            self._progress.advance(found)
        self._progress.drain()
        return dict(sorted(records.items()))

    def once(self, phase: str, work: Callable[..., dict], arguments: dict[str, Any]) -> dict:
        """A phase that is one job."""
        return self.map(phase, work, {0: arguments})[0]

    def say(self, line: str) -> None:
        """A line of a child process, for the run's log."""
        self._progress.say(line)


@dataclass(frozen=True)
class Made:
    """A stage to be made: `body` fills the folder through the phases and returns what the manifest records."""

    stage: Stage
    body: Callable[[Phases], dict]


def stage(name: str, works: tuple[Callable[..., Any], ...], settings: dict[str, Any], inputs: dict[str, str]) -> Stage:
    """A stage whose code is that of all its work functions: a phase that maps another is refused."""
    return Stage(name, {work.__module__: code_version(work.__module__) for work in works}, settings, inputs)


def build(workshop: Workshop, made: Made) -> Built:
    """Run a stage as a Prefect task named after it."""
    name = made.stage.name

    # a task without arguments, since Prefect would search all manifests in them for futures
    @task(
        name=name,
        task_run_name=f"{name}-{made.stage.key}",
        tags=["gristmill", f"stage:{name}"],
        persist_result=False,
        cache_policy=NO_CACHE,
    )
    def run() -> Built:
        return _find_or_make(workshop, made)

    return run()


def _find_or_make(workshop: Workshop, made: Made) -> Built:
    log = get_run_logger()
    folder = made.stage.folder(workshop.settings.home)
    found = stages.manifest(folder)
    if found is not None:
        stages.check(folder, found)
        log.info("%s: reused %s", made.stage.name, folder)
        built = Built(made.stage, folder, found, reused=True)
    else:
        started = time.monotonic()
        with Telling(made.stage.name, workshop.executor, log) as progress:
            record = made.body(Phases(folder, made.stage.code, workshop.executor, progress))
            progress.drain()
        manifest = stages.finish(folder, made.stage, record)
        log.info("%s: made %s in %.1f s", made.stage.name, folder, time.monotonic() - started)
        built = Built(made.stage, folder, manifest, reused=False)
    _tell_yield(built)
    return built


def yields(built: Built) -> list[dict]:
    """What each step of a stage did, summed over its shards; empty for a stage that drops nothing."""
    totals: dict[str, dict] = {}
    for shard in built.manifest.get("shards", []):
        for step in shard.get("steps", []):
            total = totals.setdefault(step["step"], {**step, "drops": {}, **dict.fromkeys(_SUMMED, 0)})
            for name in _SUMMED:
                total[name] = None if step[name] is None else total[name] + step[name]
            for rule, count in step["drops"].items():
                total["drops"][rule] = total["drops"].get(rule, 0) + count
    return list(totals.values())


_SUMMED = ("rows_in", "rows_out", "characters_in", "characters_out")


def _tell_yield(built: Built) -> None:
    rows = [
        {
            "step": step["step"],
            "documents in": step["rows_in"],
            "documents out": step["rows_out"],
            "kept %": round(100 * step["rows_out"] / step["rows_in"], 2) if step["rows_in"] else None,
            "top reasons": top_reasons(step["drops"]),
        }
        for step in yields(built)
    ] or [{"record": name, "value": str(value)[:400]} for name, value in built.manifest.items() if name != "shards"]
    create_table_artifact(
        key=f"yield-{built.name.replace('_', '-')}",
        table=rows,
        description=f"{built.name} {'reused' if built.reused else 'made'}: `{built.folder}`",
    )


def top_reasons(drops: dict[str, int], most: int = 3) -> str:
    ranked = sorted(drops.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{rule} {count:,}" for rule, count in ranked[:most])


def progress() -> Progress:
    """A progress bar on the error stream of a terminal; nothing where there is none."""
    columns = (TextColumn("  {task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty())


class Telling:
    """Progress of a stage on the terminal and as a Prefect artifact, and its workers' lines in the run's log."""

    def __init__(self, name: str, executor: Executor, log: logging.Logger):
        self.name = name
        self._messages = executor.messages
        self._log = log
        self._artifact = None
        self._told = 0.0
        self._task = None
        self._total = self._done = 0
        self._bar = progress()

    def __enter__(self) -> "Telling":
        self._bar.start()
        return self

    def __exit__(self, *exc) -> None:
        self._bar.stop()
        if self._artifact is not None and exc[0] is None:
            update_progress_artifact(self._artifact, progress=100.0)

    def phase(self, phase: str, total: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(f"{self.name} {phase}", total=total)
        self._total, self._done = total, 0
        self._tell(f"{phase}: {total} shards")

    def advance(self, found: bool) -> None:
        self._bar.advance(self._task)
        self._done += 1
        self.drain()
        if time.monotonic() - self._told > _PROGRESS_SECONDS:
            self._tell("")

    def say(self, line: str) -> None:
        self._log.info(line)

    def drain(self) -> None:
        """Hand the workers' lines to the run's log, in this thread, which knows the run."""
        while not self._messages.empty():
            level, line = self._messages.get()
            self._log.log(level, line)

    def _tell(self, description: str) -> None:
        percent = 100.0 * self._done / self._total if self._total else 0.0
        if self._artifact is None:
            self._artifact = create_progress_artifact(
                key=f"progress-{self.name.replace('_', '-')}",
                progress=percent,
                description=f"{self.name} {description}",
            )
        else:
            update_progress_artifact(self._artifact, progress=percent)
        self._told = time.monotonic()
