"""What a run's page counts over all documents, by source, language, length and encoding; and its plots."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup
from wrapt import lazy_import

from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer, bar
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.tables import short
from gristmill.flows.reports.whatif import (
    Decisions,
    arriving_documents,
    decisions_of,
    exempt_from,
    inputs_of,
)
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stats.distributions import Distribution
from gristmill.storage import parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.step import Bound, Clause, Decision, Member
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.models.classifiers import calibration
from gristmill.tasks.models.quality import CROSS_FITTED

if TYPE_CHECKING:
    from sklearn import metrics
else:
    metrics = lazy_import("sklearn.metrics")


_LISTED = 6  # languages, and values, of a rule in words


@dataclass
class Judged:
    """A rule with a threshold, over the documents that reached its step.

    `arrived`: so many; `nulls`: of them without a value; `beyond`: those that fail the rule, whatever other rules say
    of them; `unit`: of the signal, if it is known; `kind`: of its column; `values`: of those that pass, then of
    those that fail.
    """

    step: str
    rule: Bound | Member
    unit: str = ""
    kind: pa.DataType = pa.null()
    arrived: int = 0
    nulls: int = 0
    beyond: int = 0
    values: tuple[Distribution, Distribution] = field(default_factory=lambda: (Distribution(), Distribution()))

    @property
    def is_text(self) -> bool:
        return isinstance(self.rule, Member) or pa.types.is_boolean(self.kind)

    @property
    def ends(self) -> list[float]:
        """The thresholds for documents of all languages but those of `languages`."""
        assert isinstance(self.rule, Bound)
        return [end for end in (self.rule.low, self.rule.high) if end is not None]

    @property
    def language_ends(self) -> list[float]:
        """The different thresholds of single languages."""
        assert isinstance(self.rule, Bound)
        return sorted({end for ends in self.rule.languages.values() for end in ends if end is not None})

    @property
    def keeps(self) -> str:
        """What the rule keeps, in words."""
        if isinstance(self.rule, Member):
            words = (("one of", self.rule.allowed), ("none of", self.rule.excluded))
            return " and ".join(f"{word} {_listed(values)}" for word, values in words if values is not None)
        own = _between(self.rule.low, self.rule.high)
        by_language = [f"{name} {_between(*ends)}" for name, ends in sorted(self.rule.languages.items())]
        return "; ".join([*([own] if own else []), *([_listed(by_language)] if by_language else [])])

    def most(self, n: int) -> list[tuple[tuple[str, bool], int]]:
        """The `n` most frequent values, and whether they fail, with their documents."""
        sides = zip((False, True), self.values, strict=True)
        counts = [((value, fails), count) for fails, side in sides for value, count in side.most_common(n)]
        return sorted(counts, key=lambda it: (-it[1], it[0]))[:n]

    def rows(self, n: int) -> list[tuple[str, int, Markup | None]]:
        """The `n` most frequent values in a table, each with a bar, and the others together."""
        found: list[tuple[str, int, Markup | None]] = [
            (short(value, 40), number, bar(number, self.arrived, fails)) for (value, fails), number in self.most(n)
        ]
        return found + ([("rarer ones", rarer, None)] if (rarer := self.rarer(n)) else [])

    def rarer(self, n: int) -> int:
        """Documents with other values than these."""
        return self.arrived - self.nulls - sum(count for _, count in self.most(n))

    def add(self, column: pa.ChunkedArray, fails: np.ndarray) -> None:
        """Count some documents: their values, and which of them fail the rule, bool (n,)."""
        self.kind = column.type
        self.arrived += len(column)
        self.nulls += column.null_count
        self.beyond += int(np.count_nonzero(fails))
        self.values[0].add(column.filter(pa.array(~fails)))
        self.values[1].add(column.filter(pa.array(fails)))


def judged(corpus: Corpus) -> dict[str, list[Judged]]:
    """The rules with a threshold, by step and in order, of learned filters and of document steps after the extraction.
    Steps that decide during the extraction, or compare documents, store no signal."""
    found: dict[str, list[Judged]] = {}
    for stage in corpus.stages:
        if (decisions := decisions_of(stage)) is not None:
            rules = {step: _thresholds(step, those) for step, those in decisions}
            found |= {step: those for step, those in rules.items() if those}
            for table, reached, units in _reached(corpus, stage, decisions):
                for one in rules[reached]:
                    one.unit = units.get(one.rule.signal, "")
                    _add(one, table)
    return found


def _thresholds(step: str, rules: Sequence[Decision]) -> list[Judged]:
    """The rules on one signal; of an expression, pages show only what it drops."""
    return [Judged(step, rule) for rule in rules if not isinstance(rule, Clause) and _binds(rule)]


def _binds(rule: Bound | Member) -> bool:
    if isinstance(rule, Member):
        return rule.allowed is not None or rule.excluded is not None
    return any(end is not None for ends in ((rule.low, rule.high), *rule.languages.values()) for end in ends)


def _reached(
    corpus: Corpus, stage: StageResult, decisions: Decisions
) -> Iterator[tuple[pa.Table, str, dict[str, str]]]:
    """Of each shard and step the documents that reached the step, with the columns of all decisions; the step; and the
    units of columns. Without documents of sources that the step does not apply to."""
    kept, measured = inputs_of(corpus, stage, decisions)
    exempt = exempt_from(stage)
    reference = stage.manifest["record"].get("reference", ())
    for shard, source in enumerate(corpus.sources):
        table = arriving_documents(kept, measured, shard, decisions)
        units = {each.name: _unit(each) for one in measured for each in parquet.schema(one.part(shard))}
        for step, rules in decisions:
            if source not in exempt.get(step, ()):
                yield table, step, units
                [(_, gone)] = decide(table, [(step, rules)])
                table = table.filter(pc.invert(pc.is_in(table["id"], gone["id"].combine_chunks())))
            elif source in reference:
                yield table, step, units


def _unit(column: pa.Field) -> str:
    return (column.metadata or {}).get(b"unit", b"").decode()


def _add(one: Judged, table: pa.Table) -> None:
    """Count the documents of a shard. Those of a filter's reference have no score, and are not judged."""
    column = table[one.rule.signal]
    fails = np.zeros(len(table), bool)
    if column.null_count < len(table):
        [(_, gone)] = decide(table, [(one.step, (one.rule,))])
        fails = np.asarray(pc.is_in(table["id"], gone["id"].combine_chunks()))
    one.add(column, fails)


def _between(low: float | None, high: float | None) -> str:
    if low == high and low is not None:
        return written(low)
    ends = (("at least", low), ("at most", high))
    return ", ".join(f"{word} {written(end)}" for word, end in ends if end is not None)


def written(value: float) -> str:
    """A threshold, to six digits."""
    return f"{value:,.6g}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    shown = ", ".join(names[:_LISTED]) or "nothing"
    return f"{shown} and {more:,} more" if more > 0 else shown


# ten bins a decade, from one character to a hundred million; longer texts are in the last
EDGES = np.logspace(0, 8, 81)


@dataclass
class Both:
    """Documents and their characters, that arrived and that are kept."""

    arrived: int = 0
    kept: int = 0
    characters_arrived: int = 0
    characters_kept: int = 0

    def add(self, arrived: int, kept: int, characters_arrived: int = 0, characters_kept: int = 0) -> None:
        self.arrived += arrived
        self.kept += kept
        self.characters_arrived += characters_arrived
        self.characters_kept += characters_kept


@dataclass
class Counts:
    """`languages`: empty where none were identified; `lengths_arrived`, `lengths_kept`: documents by the bins of EDGES,
    int64 (80,); `encodings`: documents by the encoding of their records."""

    sources: dict[str, Both] = field(default_factory=dict)
    languages: dict[str, Both] = field(default_factory=dict)
    encodings: Counter[str] = field(default_factory=Counter)
    lengths_arrived: np.ndarray = field(default_factory=lambda: np.zeros(len(EDGES) - 1, np.int64))
    lengths_kept: np.ndarray = field(default_factory=lambda: np.zeros(len(EDGES) - 1, np.int64))


def count(corpus: Corpus) -> Counts:
    """Reads the ids, lengths, encodings and languages of all documents, a shard at a time, and no text."""
    extracted = corpus.extracted
    counts = Counts()
    places = corpus.places
    for number, source in enumerate(places.sources):
        there = [name for name in ("characters", "charset") if name in parquet.columns(extracted.part(number))]
        table = parquet.read_table(extracted.part(number), ["id", *there])
        arrived = table["characters"].to_numpy()
        if "charset" in there:
            counts.encodings.update(_tally(table["charset"]))
        kept = parquet.read_table(places.kept[number], ["id", "characters"])
        lengths = kept["characters"].to_numpy()
        both = counts.sources.setdefault(source, Both())
        both.add(len(arrived), len(lengths), int(arrived.sum()), int(lengths.sum()))
        counts.lengths_arrived += _binned(arrived)
        counts.lengths_kept += _binned(lengths)
        having = [part for part in (extracted.part(number), *places.signals[number]) if _identified(part)]
        if having:
            table = parquet.read_table(having[-1], ["id", "language"])
            here = _tally(table["language"])
            stays = _tally(table.filter(pc.is_in(table["id"], kept["id"].combine_chunks()))["language"])
            for language, documents in here.items():
                counts.languages.setdefault(language, Both()).add(documents, stays.get(language, 0))
    return counts


def _identified(part: str) -> bool:
    return "language" in parquet.columns(part)


def _binned(lengths: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(lengths, EDGES[0], EDGES[-1]), EDGES)[0]


def _tally(values: pa.ChunkedArray) -> dict[str, int]:
    found = values.value_counts()
    return {one["values"] or "none": one["counts"] for one in found.to_pylist()}


def lengths(counts: Counts) -> Markup:
    """How many documents have each length, extracted and kept."""
    there = np.flatnonzero(counts.lengths_arrived)
    first, last = (there[0], there[-1] + 1) if there.size else (0, len(EDGES) - 1)
    arrived, kept = counts.lengths_arrived[first:last], counts.lengths_kept[first:last]
    series = [("arrived", np.zeros_like(arrived), arrived), ("kept", np.zeros_like(kept), kept)]
    return charts.histogram(EDGES[first : last + 1], series, [], "characters per document", True)


_FEW = 6  # thresholds of languages that are drawn


def signal(one: Judged) -> Markup:
    """How many documents have each value of a rule's signal, those that fail it apart, and its thresholds."""
    marks = [(end, "language") for end in one.language_ends if len(one.language_ends) <= _FEW]
    marks += [(end, "cut") for end in one.ends]
    every = Distribution()
    for each in one.values:
        every.join(each)
    edges, logarithmic = charts.bins(every, one.ends or one.language_ends, pa.types.is_integer(one.kind))
    label = f"{one.rule.signal}{f', {one.unit}' if one.unit else ''}"
    fails = one.values[1].histogram(edges)
    series = [("part", fails, every.histogram(edges)), ("fails", np.zeros_like(fails), fails)]
    return charts.histogram(edges, series, marks, label, logarithmic)


def losses(report: Run) -> Markup:
    """Training and held-out loss over steps, and the loss of the unigram model."""
    lines = report.metrics
    held_out = [(line["step"], line["heldout/loss"]) for line in lines if "heldout/loss" in line]
    steps, values = np.array(held_out, np.float64).reshape(-1, 2).T
    unigram = [report.result["unigram/loss"]] * 2
    return charts.plot(
        "training and held-out loss by step",
        Axis("step"),
        Axis("loss, nats per token"),
        Layer("line", [line["step"] for line in lines], report.training_losses, "light", "training batch"),
        Layer("line", steps, values, "part", "held-out documents"),
        Layer("points", steps, values, "part"),
        Layer("dotted", [-np.inf, np.inf], unigram, "cut", "unigram model, held-out documents"),
    )


def funnel(report: Run) -> Markup:
    """The documents after each step, for a file of its own."""
    rows = [("arrived", report.steps[0].documents_in), *((row.name, row.documents_out) for row in report.steps)]
    return charts.bars("documents after each step", [(name, number, f"{number:,}") for name, number in rows])


_POINTS = 500  # drawn of a curve


def curves(good: np.ndarray, scores: np.ndarray) -> tuple[Markup, Markup]:
    """Precision over recall, and the share of good documents over the score. `good`: bool (n,); `scores`: float64
    (n,)."""
    precision, recall, _ = metrics.precision_recall_curve(good, scores, drop_intermediate=True)
    some = np.unique(np.linspace(0, len(recall) - 1, _POINTS).astype(np.int64))
    chance = [float(np.mean(good))] * 2
    separation = charts.plot(
        "precision by recall",
        Axis("recall", show=(0, 1)),
        Axis("precision", show=(0, 1)),
        Layer("dotted", [0, 1], chance, "soft", "by chance: the share of good documents"),
        Layer("line", recall[some], precision[some]),
    )
    _, mean, share = calibration(good, scores)
    meaning = charts.plot(
        "share of good documents by score",
        Axis("score", show=(0, 1)),
        Axis("share of good documents", show=(0, 1)),
        Layer("dotted", [0, 1], [0, 1], "soft", "as claimed"),
        Layer("line", mean, share),
        Layer("points", mean, share),
    )
    return separation, meaning


def curves_file(good: np.ndarray, scores: np.ndarray) -> bytes:
    """Both beside each other as an SVG file."""
    return charts.beside("precision by recall; share of good documents by score", *curves(good, scores)).encode()


def confusion_file(measured: Mapping[str, Any]) -> bytes:
    """Of each label the share of its documents that were given each label, and its F1, as an SVG file. `measured`: as
    `gristmill.tasks.models.classifiers.label_measures` gives it."""
    labels = list(measured["by_label"])
    counts = np.asarray(measured["confusion"], np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    given = charts.matrix("number of labels by label", labels, shares)
    f1 = [(name, each["f1"], f"{each['f1']:.3f}") for name, each in measured["by_label"].items()]
    return charts.beside("number of labels, and F1, by label", given, charts.bars("F1 by label", f1)).encode()


def trained_classifier(corpus: Corpus) -> StageResult | None:
    """The stage in which a corpus has trained its classifier, if it has."""
    return next((stage for stage in corpus.stages if stage.name == "quality_model"), None)


def cross_fitted(model: StageResult) -> tuple[np.ndarray, np.ndarray]:
    """`good` and `scores` of the examples of a stage `quality_model`, each by the model that has not seen it."""
    table = parquet.read_table(model.file(CROSS_FITTED).path)
    return table["good"].to_numpy(), table["score"].to_numpy()
