"""Unique text lost, as a page shows it: the figure with its interval, and the sentences of some dropped documents."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from scipy.stats import binomtest

from gristmill.flows.curation import Passed
from gristmill.flows.machine.context import RunContext
from gristmill.flows.stages.dedup.earlier_crawls import earlier_crawls
from gristmill.flows.stages.dedup.lost_text import lost_text
from gristmill.storage import parquet
from gristmill.tasks.dedup.exact import Exact
from gristmill.tasks.dedup.lost_text import shown_file
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.engine.make import StageResult

LEVEL = 0.95


@dataclass(frozen=True)
class Lost:
    """Of `draws` characters of the dropped documents `lost` are in lost sentences: the `share` of the `characters` of
    these, its interval, and the same of the corpus that reached the step."""

    documents: int
    characters: int
    arriving_characters: int
    draws: int
    lost: int

    @property
    def share(self) -> float:
        return self.lost / self.draws if self.draws else 0.0

    @property
    def least(self) -> float:
        return interval(self.lost, self.draws)[0]

    @property
    def most(self) -> float:
        return interval(self.lost, self.draws)[1]

    @property
    def of_corpus(self) -> tuple[float, float, float]:
        """Share, least and most, of all characters that reached the step."""
        part = self.characters / max(self.arriving_characters, 1)
        return self.share * part, self.least * part, self.most * part


@dataclass(frozen=True)
class LostOf:
    """A dropped document: the kept one that stands for it, how many of its `sentences` are shown, the `lost` ones."""

    id: str
    representative: str | None
    sentences: int
    lost: list[str]


@dataclass(frozen=True)
class LostBy:
    """What a step lost, with some documents."""

    step: str
    figure: Lost
    documents: list[LostOf]


def lost_by(context: RunContext, way: Iterable[Passed]) -> Iterator[LostBy]:
    """What each step lost that drops whole documents as duplicates of others."""
    for passed in way:
        for step in passed.steps:
            if isinstance(step, (Exact, MinHash)):
                earlier = earlier_crawls(context.placed(step)) if isinstance(step, MinHash) else []
                made = lost_text(context, passed.arriving, passed.left, earlier)
                yield LostBy(step.step, share_lost(made), documents(made))


def share_lost(made: StageResult) -> Lost:
    """The figure of a finished stage `lost_text`."""
    return Lost(**made.result)


def documents(made: StageResult) -> list[LostOf]:
    """The documents that a finished stage `lost_text` shows, by id."""
    if not made.result["draws"]:
        return []
    rows = parquet.read_table(shown_file(made.folder)).to_pylist()
    found = []
    for name, sentences in groupby(rows, lambda row: row["id"]):
        those = list(sentences)
        lost = [row["text"] for row in those if row["lost"]]
        found.append(LostOf(name, those[0]["representative"], len(those), lost))
    return found


def interval(lost: int, draws: int) -> tuple[float, float]:
    """The exact 95% interval of a share (Clopper and Pearson 1934, Biometrika 26:404); (0, 0) without draws, where
    there is nothing of which it is a share."""
    if not draws:
        return 0.0, 0.0
    ends = binomtest(lost, draws).proportion_ci(LEVEL, "exact")
    return float(ends.low), float(ends.high)
