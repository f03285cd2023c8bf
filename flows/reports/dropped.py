"""Dropped documents with the text as the rule saw it and its offending parts, and spans that were cut out of texts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from gristmill.flows.recipe.steps import AnyStep
from gristmill.flows.reports.columns import check_names, missing, parts_of_dropped
from gristmill.flows.reports.marking import Marked, Marks, before_edits, marks, spans
from gristmill.storage import parquet
from gristmill.storage.home import FinishedStage, Home
from gristmill.tasks.dedup.takedowns import RULE as TAKEDOWN
from gristmill.tasks.documents.expressions import matching
from gristmill.tasks.documents.selection import read_rows, uniform
from gristmill.tasks.language_model.rewrite import STEP as REWRITE
from gristmill.tasks.language_model.rewrite import answer_about
from gristmill.tasks.rules.rule import RuleStep

_STEP = TypeAdapter(AnyStep)
_SEED = 1


@dataclass(frozen=True)
class Dropped:
    """A document that a stage dropped.

    `row`: of the stage's ledger, with source and URL of the document; `text`: as it reached the step, None if there was
    none; `marks`: its offending parts; `unmarked`: why the step could not check the text again, or empty; `remark`: an
    explanation if the marks are not what the rule counts, or if there are none; `answer`: the text that a language
    model wrote from the document, and that was dropped.
    """

    stage: str
    row: dict[str, Any]
    text: str | None = None
    marks: Marks = ()
    unmarked: str = ""
    remark: str = ""
    answer: str = ""


class Edit(NamedTuple):
    """A row of EDITS and its stage."""

    stage: str
    row: dict[str, Any]


def dropped(home: str, stage: str, rule: str, n: int, where: str = "") -> Iterator[Dropped]:
    """Like `dropped_by`, for the stages of a home; `stage`: a name or a label, `dropped` means all."""
    read = Home(home)
    read.check_readable()
    return dropped_by(read.stages(None if stage == "dropped" else stage), rule, n, where)


def dropped_by(stages: Iterable[FinishedStage], rule: str, n: int, where: str = "") -> Iterator[Dropped]:
    """Up to `n` documents of each stage that a rule dropped.

    `rule`: `step.rule`, or a step, whose name can be abbreviated (`gopher.stop_words`); "": any. `where`: an expression
    over the columns of documents when they reached the stage, and of its ledger. Only documents for which it is true
    are returned, with the columns that it names; stages whose documents do not have these columns are skipped. Holds
    a ledger part with these columns, and the rows of the documents' part to show. Raises LookupError, which lists the
    valid names, and ExpressionError for an invalid expression.
    """
    found = 0
    known: set[str] = set()
    columns: dict[str, None] = {}  # of documents without a column that the expression names
    for each in stages:
        if each.counts_documents:
            for one in islice(_in_stage(each, rule, known, where, columns), n):
                found += 1
                yield one
    if not found:
        if where and columns:
            check_names(where, columns)
        there = ", ".join(sorted(known)) or "none"
        true = f", with {where}" if where else ""
        raise LookupError(f"no document was dropped by {rule or 'any rule'}{true}; rules that dropped some: {there}")


def samples(stage: FinishedStage, sources: Sequence[str], each: int) -> dict[tuple[str, str], list[Dropped]]:
    """Up to `each` documents that every rule of a stage dropped, by (step, rule): a sample by a keyed hash of their
    ids, with one document of each source before a second of any. `sources`: of each shard.

    Reads the ids of all ledgers. Holds the ids of one ledger, and `each` rows for every rule and source.
    """
    drawn: dict[tuple[str, str], dict[str, list[tuple[float, int, int]]]] = {}
    for shard, record in enumerate(stage.part_records):
        if any(step["drops"] for step in record["steps"]):
            for rule, rows in _drawn(stage.ledger(shard), shard, each).items():
                of_source = drawn.setdefault(rule, {})
                of_source[sources[shard]] = sorted([*of_source.get(sources[shard], []), *rows])[:each]
    texts = _texts_of(stage)
    found = {}
    for rule, of_source in drawn.items():
        turns = sorted((turn, *row) for rows in of_source.values() for turn, row in enumerate(rows))[:each]
        found[rule] = [_sampled(stage, texts, shard, row) for _, _, shard, row in turns]
    return found


def draw(ids: pa.ChunkedArray) -> np.ndarray:
    """Numbers in [0, 1) for sampling documents for a report, float64 (n,): the documents with the lowest are shown."""
    return uniform(ids, _SEED, "report")


def _drawn(ledger: str, shard: int, each: int) -> dict[tuple[str, str], list[tuple[float, int, int]]]:
    """The `each` rows with the lowest numbers for each rule of a ledger: (number, shard, row)."""
    table = parquet.read_table(ledger, ["id", "step", "rule"])
    steps, rules = table["step"].to_pylist(), table["rule"].to_pylist()
    numbers = draw(table["id"])
    found: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
    for row in np.argsort(numbers, kind="stable").tolist():
        here = found.setdefault((steps[row], rules[row]), [])
        if len(here) < each:
            here.append((float(numbers[row]), shard, row))
    return found


def in_rows(stage: FinishedStage, shard: int, rows: Sequence[int]) -> list[Dropped]:
    """The documents in ascending rows of a shard's ledger. Holds these, and the ids of the shard's documents."""
    texts, ledger = _texts_of(stage), stage.ledger(shard)
    gone = read_rows(ledger, np.array(rows, np.int64), parquet.columns(ledger)).to_pylist()
    return [_marked(stage, texts, shard, stage.part_records[shard], row) for row in gone]


def _sampled(stage: FinishedStage, texts: "_Texts | None", shard: int, row: int) -> Dropped:
    ledger = stage.ledger(shard)
    [gone] = read_rows(ledger, np.array([row]), parquet.columns(ledger)).to_pylist()
    return _marked(stage, texts, shard, stage.part_records[shard], gone)


def edits(home: str, rule: str, n: int) -> Iterator[Edit]:
    """Up to `n` rows of EDITS of each stage that made texts; `rule` as for `dropped`.

    Holds a shard's rows. Raises LookupError, which lists the rules that cut something.
    """
    found = 0
    known: set[str] = set()
    for stage in Home(home).stages():
        for edit in islice(_edits_of(stage, rule, known), n):
            found += 1
            yield edit
    if not found:
        there = ", ".join(sorted(known)) or "none"
        raise LookupError(f"no text in {home} was cut by {rule or 'any rule'}; rules that cut something: {there}")


def matches(step: str, rule: str, wanted: str) -> bool:
    """Whether a ledger's step and rule match the wanted ones."""
    first, _, second = wanted.partition(".")
    named = step == first or step.startswith(f"{first}_")
    return not wanted or (named and second in ("", rule)) or wanted == rule


def _edits_of(stage: FinishedStage, rule: str, known: set[str]) -> Iterator[Edit]:
    for shard, record in enumerate(stage.part_records if stage.edits_texts else ()):
        if any(step.get("edits") for step in record["steps"]):
            rows = parquet.read_table(stage.edits(shard)).to_pylist()
            known |= {f"{row['step']}.{row['rule']}" for row in rows}
            yield from (Edit(stage.label, row) for row in rows if matches(row["step"], row["rule"], rule))


def _in_stage(
    stage: FinishedStage, wanted: str, known: set[str], where: str, columns: dict[str, None]
) -> Iterator[Dropped]:
    texts = _texts_of(stage)
    for shard, record in enumerate(stage.part_records):
        ledger = parquet.read_table(stage.ledger(shard))
        pairs = list(zip(ledger["step"].to_pylist(), ledger["rule"].to_pylist(), strict=True))
        known |= {f"{step}.{rule}" for step, rule in pairs}
        chosen = [at for at, (step, rule) in enumerate(pairs) if matches(step, rule, wanted)]
        if not chosen:
            continue
        named: dict[str, dict[str, Any]] = {}
        if where:
            parts = parts_of_dropped(stage, shard)
            there = [name for path in parts for name in parquet.columns(path)]
            if missing(where, there):
                columns |= dict.fromkeys(there)
                continue
            named = {row["id"]: row for row in matching(parts, stage.ledger(shard), where).to_pylist()}
        for row in ledger.take(pa.array(chosen, pa.int64())).to_pylist():
            if not where or row["id"] in named:
                one = _marked(stage, texts, shard, record, row)
                yield replace(one, row=one.row | named.get(row["id"], {}))


def _marked(
    stage: FinishedStage, texts: "_Texts | None", shard: int, record: dict[str, Any], row: dict[str, Any]
) -> Dropped:
    found = texts.dropped(stage.label, shard, row) if texts else Dropped(stage.label, row)
    cutting = [step["step"] for step in record["steps"] if "edits" in step]
    if row["step"] in cutting and found.text is not None:
        found = replace(found, marks=spans(_cuts(stage, shard, row["id"]), found.text))
    if row["step"] == REWRITE and found.text is not None:
        answer = answer_about(stage.folder.rpartition("/stages/")[0], stage.folder, shard, row["id"])
        found = replace(found, answer="" if answer is None else answer.content.strip())
    return found


@dataclass(frozen=True)
class _Texts:
    """The stage with the texts of the decisions, its document steps in order, and `measured`, the steps of other stages
    with signals."""

    stage: FinishedStage
    steps: tuple[dict[str, Any], ...]
    others: tuple[dict[str, Any], ...]
    measured: tuple[FinishedStage, ...]

    def dropped(self, stage: str, shard: int, row: dict[str, Any]) -> Dropped:
        part = self.stage.part(shard)
        at = pc.equal(parquet.read_table(part, ["id"])["id"], row["id"])
        document = read_rows(part, np.flatnonzero(at), parquet.columns(part))
        if not len(document):
            return Dropped(stage, row)
        known = {name: value for name, value in row.items() if value is not None}
        shown = {name: document[name][0].as_py() for name in ("source", "url")} | known
        if row["rule"] == TAKEDOWN:
            return Dropped(stage, shown, unmarked="a takedown list names the document")
        text, own = self._before(row, shard, document["text"][0].as_py())
        try:
            found = self._marks(shard, row, document, text)
        except (ValueError, LookupError, OSError) as error:
            # the stage may be of older code, and lists that a step reads may have moved
            return Dropped(stage, shown, text, own, f"{row['step']} cannot process the text again: {error}")
        if found is None:
            return Dropped(stage, shown, text, own)
        return Dropped(stage, shown, text, found.marks, remark=found.remark)

    def _marks(self, shard: int, row: dict[str, Any], document: pa.Table, text: str) -> Marked | None:
        for settings in (*self.steps, *self.others):
            if settings["step"] == row["step"]:
                step = _STEP.validate_python(settings)
                reads = step.reads if isinstance(step, RuleStep) else ()
                found = marks(step, row, self._with_signals(shard, document, reads), text)
                if found is not None:
                    return found
        return None

    def _with_signals(self, shard: int, document: pa.Table, reads: tuple[str, ...]) -> pa.Table:
        for name in (name for name in reads if name not in document.column_names):
            parts = [stage.part(shard) for stage in self.measured]
            [*_, part] = [part for part in parts if name in parquet.columns(part)]
            signals = parquet.read_table(part, ["id", name])
            document = document.append_column(name, signals.filter(pc.is_in(signals["id"], document["id"]))[name])
        return document

    def _before(self, row: dict[str, Any], shard: int, text: str) -> tuple[str, Marks]:
        """The text as it reached the step that dropped it, and the spans that the step then cut out of it."""
        names = [settings["step"] for settings in self.steps]
        if row["step"] not in names:
            return text, ()
        return before_edits(text, _cuts(self.stage, shard, row["id"]), row["step"], names)


def _cuts(stage: FinishedStage, shard: int, document: str) -> pa.Table:
    """The spans that a stage cut out of a document, in its order."""
    cut = parquet.read_table(stage.edits(shard))
    return cut.filter(pc.equal(cut["id"], document)).sort_by("start")


def _texts_of(stage: FinishedStage) -> _Texts | None:
    documents = stage.documents
    if documents is None:
        return None
    # a corpus step that makes texts, such as the removal of repeated lines, or scores has no signals of document steps
    steps = tuple(documents.settings.get("steps", ()))
    others = tuple(step for other in stage.measured for step in other.settings.get("steps", ()))
    return _Texts(documents, steps, others, stage.measured)
