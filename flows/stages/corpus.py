"""The documents of a run between two stages: where they lie, and which of them are kept."""

from dataclasses import dataclass, replace

from tasks.engine.make import StageResult


@dataclass(frozen=True)
class CorpusPlaces:
    """Paths by shard, for the jobs of a stage: the source's name, the part with the texts, the part that names the
    documents that are kept, and the parts with signals."""

    sources: tuple[str, ...]
    documents: tuple[str, ...]
    kept: tuple[str, ...]
    signals: tuple[tuple[str, ...], ...]

    def shards(self, without: tuple[str, ...] = ()) -> list[int]:
        return [i for i, source in enumerate(self.sources) if source not in without]

    def shard(self, i: int) -> dict[str, str]:
        """The arguments by which a job finds its documents."""
        return {"documents": self.documents[i], "kept": self.kept[i]}

    def source_numbers(self) -> list[int]:
        """The place of each shard's source among the sources, whose shards lie in the recipe's order."""
        numbers = {source: number for number, source in enumerate(dict.fromkeys(self.sources))}
        return [numbers[source] for source in self.sources]

    def parts(self, names: tuple[str, ...]) -> list[tuple[str, str]]:
        """(documents, kept) of the shards of some sources."""
        return [(self.documents[i], self.kept[i]) for i, source in enumerate(self.sources) if source in names]


@dataclass(frozen=True)
class Corpus:
    """The documents of a run and which of them are kept: shard i of all its stages has the same documents.

    `sources`: the source of each shard; `documents`: the stage with the texts; `kept`: the stage whose parts
    name what is kept; `measured`: those with signals of steps; `stages`: all that led here, in order.
    """

    sources: tuple[str, ...]
    documents: StageResult
    kept: StageResult
    measured: tuple[StageResult, ...]
    stages: tuple[StageResult, ...]

    @property
    def places(self) -> CorpusPlaces:
        shards = range(len(self.sources))
        return CorpusPlaces(
            self.sources,
            tuple(self.documents.part(i) for i in shards),
            tuple(self.kept.part(i) for i in shards),
            tuple(tuple(stage.part(i) for stage in self.measured) for i in shards),
        )

    def inputs(self, *others: StageResult, signals: bool = False) -> dict[str, str]:
        """The keys of the documents, of what is kept, of other stages and, if they are read, of the signals."""
        keys = {"documents": self.documents.key, "kept": self.kept.key}
        keys |= {stage.name: stage.key for stage in others}
        return keys | ({f"measured {i}": stage.key for i, stage in enumerate(self.measured)} if signals else {})

    def then(self, kept: StageResult, *through: StageResult) -> "Corpus":
        """The corpus behind a stage that keeps some documents, and the stages that led there."""
        return replace(self, kept=kept, stages=(*self.stages, *through, kept))

    def through(self, stage: StageResult) -> "Corpus":
        """The same corpus behind a stage that neither drops documents nor cuts texts."""
        return replace(self, stages=(*self.stages, stage))

    def measuring(self, stage: StageResult) -> "Corpus":
        """The corpus with the signals of a stage."""
        return replace(self, measured=(*self.measured, stage))

    def rewritten(self, stage: StageResult, *through: StageResult) -> "Corpus":
        """The corpus behind a stage that has the texts anew, and the stages that led there."""
        return replace(self, documents=stage, kept=stage, stages=(*self.stages, *through, stage))
