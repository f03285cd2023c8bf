"""The dedup report: what near-duplicate removal did in a finished run, on one HTML page that needs no server.

It is in the home beside the stages, `<home>/reports/near_duplicates-<key>.html`, and not in the stage's folder: what is
there was made by the code that the stage's key names, and does not change once it is finished; the page may be written
anew by other code.
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
from matplotlib.axes import Axes
from scipy.stats import binomtest

from gristmill.flows.curation import Passed, curate
from gristmill.flows.machine.context import RunContext, job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import marking, templates
from gristmill.flows.reports.plots.figures import BLUE, GREY, LIGHT, RED, svg
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.stages.dedup.earlier_crawls import crawl_of, earlier_crawls, lost_text
from gristmill.storage import files, parquet, token_shards
from gristmill.storage.home import FinishedStage, open_stage
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

    def draw(axes: Axes) -> None:
        axes.loglog(clusters.sizes, clusters.counts, "o", color=BLUE, markersize=4)
        axes.set_xlabel("documents of a cluster")
        axes.set_ylabel("clusters")
        axes.set_xlim(1, 2 * clusters.sizes.max(initial=5))
        axes.set_ylim(0.5, 2 * clusters.counts.max(initial=5))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.0f}")
            axis.set_minor_formatter("")
        axes.grid(color="#dddddd")

    return svg("sizes", "number of clusters by size", draw)


def recall_plot(bins: Sequence[Bin], settings: MinHash) -> Markup:
    """Measured shares with their intervals, what the S-curve expects of the same pairs, and how many pairs that are."""

    def draw(axes: Axes, counts: Axes) -> None:
        at = np.linspace(0, 1, 401)
        label = f"1 - (1 - J^{settings.rows})^{settings.bands}"
        axes.plot(at, s_curve(settings.bands, settings.rows, at), color=GREY, linewidth=1, label=label)
        middle = [one.jaccard for one in bins]
        ends = [[one.measured - one.least for one in bins], [one.most - one.measured for one in bins]]
        measured = [one.measured for one in bins]
        axes.errorbar(
            middle, measured, ends, fmt="o", color=BLUE, markersize=4, capsize=2, label="measured, 95% interval"
        )
        axes.plot(middle, [one.expected for one in bins], "x", color=RED, label="expected of the same pairs")
        if settings.threshold is not None:
            axes.axvline(settings.threshold, color=GREY, linestyle=":", label="threshold")
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.03, 1.03)
        axes.set_ylabel("pairs that share a band")
        axes.grid(color="#dddddd")
        axes.legend(loc="upper left", frameon=False)
        counts.bar(
            [one.low for one in bins],
            [one.pairs for one in bins],
            width=[one.high - one.low for one in bins],
            align="edge",
            color=LIGHT,
            edgecolor="white",
        )
        counts.set_yscale("log")
        counts.set_ylim(0.5)
        counts.yaxis.set_major_formatter("{x:,.0f}")
        counts.set_ylabel("pairs")
        counts.set_xlabel("Jaccard similarity J")

    return svg("recall", "share of pairs that share a band, by similarity", draw, heights=(3, 1))


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


_LARGEST = 20  # clusters that are listed
_EACH = 20  # pairs shown of a decile
_CHARACTERS = 20_000  # of a text are read
_PER_TOKEN = 4.0  # characters, where a run has no tokens: about what byte-level BPE has on English


def write(recipe: Any, settings: MachineSettings | None = None) -> str:
    """Write the page of a recipe's finished near-duplicate removal and return its path; the same stage, the same bytes.

    Looks stages up, those behind the removal need not be there, and makes `lost_text`, one pass over the kept texts for
    each step that drops duplicates, in this process. Raises ValueError if the recipe has no step
    `minhash`, NotFinishedError, which names the remedy. Held: see
    `gristmill.tasks.dedup.near.recall.holdout_pairs`.
    """
    recipe = load(recipe)
    if not any(isinstance(step, MinHash) for step in recipe.steps):
        raise ValueError(f"the recipe {recipe.name} has no step `minhash`: there is nothing to report")
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
    path = files.join(settings.home, "reports", f"{kept.name}-{kept.key}.html")
    files.write_bytes(path, page(recipe.name, context.placed(step), kept, lost).encode())
    return path


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
    """`sizes`: a plot; `largest`: clusters; `characters_per_token`: of the estimates; `pairs`: as `tables.html` shows
    them, the least similar first."""

    clusters: recall.Clusters
    sizes: Markup
    largest: list[Cluster]
    characters_per_token: float
    pairs: list[dict[str, Any]]


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


def page(name: str, step: MinHash, kept: StageResult, lost: Sequence[LostBy] = ()) -> str:
    """The page for a finished stage `near_duplicates` of the recipe `name`; `lost`: what steps lost."""
    stage = open_stage(kept.folder)
    crawl, clusters = _clusters(step, kept, _EACH)
    held_out = recall.holdout_pairs(crawl)
    below, in_decile = recall.below_threshold(crawl, held_out.pairs, held_out.group, _EACH)
    examples = recall.examples(crawl, clusters.dropped, below, _EACH, _CHARACTERS)
    bins = recall.curve(held_out, step)
    [counts] = stage.step_counts or [{"rows_in": 0, "rows_out": 0, "drops": {}}]
    return templates.template("near_duplicates.html").render(
        recipe=name,
        stage=stage.label,
        settings=step,
        arriving=counts["rows_in"],
        staying=counts["rows_out"],
        dropped=counts["drops"].get("near_duplicate", 0),
        taken_down=counts["drops"].get("takedown", 0),
        left_out=stage.result["left_out"],
        s_curve=[(at, s_curve(step.bands, step.rows, at)) for at in (np.arange(1, 20) / 20).tolist()],
        clusters=clusters,
        lost=lost,
        sizes=sizes(clusters),
        largest=_largest(crawl, clusters, _PER_TOKEN),
        characters_per_token=_PER_TOKEN,
        held_out=held_out,
        bins=bins,
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
