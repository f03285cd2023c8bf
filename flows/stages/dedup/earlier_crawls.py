"""Earlier crawls that near-duplicates are compared with, and the unique text that a step lost.

The kept documents of earlier crawls, which the step `minhash` lists, come before the documents of this crawl. Crawls
can be compared if their signatures, bands and order have equal settings, and equal versions of these three stages.

The stage `lost_text` estimates the unique text that a step of deduplication lost. It is made when a report needs it:

    measure    every shard
    draw       every shard with sampled characters
    together   once
    seek       every shard of kept documents, including earlier crawls
    estimate   once
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from gristmill.flows.machine.context import RunContext
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.storage import files, layout
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.dedup.lost_text import draw_shard, drawn_shards, estimate, measure_shard, put_together, seek_shard
from gristmill.tasks.dedup.near.documents import EarlierShard
from gristmill.tasks.dedup.near.label import kept_file
from gristmill.tasks.dedup.near.settings import Banding, MinHash, Shingling, Verifying
from gristmill.tasks.dedup.near.sign import Index, found_again
from gristmill.tasks.dedup.order import KeepOrder
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import FinishedInput, StageSpec

# Versions of the stages `signatures`, `candidates` and `near_duplicates`.
SIGNING = 1
BANDING = 1
ORDERING = 1


@dataclass(frozen=True)
class EarlierCrawl:
    """The near-duplicate removal of a crawl: its label and the digest of its contents, folders of its stages, its
    partitions of the band hashes, and how many documents each of its shards had."""

    label: str
    contents: str
    folder: str
    documents: str
    signatures: str
    candidates: str
    partitions: int
    rows: tuple[int, ...]

    @property
    def index(self) -> Index:
        """Its band hashes."""
        return Index(self.candidates, self.partitions)

    def shards(self, number: int) -> list[EarlierShard]:
        """Its shards, as those of crawl `number`."""
        return [
            EarlierShard(
                crawl=number,
                shard=shard,
                rows=rows,
                documents=layout.part(self.documents, shard),
                signatures=layout.part(self.signatures, shard),
                kept=kept_file(self.folder, shard),
            )
            for shard, rows in enumerate(self.rows)
        ]


def crawl_of(folder: str, manifest: Mapping[str, Any]) -> EarlierCrawl:
    """The crawl of a finished stage `near_duplicates`. Its other stages are in the same folder, even in a moved
    home."""
    layout_of = manifest["result"]["inputs_layout"]
    home, _, label = folder.rstrip("/").rpartition("/")
    rows = [part.record["rows_in"] for part in layout.parts(folder, manifest) if part.counts_documents]
    names = ("documents", "signatures", "candidates")
    folders = {name: files.join(home, manifest["read"][name]) for name in names}
    partitions, contents = layout_of["partitions"], layout.contents(manifest)
    return EarlierCrawl(label, contents, folder, **folders, partitions=partitions, rows=tuple(rows))


def earlier_crawls(step: MinHash) -> list[EarlierCrawl]:
    """The earlier crawls of a step. Raises ValueError unless each was made with the same settings and all before it."""
    crawls: list[EarlierCrawl] = []
    for folder in step.earlier:
        try:
            manifest = layout.manifest(folder)
        except layout.ManifestError as error:
            raise ValueError(f"`earlier` names {folder}, which cannot be used: {error}") from error
        if manifest is None or "inputs_layout" not in manifest["result"]:
            raise ValueError(f"`earlier` names {folder}, which is not a finished stage `near_duplicates`")
        _check_chain(folder, manifest, crawls)
        _check_versions(folder, manifest)
        _check_settings(folder, manifest["record"], step)
        crawl = crawl_of(folder, manifest)
        _check_readable(crawl, len(crawls), step)
        crawls.append(crawl)
    return crawls


def _check_chain(folder: str, manifest: Mapping[str, Any], before: list[EarlierCrawl]) -> None:
    """Raise ValueError for a crawl that was made with other earlier crawls than the ones listed before it."""
    theirs, ours = manifest["result"]["inputs_layout"]["earlier"], [crawl.contents for crawl in before]
    if theirs != ours:
        labels = [label for name, label in manifest["read"].items() if name.startswith("earlier ")]
        raise ValueError(
            f"`earlier` names {folder}, which was built with {labels or theirs or 'nothing'} as its own "
            f"`earlier`, but here {[crawl.label for crawl in before] or 'nothing'} comes before it: list all "
            "earlier crawls, oldest first, each built with those before it"
        )


def _check_versions(folder: str, manifest: Mapping[str, Any]) -> None:
    """Raise ValueError for a crawl whose signatures, bands or order are of another version."""
    theirs = {name: manifest["versions"][name] for name in ("signing", "banding")} | {"ordering": manifest["version"]}
    for name, ours in {"signing": SIGNING, "banding": BANDING, "ordering": ORDERING}.items():
        if theirs[name] != ours:
            raise ValueError(
                f"`earlier` names {folder}, built with version {theirs[name]} of {name}, but here it is "
                f"version {ours}: run the recipe of that crawl again"
            )


def _check_settings(folder: str, record: Mapping[str, Any], step: MinHash) -> None:
    """Raise ValueError for a different setting that must be equal, so the result equals one run over both crawls."""
    kinds: dict[str, type[Settings]] = {
        "shingling": Shingling,
        "banding": Banding,
        "order": KeepOrder,
        "verifying": Verifying,
    }
    for part, kind in kinds.items():
        for name, value in step.part(kind).model_dump(mode="json").items():
            if (theirs := record[part][name]) != value:
                theirs, ours = ("null" if setting is None else setting for setting in (theirs, value))
                raise ValueError(f"`earlier` names {folder}, whose `{name}` is {theirs}, but here it is {ours}")


def _check_readable(crawl: EarlierCrawl, number: int, step: MinHash) -> None:
    """Raise ValueError if files of an earlier crawl are missing, damaged, or of another version of the code."""
    shards = crawl.shards(number)
    if shards and not files.exists(shards[0].kept):
        raise ValueError(
            f"`earlier` names {crawl.folder}, which has no {shards[0].kept}: it was removed, or an older "
            "version built the stage; run the recipe of that crawl again"
        )
    try:
        finished = layout.manifest(crawl.signatures) is not None
    except layout.ManifestError as error:
        raise ValueError(f"`earlier` names {crawl.folder}, which cannot be used: {error}") from error
    if not finished:
        raise ValueError(
            f"`earlier` names {crawl.folder}, whose {crawl.signatures} is not a finished stage: run the recipe of that "
            "crawl again"
        )
    try:
        again = found_again(shards, crawl.index, step.part(Shingling), step.part(Banding))
    except DamagedFileError as error:
        raise ValueError(f"`earlier` names {crawl.folder}, which cannot be used: {error}") from error
    if not again:
        raise ValueError(
            f"`earlier` names {crawl.folder}, whose signatures differ from those that this version computes "
            "for the same texts: run the recipe of that crawl again, or install the version that built it"
        )


class Drawing(Settings):
    """The number of sampled characters, and of examples to show. With 2,000 characters the half width of the interval
    is at most 2.3 percentage points."""

    draws: int = Field(2_000, ge=1)
    shown: int = Field(20, ge=0)
    seed: int = Field(1, ge=0)


USUAL = Drawing()


@dataclass(frozen=True)
class LostTextPlaces:
    """The documents before and after the step, and the earlier crawls whose documents are also kept."""

    arriving: CorpusPlaces
    left: CorpusPlaces
    ledgers: str
    earlier: tuple[EarlierCrawl, ...]


def lost_text(
    context: RunContext,
    arriving: Corpus,
    remaining: Corpus,
    earlier: Sequence[EarlierCrawl] = (),
    drawing: Drawing = USUAL,
) -> StageResult:
    """The unique text lost between two points of a recipe. docs/explanation/deduplication.md describes `result`."""
    inputs: dict[str, FinishedInput | str] = {}
    inputs |= {"arriving documents": arriving.documents, "arriving": arriving.kept}
    inputs |= {"left documents": remaining.documents, "left": remaining.kept}
    inputs |= {f"earlier {number}": crawl for number, crawl in enumerate(earlier)}
    spec = StageSpec(
        name="lost_text",
        version=1,
        body=_lost,
        record=drawing,
        inputs=inputs,
        places=LostTextPlaces(arriving.places, remaining.places, remaining.kept.folder, tuple(earlier)),
    )
    return context.build(spec)


def _lost(phases: PhaseRunner, record: Drawing, places: LostTextPlaces) -> dict:
    """Estimate the unique text lost."""
    shards, folder = places.arriving.shards(), places.ledgers

    def ledger(i: int) -> dict[str, str]:
        return {"arriving": places.arriving.kept[i], "ledger": layout.ledger_part(folder, i)}

    measured = phases.map("measure", measure_shard, Each(shards, ledger))
    fields = {
        name: sum(counts[name] for counts in measured.values())
        for name in ("documents", "characters", "arriving_characters")
    }
    if not fields["characters"]:
        return fields | {"draws": 0, "lost": 0}
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
    return fields | {"draws": record.draws, "lost": lost["lost"]}
