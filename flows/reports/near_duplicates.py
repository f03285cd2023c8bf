"""The dedup report: what near-duplicate removal did in a finished run, on one HTML page that needs no server.

It is in the home next to the stages, `<home>/reports/near_duplicates-<key>.html`, and not in the stage's folder: a
finished stage does not change, while other code may write the page again.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow.compute as pc
from markupsafe import Markup
from scipy.stats import binomtest

from gristmill.flows.curation import Passed, curate
from gristmill.flows.machine.context import RunContext, job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import marking, pages
from gristmill.flows.reports.pages.charts import Axis, Layer, bar, plot
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.tables import short, span
from gristmill.flows.stages.dedup.earlier_crawls import crawl_of, earlier_crawls, lost_text
from gristmill.storage import parquet, token_shards
from gristmill.storage.home import FinishedStage, open_stage
from gristmill.storage.printable import redact_user
from gristmill.tasks.dedup.exact import Exact
from gristmill.tasks.dedup.lost_text import shown_file
from gristmill.tasks.dedup.near import recall
from gristmill.tasks.dedup.near.documents import SHARDS, Location, shard_of
from gristmill.tasks.dedup.near.documents import crawl_of as crawl_number
from gristmill.tasks.dedup.near.recall import Bin, Clusters
from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from gristmill.tasks.dedup.near.verify import decided_files
from gristmill.tasks.engine import options
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import StageResult, find_or_make
from gristmill.tasks.engine.phases import Silent


def sizes(clusters: Clusters) -> Markup:
    """How many clusters have each size, on logarithmic axes."""
    points = Layer("points", clusters.sizes, clusters.counts)
    x, y = Axis("documents of a cluster", log=True, show=(1,)), Axis("clusters", log=True, show=(1,))
    return plot("number of clusters by size", x, y, points)


def recall_plot(bins: Sequence[Bin], settings: MinHash) -> Markup:
    """Measured shares with their intervals, and what the S-curve expects of the same pairs."""
    curve, middle = np.linspace(0, 1, 201), [one.jaccard for one in bins]
    layers = [
        Layer("line", curve, s_curve(settings.bands, settings.rows, curve), "soft",
              f"1 - (1 - J^{settings.rows})^{settings.bands}"),
        Layer("points", middle, [one.measured for one in bins], "part", "measured, 95% interval",
              [one.least for one in bins], [one.most for one in bins]),
        Layer("points", middle, [one.expected for one in bins], "cut", "expected for the same pairs"),
    ]  # fmt: skip
    if settings.threshold is not None:
        layers.append(Layer("dotted", [settings.threshold] * 2, [-np.inf, np.inf], "soft", "threshold"))
    label = "share of pairs that share a band, by similarity"
    y = Axis("pairs that share a band", show=(0, 1), form=".0%")
    return plot(label, Axis("Jaccard similarity J", show=(0, 1)), y, *layers)


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
    """A dropped document, the kept one that represents it, how many of its `sentences` are shown, and the lost ones."""

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


_LARGEST = 20  # clusters that are listed
_EACH = 20  # pairs shown of a decile
_CHARACTERS = 20_000  # of a text are read
_PER_TOKEN = 4.0  # characters, where a run has no tokens: about what byte-level BPE has on English


def write(recipe: Any, settings: MachineSettings | None = None) -> str:
    """Write the page of a recipe's finished near-duplicate removal and return its path; the same stage, the same bytes.

    Looks stages up (later ones may be missing) and makes `lost_text` in this process, one pass over the kept texts for
    each step that drops duplicates. Raises ValueError if the recipe has no step `minhash`, and NotFinishedError with
    the fix. For memory see
    `gristmill.tasks.dedup.near.recall.holdout_pairs`.
    """
    recipe = load(recipe)
    if not any(isinstance(step, MinHash) for step in recipe.steps):
        raise ValueError(f"the recipe {recipe.name} has no step `minhash`, so there is nothing to report")
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    context, recipe = open_run(settings, recipe)
    way = []
    for passed in curate(context, recipe):
        way.append(passed)
        if any(isinstance(step, MinHash) for step in passed.steps):
            break
    [step], kept = way[-1].steps, way[-1].left.kept
    build = partial(
        find_or_make, settings.home, executor=Threads(1, SimpleQueue()), progress=lambda: nullcontext(Silent())
    )
    lost = tuple(lost_by(RunContext(settings, build), way))
    written = page(Removal(recipe.name, context.placed(step), kept, lost))
    return pages.write(settings.home, f"{kept.name}-{kept.key}.html", written)


@dataclass(frozen=True)
class Removal:
    """A finished stage `near_duplicates` of a recipe, the step that it is of, and what steps lost."""

    recipe: str
    step: MinHash
    kept: StageResult
    lost: Sequence[LostBy] = ()


@dataclass(frozen=True)
class Cluster:
    """A cluster: how many `documents`, the representative, and how many `tokens` that has: as it is trained on, or
    estimated from its characters."""

    documents: int
    representative: recall.Document
    tokens: int
    estimated: bool


@dataclass(frozen=True)
class Overview:
    """`plot`: of sizes; `largest`: clusters; `characters_per_token`: of the estimates; `pairs`: the least similar
    first, each with what differs."""

    clusters: recall.Clusters
    plot: Markup
    largest: list[Cluster]
    characters_per_token: float
    pairs: list[dict[str, Any]]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """A row for each of the largest."""
        for one in self.largest:
            document, tokens = one.representative, f"{'~' * one.estimated}{one.tokens:,}"
            about = short(document.title), (document.date or "")[:10], short(document.source, 60), tokens
            yield one.documents, *about, f"{short(redact_user(document.url or ''))} {short(document.id)}"


def overview(
    step: MinHash,
    kept: StageResult,
    pairs: int,
    tokens: StageResult | None = None,
    characters_per_token: float | None = None,
) -> Overview:
    """The clusters of a finished stage `near_duplicates`, and of each decile of similarity up to so many `pairs` that
    were dropped. `tokens`: the stage of the run with the token shards, if there is one."""
    crawl, clusters = _clusters(step, kept, pairs)
    none = recall.Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    examples = recall.examples(crawl, clusters.dropped, none, pairs, _CHARACTERS)
    shown = [_compared(one) for some in examples for one in some]
    per_token = characters_per_token or _PER_TOKEN
    return Overview(clusters, sizes(clusters), _largest(crawl, clusters, per_token, tokens), per_token, shown)


def page(removal: Removal) -> str:
    """The page."""
    step, kept = removal.step, removal.kept
    stage = open_stage(kept.folder)
    crawl, clusters = _clusters(step, kept, _EACH)
    held_out = recall.holdout_pairs(crawl)
    below, in_decile = recall.below_threshold(crawl, held_out.pairs, held_out.group, _EACH)
    examples = recall.examples(crawl, clusters.dropped, below, _EACH, _CHARACTERS)
    bins = recall.curve(held_out, step)
    [counts] = stage.step_counts or [{"rows_in": 0, "rows_out": 0, "drops": {}}]
    curve = [
        (f"{jaccard:.2f}", s_curve(step.bands, step.rows, jaccard)) for jaccard in (np.arange(1, 20) / 20).tolist()
    ]
    settings = step.model_dump(mode="json").items()
    return pages.render(
        "dedup.html",
        removal=removal,
        stage=stage.label,
        arriving=counts["rows_in"],
        staying=counts["rows_out"],
        dropped=counts["drops"].get("near_duplicate", 0),
        counts=list(_counted(counts, clusters.documents, None if step.threshold is None else stage, step)),
        s_curve=[("J", *(f"#{name}" for name, _ in curve)), ("share a band", *(f"{share:.2%}" for _, share in curve))],
        all_settings=[(name, "null" if value is None else str(value)) for name, value in settings],
        lost=removal.lost,
        lost_rows=list(map(_lost_row, removal.lost)),
        overview=Overview(clusters, sizes(clusters), _largest(crawl, clusters, _PER_TOKEN), _PER_TOKEN, []),
        held_out=held_out,
        bins=[*_bins(bins)],
        recall=recall_plot(bins, step),
        at_threshold=None if step.threshold is None else s_curve(step.bands, step.rows, step.threshold),
        above=None if step.threshold is None else recall.share_banded(held_out, step, step.threshold),
        deciles=[
            {
                "label": f"{number / 10} to {(number + 1) / 10}" if number < recall.DECILES - 1 else "1 (equal sets)",
                "dropped": int(clusters.in_decile[number]),
                "below": int(in_decile[number]),
                "pairs": [_compared(one) for one in some],
            }
            for number, some in enumerate(examples)
        ],
    )


def _counted(
    counts: dict[str, Any], clustered: int, compared: FinishedStage | None, step: MinHash
) -> Iterator[tuple[str, int, str]]:
    """What became of the documents: rows of name, documents and share. `compared`: the stage, where documents were."""
    arriving, drops = counts["rows_in"], counts["drops"]
    yield "documents that reached the step", arriving, ""
    for name, number in (
        ("dropped as near-duplicates", drops.get("near_duplicate", 0)),
        *([("dropped as taken down", drops["takedown"])] if drops.get("takedown") else []),
        ("documents kept", counts["rows_out"]),
        ("documents in clusters: dropped, or kept with others dropped for them", clustered),
    ):
        yield name, number, pages.share(number, arriving)
    if compared is not None:
        more = f"share bands with more kept documents than the {step.comparisons:,} that they were compared with"
        yield (
            f"kept, similar to none of these, but {more} (left_out)",
            compared.result["left_out"],
            "",
        )


def _lost_row(by: LostBy) -> tuple[Any, ...]:
    lost, (share, least, most) = by.figure, by.figure.of_corpus
    own = lost.documents, lost.draws, lost.lost, f"{lost.share:.2%}", span(lost.least, lost.most)
    return by.step, *own, f"{share:.3%}", span(least, most, ".3%")


def _bins(bins: Sequence[Bin]) -> Iterator[tuple[Any, ...]]:
    most = max((one.pairs for one in bins), default=1)
    for one in bins:
        difference = f"{round(100 * (one.measured - one.expected), 2) + 0:+.2f}"
        if not one.least <= one.expected <= one.most:
            difference = Markup('<span class="beyond">{}</span>').format(difference)
        measured = f"{one.measured:.2%}", span(one.least, one.most), f"{one.expected:.2%}", difference
        yield f"{one.low:.2f} to {one.high:.2f}", one.pairs, bar(one.pairs, most), one.groups, *measured


def _clusters(step: MinHash, kept: StageResult, each: int) -> tuple[recall.Crawl, recall.Clusters]:
    stage = open_stage(kept.folder)
    crawl = recall.Crawl(*_shards(step, kept), step, _taken_down(stage))
    decided = decided_files(kept.folder, stage.result["partitions"]).paths()
    return crawl, recall.clusters(decided, crawl.number, _LARGEST, each)


def _largest(
    crawl: recall.Crawl, clusters: recall.Clusters, per_token: float, tokens: StageResult | None = None
) -> list[Cluster]:
    docs = clusters.largest["doc"].to_numpy()
    found = recall.documents(crawl, docs, 0)
    known = {} if tokens is None else _tokens(tokens, docs[crawl_number(docs) == crawl.number], found)
    return [
        Cluster(size, found[doc], known.get(doc, round(found[doc].characters / per_token)), doc not in known)
        for size, doc in zip(clusters.largest["cluster_size"].to_pylist(), docs.tolist(), strict=True)
    ]


def _tokens(tokens: StageResult, docs: np.ndarray, documents: dict[int, recall.Document]) -> dict[int, int]:
    """The tokens of those documents of this crawl that are trained on. Holds the index of a token shard."""
    found = {}
    for doc, shard in zip(docs.tolist(), (shard_of(docs) % SHARDS).tolist(), strict=True):
        path = token_shards.bin_path(tokens.folder, "train", shard).removesuffix(".bin") + ".parquet"
        index = parquet.read_table(path, ["id", "length"])
        for length in index.filter(pc.equal(index["id"], documents[doc].id))["length"].to_pylist():
            found[doc] = length
    return found


def _compared(one: recall.Example) -> dict[str, Any]:
    return {"example": one, "sides": marking.side_by_side(one.first.text, one.second.text)}


def _shards(step: MinHash, kept: StageResult) -> tuple[int, tuple[Location, ...]]:
    """The number of this crawl, and where the shards of all crawls are."""
    crawls = [*earlier_crawls(step), crawl_of(kept.folder, kept.manifest)]
    return len(crawls) - 1, tuple(shard for number, crawl in enumerate(crawls) for shard in crawl.shards(number))


def _taken_down(stage: FinishedStage) -> tuple[str, ...]:
    """The ids of the documents that a stage dropped for a takedown list."""
    ledgers = (parquet.read_table(stage.ledger(shard)) for shard in range(len(stage.part_records)))
    return tuple(name for rows in ledgers for name in rows.filter(pc.equal(rows["rule"], "takedown"))["id"].to_pylist())
