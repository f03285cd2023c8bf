"""What a finished run has about documents and steps as data frames, and the export of its documents."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import wrapt

from gristmill.flows.machine.context import RunContext, job_options, workers
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.columns import check_export
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.dropped import dropped_by
from gristmill.flows.reports.funnel import FunnelRow, frame
from gristmill.flows.reports.status import show
from gristmill.flows.stages import export as export_stage
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage.home import Home
from gristmill.storage.schema import LEDGER
from gristmill.tasks.documents.export import Export
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import StageResult, find_or_make
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.engine.spec import StageSpec

if TYPE_CHECKING:
    from pandas import DataFrame

    from gristmill.flows.reports import lineage as lineage_report
    from gristmill.flows.reports import similar as similar_report
    from gristmill.flows.reports import whatif as whatif_report
    from gristmill.flows.reports.lineage import Lineage
else:
    lineage_report = wrapt.lazy_import("gristmill.flows.reports.lineage")
    similar_report = wrapt.lazy_import("gristmill.flows.reports.similar")
    whatif_report = wrapt.lazy_import("gristmill.flows.reports.whatif")


def funnel(steps: Iterable[FunnelRow], estimated_tokens: Callable[[int | None], int | None]) -> "DataFrame":
    """A row for each step. `estimated_tokens`: of a number of characters."""
    return frame(
        {
            "step": row.name,
            "documents_in": row.documents_in,
            "documents_out": row.documents_out,
            "kept": row.kept,
            "characters_out": row.characters_out,
            "tokens": estimated_tokens(row.characters_out),
            "reasons": ", ".join(f"{rule} {count}" for rule, count in row.reasons.items()),
        }
        for row in steps
    )


def kept_documents(home: str, label: str, n: int) -> "DataFrame":
    """The first `n` documents that a stage kept, with their texts."""
    [sample] = show(home, label, n)
    return frame(document.row | {"text": document.text} for document in sample.documents)


def dropped_documents(home: str, labels: Collection[str], rule: str, n: int, where: str) -> "DataFrame":
    """Up to `n` documents of each of some stages that a rule dropped, with the parts of the text that offended it."""
    stages = [stage for stage in Home(home).stages() if stage.label in labels]
    return frame(
        {"stage": one.stage, **one.row, "text": one.text}
        | {"marked": [(one.text or "")[start:stop] for start, stop in one.marks]}
        for one in dropped_by(stages, rule, n, where)
    )


def lineage(
    settings: MachineSettings, document: str, corpus: Corpus, labels: Collection[str], deciding: Collection[str]
) -> "Lineage":
    """Where a document comes from, and what the stages of a run made of it. `labels`: of all stages of the run;
    `deciding`: of those that decided about documents. Raises LookupError."""
    documents = [*lineage_report.trace(settings.home, document, settings.remote_io, corpus.extracted.label)]
    if len(documents) > 1:
        raise LookupError(
            f"{len(documents)} documents have an id that begins with {document}: give more characters of it"
        )
    [one] = documents
    return replace(
        one,
        scores={stage: known for stage, known in one.scores.items() if stage in labels},
        decisions=tuple(each for each in one.decisions if each.stage in deciding),
    )


def decisions(document: "Lineage") -> "DataFrame":
    """A row for each stage that decided about a document."""
    names = [name for name in LEDGER.names if name != "id"]
    return frame(
        (
            {"stage": each.stage, "kept": each.kept} | {n: None if each.kept else each.row.get(n) for n in names}
            for each in document.decisions
        ),
        ["stage", "kept", *names],
    )


def similar(
    recipe: Recipe,
    settings: MachineSettings,
    corpus: Corpus,
    deciding: Collection[str],
    document: str,
    threshold: float,
    n: int,
) -> "DataFrame":
    """The documents most like one of a run, or like a text file. Raises LookupError for a recipe without `minhash`."""
    signatures = [stage for stage in corpus.stages if stage.name == "signatures"]
    if not signatures:
        raise LookupError(f"the recipe {recipe.name} has no step `minhash`, so there are no signatures to compare")
    redis = settings.redis.get_secret_value()
    [result] = similar_report.look_up(
        settings.home, document, redis, None, None, threshold, n, lambda *done: None, signatures[-1].label
    )
    return frame(
        (
            {
                "id": match.id,
                "jaccard": match.jaccard,
                "kept": all(each.kept for each in match.decisions if each.stage in deciding),
                "source": match.source,
                "url": match.url,
                "text": match.text,
            }
            for match in result.matches
        ),
        ["id", "jaccard", "kept", "source", "url", "text"],
    )


def whatif(recipe: Recipe, changes: Mapping[str, Any], settings: MachineSettings) -> "DataFrame":
    """The funnel of a run beside that under other thresholds. Raises as `gristmill.flows.reports.whatif.whatif`."""
    compared = whatif_report.funnel(whatif_report.whatif(recipe, changes, settings))
    rows = frame(
        {
            "step": row.step,
            "documents_out": row.recorded and row.recorded.documents_out,
            "whatif": row.replayed and row.replayed.documents_out,
            "rules": row.rules,
        }
        for row in compared
    )
    return rows.astype({"documents_out": "Int64", "whatif": "Int64"})


def export_documents(
    recipe: Recipe,
    settings: MachineSettings,
    corpus: Corpus,
    to: str,
    format: Literal["parquet", "jsonl"],
    where: str,
) -> str:
    """Write the curated documents into an empty folder or address, and return it. Raises FileExistsError where other
    files are there, RecipeError for an expression over columns that the documents do not have."""
    changed = recipe.model_copy(update={"export": Export(to=to, format=format, where=where or None)})
    check_export(changed)
    options.begin_making(job_options(settings))
    with workers(settings) as executor:

        def build(spec: StageSpec) -> StageResult:
            return find_or_make(settings.home, spec, executor, lambda: nullcontext(Silent()))

        stage = export_stage.export(RunContext(settings, build), changed, corpus)
    assert stage is not None, "the recipe has an export"
    return stage.folder
