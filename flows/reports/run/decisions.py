"""The decisions that a stage of a run has recorded, and the signals that it decided by. Separate: read by several."""

from collections.abc import Sequence

import pyarrow as pa

from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.signals import RuleDecisions
from gristmill.tasks.documents.decisions import gathered
from gristmill.tasks.documents.step import Decision
from gristmill.tasks.engine.make import StageResult

Decisions = tuple[tuple[str, tuple[Decision, ...]], ...]


def decisions_of(stage: StageResult) -> Decisions | None:
    """What a stage decided by: `rules` in its record, the cut of a learned filter found it from the scores."""
    for where in (stage.manifest["record"], stage.result):
        if "decisions" in where:
            return RuleDecisions.model_validate({"decisions": where["decisions"]}).decisions
    return None


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
