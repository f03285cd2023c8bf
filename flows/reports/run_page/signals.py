"""The signals by which steps decided: how each is distributed over the documents that reached the step, and its rule.

The parts with signals are read once, a shard at a time. Numbers are counted by their first eleven binary digits, so
that few are different, however many documents there are; values of text as they are, the most common 10,000 of them.
Counts are added up: how documents are divided among shards changes none, unless there are more different texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from gristmill.flows.reports.pages.charts import bar
from gristmill.flows.reports.run.decisions import (
    Decisions,
    arriving_documents,
    decisions_of,
    exempt_from,
    inputs_of,
)
from gristmill.flows.reports.tables import short
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stats.distributions import Distribution
from gristmill.storage import parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.step import Bound, Clause, Decision, Member
from gristmill.tasks.engine.make import StageResult

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
    """The rules with a threshold, by step, in the order of the steps and of the rules: of document steps behind the
    extraction, and of learned filters. What decides while documents are made, or compares documents, stores no signal.
    """
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
    """Those on one signal: an expression is shown by what it drops alone."""
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
