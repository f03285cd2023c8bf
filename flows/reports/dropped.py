"""Dropped documents as a reader wants to see them: the text that the rule saw, and the part of it that offended."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter
from rich.text import Text

from flows.reports.status import cut, folders
from flows.steps import AnyStep
from storage import layout, parquet
from tasks.documents.batch import Batch
from tasks.documents.step import EditStep
from tasks.rules.rule import RuleStep
from tasks.rules.rule_work import Parts, counted

_STEP = TypeAdapter(AnyStep)
_CONTEXT = 160


@dataclass(frozen=True)
class Dropped:
    """A row of a stage's ledger; the text as it reached the step, None if there was none; its offending parts.

    `marks`: (start, stop) in code points, in order, not overlapping.
    """

    stage: str
    row: dict
    text: str | None
    marks: tuple[tuple[int, int], ...]


def dropped(home: str, stage: str, rule: str, n: int) -> Iterator[Dropped]:
    """Up to `n` documents of each stage that a rule dropped; `stage` `dropped` stands for all stages.

    `rule`: `step.rule`, or a step; of a step's name the beginning suffices (`gopher.stop_words`). "": any. Holds a
    ledger part, and of the documents' part the rows that are shown. Raises LookupError, naming what there is.
    """
    found = 0
    there: set[str] = set()
    for name, folder in folders(home):
        manifest = layout.manifest(folder)
        if manifest is None or "shards" not in manifest or stage not in ("dropped", name, name.rsplit("-", 1)[0]):
            continue
        for one in islice(_in_stage(home, name, folder, manifest, rule, there), n):
            found += 1
            yield one
    if not found:
        known = ", ".join(sorted(there)) or "none"
        by = rule or "any rule"
        raise LookupError(f"no document in {home} was dropped by {by}; rules that dropped some: {known}")


def edits(home: str, rule: str, n: int) -> Iterator[tuple[str, dict]]:
    """Up to `n` rows of EDITS of each stage that made texts, each with the stage's name; `rule` as for `dropped`.

    Holds a shard's rows. Raises LookupError, naming the rules that cut something.
    """
    found = 0
    there: set[str] = set()
    for name, folder in folders(home):
        manifest = layout.manifest(folder)
        left = n
        for shard, made in enumerate((manifest or {}).get("shards", [])):
            if not left or not any(step.get("edits") for step in made["steps"]):
                continue
            for row in parquet.read_table(layout.edits_part(folder, shard)).to_pylist():
                there.add(f"{row['step']}.{row['rule']}")
                if left and matches(row["step"], row["rule"], rule):
                    left -= 1
                    found += 1
                    yield name, row
    if not found:
        known = ", ".join(sorted(there)) or "none"
        raise LookupError(f"no text in {home} was cut by {rule or 'any rule'}; rules that cut something: {known}")


def matches(step: str, rule: str, wanted: str) -> bool:
    """Whether a ledger's step and rule are those that are wanted."""
    first, _, second = wanted.partition(".")
    named = step == first or step.startswith(f"{first}_")
    return not wanted or (named and second in ("", rule)) or wanted == rule


def _in_stage(home: str, name: str, folder: str, manifest: dict, wanted: str, there: set[str]) -> Iterator[Dropped]:
    texts = _texts_of(home, manifest)
    for shard in range(len(manifest["shards"])):
        ledger = parquet.read_table(layout.ledger_part(folder, shard))
        pairs = zip(ledger["step"].to_pylist(), ledger["rule"].to_pylist(), strict=True)
        chosen = []
        for at, (step, rule) in enumerate(pairs):
            there.add(f"{step}.{rule}")
            if matches(step, rule, wanted):
                chosen.append(at)
        for row in ledger.take(pa.array(chosen, pa.int64())).to_pylist():
            found = texts.seen(name, shard, row) if texts else Dropped(name, row, None, ())
            cutting = [step["step"] for step in manifest["shards"][shard]["steps"] if "edits" in step]
            if row["step"] in cutting and found.text is not None:
                found = replace(found, marks=_spans(_cuts(folder, shard, row["id"]), found.text))
            yield found


@dataclass(frozen=True)
class _Texts:
    """The stage that holds the texts which decisions were about, its document steps in order, and those of other
    stages with signals, which lie in the folders `measured`."""

    folder: str
    steps: tuple[dict, ...]
    others: tuple[dict, ...]
    measured: tuple[str, ...]

    def seen(self, stage: str, shard: int, row: dict) -> Dropped:
        table = parquet.read_table(layout.part(self.folder, shard))
        document = table.filter(pc.equal(table["id"], row["id"]))
        if not len(document):
            return Dropped(stage, row, None, ())
        known = {name: value for name, value in row.items() if value is not None}
        shown = {name: document[name][0].as_py() for name in ("source", "url")} | known
        text, own = self._before(row, shard, document["text"][0].as_py())
        try:
            marks = self._marks(shard, row, document, text)
        except (ValueError, LookupError, OSError) as error:
            # homes keep the stages of older code, and lists that a step reads may have moved
            shown["not marked"] = f"{row['step']} cannot look at the text again: {error}"
            marks = None
        return Dropped(stage, shown, text, own if marks is None else marks)

    def _marks(self, shard: int, row: dict, document: pa.Table, text: str) -> tuple[tuple[int, int], ...] | None:
        """What offended a rule; None for a step that has no rules of that kind."""
        for settings in (*self.steps, *self.others):
            step = _STEP.validate_python(settings) if settings["step"] == row["step"] else None
            if isinstance(step, RuleStep):
                return offending(step, row, self._with_signals(shard, document, step.reads), text)
            if isinstance(step, EditStep) and (phrase := step.sought.get(row["rule"])):
                return tuple(match.span() for match in re.finditer(re.escape(phrase), text, re.IGNORECASE))
        return None

    def _with_signals(self, shard: int, document: pa.Table, reads: tuple[str, ...]) -> pa.Table:
        for name in (name for name in reads if name not in document.column_names):
            parts = [layout.part(folder, shard) for folder in self.measured]
            [*_, part] = [part for part in parts if name in parquet.columns(part)]
            signals = parquet.read_table(part, ["id", name])
            document = document.append_column(name, signals.filter(pc.is_in(signals["id"], document["id"]))[name])
        return document

    def _before(self, row: dict, shard: int, text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The text as it reached the step that dropped it, and what that step then cut out of it."""
        names = [settings["step"] for settings in self.steps]
        if row["step"] not in names:
            return text, ()
        cut = _cuts(self.folder, shard, row["id"])
        for step in reversed(names[names.index(row["step"]) :]):
            own = cut.filter(pc.equal(cut["step"], step))
            text = restored(text, own)
        return text, _spans(own, text)


def _cuts(folder: str, shard: int, document: str) -> pa.Table:
    """What a stage cut out of a document, in its order."""
    cut = parquet.read_table(layout.edits_part(folder, shard))
    return cut.filter(pc.equal(cut["id"], document)).sort_by("start")


def _spans(cut: pa.Table, text: str) -> tuple[tuple[int, int], ...]:
    """Where the cuts are in the text before them, but for white space."""
    spans = zip(cut["start"].to_pylist(), cut["stop"].to_pylist(), strict=True)
    return tuple((start, stop) for start, stop in spans if text[start:stop].strip())


def _texts_of(home: str, manifest: dict) -> _Texts | None:
    made = {name.rsplit("-", 1)[1]: folder for name, folder in folders(home)}
    inputs = manifest["inputs"]
    if inputs.get("documents") not in made:
        return None
    folder = made[inputs["documents"]]
    measured = [made[key] for name, key in inputs.items() if name.startswith("measured") and key in made]
    # a corpus step that makes texts, as the removal of repeated lines does, or scores has no signals of document steps
    others = tuple(step for other in measured for step in layout.manifest(other)["settings"].get("signals", ()))
    steps = layout.manifest(folder)["settings"].get("signals", ())
    return _Texts(folder, tuple(steps), others, tuple(measured))


def restored(text: str, cut: pa.Table) -> str:
    """The text before a step cut into it, from the text behind it and the step's rows of EDITS for it, sorted.

    Where the content of a span was not kept, there are as many blocks as it had characters.
    """
    pieces: list[str] = []
    before = at = 0  # where the last span ended, in the text before and in the text behind
    for row in cut.to_pylist():
        same = row["start"] - before
        removed = "\u2588" * (row["stop"] - row["start"]) if row["removed"] is None else row["removed"]
        pieces += [text[at : at + same], removed]
        at += same + len(row["replacement"])
        before = row["stop"]
    return "".join([*pieces, text[at:]])


def offending(step: RuleStep, row: dict, document: pa.Table, text: str) -> tuple[tuple[int, int], ...]:
    """The words, lines, ... of the text that a rule counts; or those it misses, where too few were counted.

    None where it counts all, as a mean does.
    """
    found = [rule for rule in step.rules if rule.name == row["rule"]]
    if not found:
        raise LookupError(f"{step.step} has no rule {row['rule']} any more")
    [rule] = found
    document = document.set_column(document.schema.get_field_index("text"), "text", pa.array([text], pa.large_string()))
    batch = Batch(document)
    parts = counted(step, rule, batch)
    if not isinstance(parts, Parts):
        return ()
    if parts.where.all():
        return ()
    where = ~parts.where if row["value"] < row["threshold"] else parts.where
    start, stop = (bounds[where] for bounds in batch.scan.spans(parts.unit))
    data = batch.scan.data
    marks: list[tuple[int, int]] = []
    for begin, end in zip(_characters(data, start), _characters(data, stop), strict=True):
        if marks and not text[marks[-1][1] : begin].strip():
            marks[-1] = (marks[-1][0], end)
        else:
            marks.append((begin, end))
    return tuple(marks)


def _characters(data: np.ndarray, at: np.ndarray) -> list[int]:
    starts = np.append(0, np.cumsum((data & 0xC0) != 0x80))
    return starts[at].tolist()


def readable(found: Dropped, most: int) -> Text:
    """The row and the text, its offending parts in ⟦brackets⟧; of a long text what surrounds them."""
    told = Text(f"== {found.stage}\n")
    told.append("".join(f"{name}: {value}\n" for name, value in found.row.items() if value is not None))
    if found.text is None:
        return told
    left = most
    at = 0
    for start, stop in found.marks:
        if left <= 0:
            break
        told.append(_between(found.text[at:start]))
        told.append(f"⟦{found.text[start:stop]}⟧", style="bold red")
        left -= stop - start + min(start - at, 2 * _CONTEXT)
        at = stop
    told.append(cut(found.text[at:], max(left, _CONTEXT)))
    return told.append("\n")


def _between(text: str) -> str:
    left = len(text) - 2 * _CONTEXT
    return text if left <= 0 else f"{text[:_CONTEXT]} [... {left:,} characters] {text[-_CONTEXT:]}"


def readable_cut(stage: str, row: dict) -> Text:
    """Where a step cut something out of a text, and what."""
    lines = f"line {row['first_line'] + 1}"
    if row["last_line"] > row["first_line"]:
        lines = f"lines {row['first_line'] + 1} to {row['last_line'] + 1}"
    told = Text(f"{stage}  {row['id']}  {row['step']}.{row['rule']}, {lines}\n")
    removed = "(not kept)" if row["removed"] is None else row["removed"].rstrip("\n")
    told.append(f"⟦{removed}⟧", style="bold red")
    return told.append(f" → {row['replacement']}\n" if row["replacement"] else "\n")
