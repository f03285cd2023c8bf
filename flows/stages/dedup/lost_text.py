"""Unique text lost by a step of deduplication: the stage `lost_text`, made where a report asks for it.

measure    every shard
draw       every shard of which characters are drawn
together   once
seek       every shard of what is kept, of earlier crawls, too
estimate   once
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from gristmill.flows.machine.context import RunContext
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.flows.stages.dedup.earlier_crawls import EarlierCrawl
from gristmill.storage import layout
from gristmill.tasks.dedup.lost_text import draw_shard, drawn_shards, estimate, measure_shard, put_together, seek_shard
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import FinishedInput, StageSpec


class Drawing(Settings):
    """How many characters are drawn, and of how many of them the documents are shown. With 2,000 the interval reaches
    no further than 2.3 percent points to either side."""

    draws: int = Field(2_000, ge=1)
    shown: int = Field(20, ge=0)
    seed: int = Field(1, ge=0)


USUAL = Drawing()


@dataclass(frozen=True)
class LostTextPlaces:
    """The documents that reached the step, those that left it, and the earlier crawls whose documents stay, too."""

    arriving: CorpusPlaces
    left: CorpusPlaces
    ledgers: str
    earlier: tuple[EarlierCrawl, ...]


def lost_text(
    context: RunContext,
    arriving: Corpus,
    left: Corpus,
    earlier: Sequence[EarlierCrawl] = (),
    drawing: Drawing = USUAL,
) -> StageResult:
    """The unique text lost between two places of a recipe: what `result` has is in docs/deduplication.md."""
    inputs: dict[str, FinishedInput | str] = {}
    inputs |= {"arriving documents": arriving.documents, "arriving": arriving.kept}
    inputs |= {"left documents": left.documents, "left": left.kept}
    inputs |= {f"earlier {number}": crawl for number, crawl in enumerate(earlier)}
    spec = StageSpec(
        name="lost_text",
        version=1,
        body=_lost,
        record=drawing,
        inputs=inputs,
        places=LostTextPlaces(arriving.places, left.places, left.kept.folder, tuple(earlier)),
    )
    return context.build(spec)


def _lost(phases: PhaseRunner, record: Drawing, places: LostTextPlaces) -> dict:
    """Estimate the unique text lost."""
    shards, folder = places.arriving.shards(), places.ledgers

    def ledger(i: int) -> dict[str, str]:
        return {"arriving": places.arriving.kept[i], "ledger": layout.ledger_part(folder, i)}

    measured = phases.map("measure", measure_shard, Each(shards, ledger))
    found = {
        name: sum(counts[name] for counts in measured.values())
        for name in ("documents", "characters", "arriving_characters")
    }
    if not found["characters"]:
        return found | {"draws": 0, "lost": 0}
    characters = np.array([measured[i]["characters"] for i in shards])
    draws, shown = (each.tolist() for each in drawn_shards(characters, record.draws, record.shown, record.seed))
    drawn_of = {
        i: ledger(i) | {"documents": places.arriving.documents[i], "draws": n, "shown": m, "seed": record.seed}
        for i, n, m in zip(shards, draws, shown, strict=True)
        if n
    }
    phases.map("draw", draw_shard, drawn_of)
    phases.once("together", put_together, {})
    own = len(places.left.sources)
    earlier = [shard for number, crawl in enumerate(places.earlier) for shard in crawl.shards(number)]

    def kept(i: int) -> dict[str, str]:
        if i < own:
            return places.left.shard(i)
        return {"documents": earlier[i - own].documents, "kept": earlier[i - own].kept}

    phases.map("seek", seek_shard, Each(range(own + len(earlier)), kept))
    lost = phases.once("estimate", estimate, {"sought": own + len(earlier)}, grows="documents")
    return found | {"draws": record.draws, "lost": lost["lost"]}
