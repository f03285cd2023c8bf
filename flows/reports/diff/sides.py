"""A side of a comparison: the documents that a finished recipe, or stage, keeps, and what decided about the others."""

from collections.abc import Iterable
from dataclasses import dataclass

from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage, open_stage
from gristmill.tasks.engine.make import StageResult


@dataclass(frozen=True)
class Side:
    """Shard i of all its stages has the same documents.

    `extracted`: the stage that read the sources; `documents`: the one with the texts; `kept`: the one whose parts name
    the documents that are kept; `measured`: those with columns of documents, the last of which holds; `decided`: those
    with a ledger, in order; `tokens`: that of the token shards, if there is one.
    """

    label: str
    extracted: FinishedStage
    documents: FinishedStage
    kept: FinishedStage
    measured: tuple[FinishedStage, ...]
    decided: tuple[FinishedStage, ...]
    tokens: FinishedStage | None = None

    @property
    def shards(self) -> range:
        return range(len(self.extracted.part_records))

    def parts(self, shard: int) -> tuple[str, ...]:
        """The parts with columns of a shard's documents, those that are there; the last one with a column holds."""
        stages = dict.fromkeys(
            stage.part(shard) for stage in (self.extracted, self.documents, *self.measured, self.kept)
        )
        return tuple(part for part in stages if files.exists(part))


def side_of_corpus(label: str, corpus: Corpus, tokens: StageResult | None = None) -> Side:
    """The side of a corpus that is made."""
    stages = [corpus.extracted, corpus.documents, corpus.kept, *corpus.measured, *corpus.stages]
    opened = {stage.folder: open_stage(stage.folder) for stage in stages}
    return Side(
        label,
        opened[corpus.extracted.folder],
        opened[corpus.documents.folder],
        opened[corpus.kept.folder],
        tuple(opened[stage.folder] for stage in corpus.measured),
        _deciding(opened[stage.folder] for stage in corpus.stages),
        open_stage(tokens.folder) if tokens else None,
    )


def side_of_stage(stage: FinishedStage) -> Side:
    """The side of a finished stage: the documents that it keeps. Raises ValueError if it keeps none, or if the stages
    from which it was made are not in the home."""
    chain = [stage]
    while (before := chain[0].selection) is not None:
        chain.insert(0, before)
    extracted = chain[0]
    if not stage.counts_documents or extracted.name != "documents":
        raise ValueError(
            f"{stage.label} keeps no documents, or the stages that it was made from are not in the home: "
            "give a recipe, or a stage with documents in and out, as `gristmill home status` prints it"
        )
    measured = [each for one in chain for each in (*one.measured, *_scores(one))]
    texts = stage if "text" in parquet.columns(stage.part(0)) else stage.documents or extracted
    return Side(stage.label, extracted, texts, stage, tuple(dict.fromkeys(measured)), _deciding(chain))


def _scores(cut: FinishedStage) -> Iterable[FinishedStage]:
    """The scores of the learned filter that a stage cuts by."""
    found = (cut.input(name) for name in cut.inputs)
    return (stage for stage in found if stage is not None and cut.name == f"{stage.name}_cut")


def _deciding(stages: Iterable[FinishedStage]) -> tuple[FinishedStage, ...]:
    return tuple(dict.fromkeys(stage for stage in stages if stage.counts_documents))
