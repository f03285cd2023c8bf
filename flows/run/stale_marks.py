"""Marks stale verdicts and models where people look: notes on pages, and tags in MLflow.

The marks are computed from the current home, so a second call completes one that was killed. Every run updates them at
its end, because it may have read other files than the data of a verdict, or newer lists.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.machine.runs import released_models
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.dependents import retractions
from gristmill.flows.reports.dependents.graph import VERDICTS, HomeGraph, graph_of
from gristmill.flows.reports.dependents.retractions import TAG, Staleness, mark_pages, tag_of
from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.tasks.engine import extras

if TYPE_CHECKING:
    from gristmill.flows.run import model_run, tracking
else:  # a run that makes nothing stale needs neither MLflow nor torch
    model_run = wrapt.lazy_import("gristmill.flows.run.model_run")
    tracking = wrapt.lazy_import("gristmill.flows.run.tracking")

log = logging.getLogger(__name__)

SQLITE = "sqlite:///"
# Tags by which MLflow has decisions and scaling laws.
ID_TAGS = ("decision", "scaling")


@dataclass(frozen=True)
class Marked:
    """Results: `pages`, the paths of changed pages; `tagged` and `untagged`, ids of MLflow runs; `gaps`, what could not
    be marked and why."""

    pages: tuple[str, ...] = ()
    tagged: tuple[str, ...] = ()
    untagged: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """One line per change."""
        runs = f"MLflow: {len(self.tagged)} runs marked as stale, {len(self.untagged)} no longer"
        return [f"pages of verdicts: {len(self.pages)} changed", runs, *(f"not marked: {gap}" for gap in self.gaps)]


def mark_after_run(settings: MachineSettings) -> None:
    """Mark what is stale at the end of a run, and log how much is new. Returns at once if nothing in the home can be
    stale: no verdicts, retractions, or models that a newer list has released. Errors are logged, because the run itself
    is finished."""
    folders = (*VERDICTS, retractions.FOLDER)
    if not any(files.names(files.join(settings.home, name)) for name in folders) and not released_models(settings.home):
        return
    try:
        marked = mark(settings)
    except (OSError, LookupError, RuntimeError, ValueError) as error:  # the run itself is finished
        log.warning("whether something is stale now is unknown: %s. Run `gristmill home retract --write`", error)
        return
    if marked.pages or marked.tagged:
        log.warning(
            "stale now: %d pages of verdicts, %d runs in MLflow. `gristmill home affected STAGE` and `gristmill decide "
            "list` show why",
            len(marked.pages),
            len(marked.tagged),
        )
    for gap in marked.gaps:
        log.warning("whether more is stale is unknown: %s", gap)


def mark(settings: MachineSettings) -> Marked:
    """Mark everything that is stale now, and nothing else."""
    staleness = Staleness(graph_of(settings.home))
    pages, gaps = mark_pages(staleness)
    try:
        tagged, untagged = _tag(settings, staleness)
    except (OSError, RuntimeError) as error:  # MLflow's own errors are OSErrors or RuntimeErrors, or become these
        tagged, untagged = [], []
        gaps.append(f"runs in MLflow: {error}. Run the same command again")
    return Marked(tuple(pages), tuple(tagged), tuple(untagged), (*gaps, *staleness.gaps))


def _tag(settings: MachineSettings, staleness: Staleness) -> tuple[list[str], list[str]]:
    """Set and delete the tag of runs in MLflow. Does not start MLflow: a home without a database has no runs."""
    uri = settings.tracking_uri
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
        return [], []
    if extras.missing(("mlflow",)):
        raise RuntimeError(extras.shortage("tags in MLflow", ("mlflow",)))
    by_tag = _reasons(staleness)
    client = tracking.TrackedExperiment(settings, "").client
    tagged, untagged = [], []
    try:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        runs: dict[str, Mapping[str, str]] = {}  # the tags of ours: a server may have many of other projects
        for name in (*ID_TAGS, model_run.KEY_TAG, tracking.STAGE_TAG, TAG):
            page: str | None = None
            while experiments and (page is None or page):
                some = client.search_runs(experiments, f"tags.`{name}` != ''", max_results=1000, page_token=page)
                page = some.token or ""
                runs |= {run.info.run_id: run.data.tags for run in some}
        for run_id, tags in runs.items():
            value = tag_of(_reasons_of(tags, by_tag))
            if value and tags.get(TAG) != value:
                client.set_tag(run_id, TAG, value)
                tagged.append(run_id)
            elif not value and TAG in tags:
                client.delete_tag(run_id, TAG)
                untagged.append(run_id)
    except tracking.mlflow.MlflowException as error:
        raise RuntimeError(f"{redact_url(uri)} does not take tags: {error.message}") from error
    return tagged, untagged


def _reasons_of(tags: Mapping[str, str], by_tag: Mapping[tuple[str, str], tuple[str, ...]]) -> list[str]:
    """Why a run with these tags is stale. Runs of an arm also have the tag of their decision, but need not depend on
    all of its data."""
    is_child = tracking.PARENT_TAG in tags
    pairs = [(name, value) for name, value in tags.items() if not is_child or name not in ID_TAGS]
    return list(dict.fromkeys(reason for pair in pairs for reason in by_tag.get(pair, ())))


def _reasons(staleness: Staleness) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Why runs in MLflow are stale, by the tag and value that identify them."""
    graph: HomeGraph = staleness.graph
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for verdict in graph.verdicts:
        if reasons := staleness.of_verdict(verdict):
            found |= {(tag, verdict.id): reasons for tag in ID_TAGS}
    for label, stage in graph.stages.items():
        if stage.name in ("model", "proxy", "doremi"):
            tag = model_run.KEY_TAG if stage.name == "model" else tracking.STAGE_TAG
            if stage.name == "model":
                reasons = staleness.of_model(label)
            else:
                reasons = tuple(one.sentence for one in staleness.retractions_of([label]))
            if reasons:
                found[tag, stage.key] = reasons
    return found
