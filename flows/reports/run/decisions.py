"""The decisions that a stage of a run has recorded, and the signals that it decided by. Separate: read by several."""

from collections.abc import Sequence

import pyarrow as pa

from gristmill.flows.stages.corpus import EXEMPT, Corpus
from gristmill.flows.stages.signals import RuleDecisions
from gristmill.tasks.documents.decisions import Exempt, gathered, of_source
from gristmill.tasks.documents.step import Decision
from gristmill.tasks.engine.make import StageResult

Decisions = tuple[tuple[str, tuple[Decision, ...]], ...]


def decisions_of(stage: StageResult) -> Decisions | None:
    """What a stage decided by: `rules` in its record, the cut of a learned filter found it from the scores."""
    for where in (stage.manifest["record"], stage.result):
        if "decisions" in where:
            return RuleDecisions.model_validate({"decisions": where["decisions"]}).decisions
    return None


def exempt_from(stage: StageResult) -> Exempt:
    """By step the sources that it did not decide about: those without the step, and the reference of a learned
    filter."""
    record, result = stage.manifest["record"], stage.result
    if "decisions" not in result:
        return record.get("exempt", {})
    passed = [*record.get("reference", ()), *filter(None, stage.manifest["inputs"].get(EXEMPT, "").split(", "))]
    return {step: passed for step, _ in result["decisions"]}


def decisions_about(stage: StageResult, decisions: Decisions, source: str) -> Decisions:
    """The decisions of a stage about documents of a source: without rules where it did not decide about it."""
    return tuple((step, tuple(rules)) for step, rules in of_source(decisions, exempt_from(stage), source))


def inputs_of(corpus: Corpus, stage: StageResult, decisions: Decisions) -> tuple[StageResult, list[StageResult]]:
    """The stages that a stage decided on: the one that names the documents that arrived, and those with signals."""
    stages = {each.contents: each for each in corpus.stages} | {each.key: each for each in corpus.stages}
    inputs = stage.manifest["inputs"]
    names = [name for name in inputs if name.startswith("measured ")]
    names.sort(key=lambda name: int(name.removeprefix("measured ")))
    names = names or [step for step, _ in decisions]  # of a learned filter: its scores
    return stages[inputs["kept"]], [stages[inputs[name]] for name in names]


def arriving_documents(
    kept: StageResult, measured: Sequence[StageResult], shard: int, decisions: Decisions
) -> pa.Table:
    """The documents of a shard that arrived at a stage, with `id` and the columns that the decisions read."""
    return gathered(tuple(each.part(shard) for each in measured), kept.part(shard), decisions)
