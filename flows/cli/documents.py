"""Documents for a reader: kept, dropped and cut ones, their lineage, near-duplicates beside each other, columns.

Also what a search found in them: phrases, spans, batches and memorized text.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import wrapt
from rich.text import Text

from gristmill.flows.reports.tables import listed
from gristmill.storage.printable import one_line, printable
from gristmill.tasks.dedup.near.settings import s_curve

if TYPE_CHECKING:
    from gristmill.flows.explore.search.batches import Batch
    from gristmill.flows.reports import marking
    from gristmill.flows.reports.columns import Columns, DescribedColumn
    from gristmill.flows.reports.dropped import Dropped, Edit
    from gristmill.flows.reports.lineage import Decision, Lineage
    from gristmill.flows.reports.marking import Passage, Piece
    from gristmill.flows.reports.search.phrases import Count, FoundDocument, PhraseMatches, Trace
    from gristmill.flows.reports.search.words import RankedDocument, WordMatches
    from gristmill.flows.reports.similar import LookUp, Match
    from gristmill.flows.reports.status import KeptDocuments
    from gristmill.flows.reports.token_lineage import TokenLineage
else:
    marking = wrapt.lazy_import("gristmill.flows.reports.marking")


_MARKED = "bold red"


def shortened(text: str, characters: int) -> str:
    """The beginning of a text, and how much is left out."""
    rest = len(text) - characters
    return text if rest <= 0 else f"{text[:characters]} [... {rest:,} more characters]"


def _field(name: str, value: object) -> str:
    """A value in a line of its own, whatever is in it."""
    return f"{name}: {one_line(str(value))}"


def kept(documents: "KeptDocuments", characters: int) -> Iterator[str]:
    """The stage's folder, ahead of it the recipes whose curated documents these are; then each document with the first
    characters of its text."""
    yield f"== {': '.join([*filter(None, [', '.join(documents.recipes)]), documents.folder])}"
    for document in documents.documents:
        lines = [_field(name, value) for name, value in document.row.items() if value is not None]
        if document.text is not None:
            lines.append(shortened(document.text, characters))
        yield "\n".join(lines) + "\n"


def dropped(sample: "Dropped", characters: int) -> Text:
    """The row and the text, its offending parts in ⟦brackets⟧; of a long text what surrounds them."""
    shown = Text(f"== {sample.stage}\n")
    shown.append("".join(_field(name, value) + "\n" for name, value in sample.row.items() if value is not None))
    if sample.unmarked:
        shown.append(f"not marked: {sample.unmarked}\n")
    if sample.remark:
        shown.append(f"{sample.remark}\n")
    if sample.text is None:
        return shown
    return shown.append_text(_pieces(marking.excerpt(sample.text, sample.marks, characters))).append("\n")


def _pieces(pieces: "Iterable[Piece]") -> Text:
    """Pieces of a text, the marked ones in ⟦brackets⟧."""
    shown = Text()
    for piece in pieces:
        shown.append(*((f"⟦{piece.text}⟧", _MARKED) if piece.marked else (piece.text,)))
        shown.append(f" [... {piece.left_out:,} characters] " if piece.left_out else "")
    return shown


def edit(sample: "Edit") -> Text:
    """Where a step cut something out of a text, and what."""
    row = sample.row
    lines = f"line {row['first_line'] + 1}"
    if row["last_line"] > row["first_line"]:
        lines = f"lines {row['first_line'] + 1} to {row['last_line'] + 1}"
    shown = Text(f"{sample.stage}  {one_line(row['id'])}  {row['step']}.{row['rule']}, {lines}\n")
    removed = "(not kept)" if row["removed"] is None else row["removed"].rstrip("\n")
    shown.append(f"⟦{removed}⟧", style=_MARKED)
    return shown.append(f" → {row['replacement']}\n" if row["replacement"] else "\n")


def decision(verdict: "Decision") -> str:
    """What one stage decided."""
    if verdict.kept:
        return f"{verdict.stage}: kept"
    row = verdict.row
    lines = [f"dropped by {row['step']}.{row['rule']}"]
    columns = ("value", "threshold", "detail", "representative")
    lines += [f"{name} {one_line(str(row[name]))}" for name in columns if row[name] is not None]
    return f"{verdict.stage}: {', '.join(lines)}"


def lineage(record: "Lineage", characters: int) -> Iterator[str]:
    """Sections: record, decision history, scores, raw page, text; of page and text the first `characters`."""
    yield f"== {record.stage}  {one_line(record.row['id'])}"
    yield from (_field(name, value) for name, value in record.columns.items())
    yield "\n-- decision history"
    yield from map(decision, record.decisions)
    if not record.decisions:
        yield "kept by every stage so far"
    yield "\n-- scores"
    for stage, scores in ({record.stage: record.signals} | record.scores).items():
        yield from (f"{stage}  {_field(name, value)}" for name, value in scores.items() if value is not None)
    yield f"\n-- raw, {len(record.record.payload) if record.record else 0:,} bytes"
    yield shortened(record.raw, characters)
    if "text" in record.row:
        yield f"\n-- text, {record.row['characters']:,} characters"
        yield shortened(record.row["text"], characters)


def token_lineage(origin: "TokenLineage", characters: int) -> Iterator[str]:
    """The token and its place in its document, the document's lineage, and what derives from its record."""
    place, derived = origin.place, origin.derived
    yield (
        f"== {one_line(origin.path)}, token {place.token:,}: {place.token_id} {origin.piece!r}, "
        f"{place.token - place.first + 1:,} of the {len(place.tokens):,} of the shard's document {place.document:,}"
    )
    yield from lineage(origin.document, characters)
    yield "\n-- derived again"
    if derived.tokens is None:
        yield f"not derived: {one_line(derived.trouble)}"
    elif derived.same(place):
        yield f"{len(derived.tokens):,} tokens from the record, each the same as in the shard"
    else:
        same = next((i for i, (a, b) in enumerate(zip(derived.tokens, place.tokens, strict=False)) if a != b), None)
        number = (min(len(derived.tokens), len(place.tokens)) if same is None else same) + 1
        yield f"{len(derived.tokens):,} tokens from the record, other ones than in the shard from the {number:,}th on"


def look_up(result: "LookUp") -> Iterator[Text]:
    """What was looked up and how, then each near-duplicate with the first passage in which it differs."""

    settings, least = result.settings, result.threshold
    caught = [s_curve(settings.bands, settings.rows, jaccard) for jaccard in (least, 0.8)]
    lines = [
        f"== {result.stage}",
        *(f"the document itself: {duplicate_decision(outcome)}" for outcome in result.decisions),
        f"others that share one of {settings.bands} bands of {settings.rows} rows with it: {result.sharing:,} (of "
        f"those at Jaccard {least:g} {caught[0]:.1%} do, of those at 0.8 {caught[1]:.1%})",
        f"with a Jaccard similarity of {least:g} or more, by shingles of {settings.shingle} {settings.unit}: "
        f"{result.like:,}",
    ]
    yield Text("\n".join(lines) + "\n")
    for one in result.matches:
        yield match(result.query.text, one)


def match(text: str, result: "Match") -> Text:
    """A near-duplicate of a text, and where the two first differ."""

    lines = [
        f"{result.jaccard:.4f}  {result.id}  {result.source}",
        result.url or "",
        *map(duplicate_decision, result.decisions),
    ]
    shown = Text("\n".join(one_line(line) for line in lines if line) + "\n")
    return shown.append(difference(marking.first_difference(text, result.text)))


def duplicate_decision(verdict: "Decision") -> str:
    """What a near-duplicate removal decided."""
    row = verdict.row
    if verdict.kept:
        return f"{verdict.stage}: kept, cluster of {row['cluster_size']:,}"
    of = f" for {row['representative']}" if row["representative"] else ""
    by = ", connected with it by shared bands" if row["value"] is None else f", Jaccard {row['value']:.4f}"
    return f"{verdict.stage}: dropped by {row['step']}.{row['rule']}{of}{by if of else ''}"


def difference(sides: "tuple[Passage, Passage] | None") -> Text:
    """Two passages under each other; what differs in ⟦brackets⟧."""
    if sides is None:
        return Text("no word differs\n")
    names = ("  this  ", "  other ")
    return Text("\n").join([passage(side, name) for name, side in zip(names, sides, strict=True)]).append("\n")


def passage(side: "Passage", name: str = "") -> Text:
    """A few words of a text after a name; those that the other text has not in ⟦brackets⟧."""
    shown = Text(f"{name}{' ...' if side.begins_within else ''}")
    for stretch in side.stretches:
        shown.append(" ").append(*((f"⟦{stretch.text}⟧", _MARKED) if stretch.alone else (stretch.text,)))
    return shown.append(" ..." if side.ends_within else "")


_SHOWN = 300  # characters of an example


_VALUE_CHARACTERS = 40  # of a text among the values of a column


def column_lines(description: "Columns") -> Iterator[str]:
    """What stands in the terminal: a head, then the columns in their order."""
    where = f"in the place of `{description.at}`" if description.at else "behind all steps"
    of = (
        "no run of it is finished, so no values"
        if description.documents is None
        else f"{description.documents:,} documents"
    )
    yield f"{description.recipe}, {where}: {len(description.columns):,} columns; {of}"
    widths = [
        max(len(cell) for cell in column) for column in zip(*map(_column_cells, description.columns), strict=True)
    ]
    for one in description.columns:
        head = "  ".join(cell.ljust(width) for cell, width in zip(_column_cells(one), widths, strict=True))
        yield f"{head}  {one.meaning}"
        if values := _column_values(one):
            yield f"    {values}"
    if description.documents is None and description.remark:
        yield printable(description.remark)


def _column_cells(one: "DescribedColumn") -> tuple[str, str, str]:
    return one.name, one.kind or "?", one.step or "-"


def _column_values(one: "DescribedColumn") -> str:
    if one.nulls is None:
        return ""
    parts = [f"{one.nulls:.1%} missing"]
    if one.quantiles:
        parts.append(", ".join(f"{share:.0%} {value:.4g}" for share, value in one.quantiles.items()))
    if one.common:
        shown = [f"{one_line(text[:_VALUE_CHARACTERS])!r} {share:.1%}" for text, share in one.common]
        parts.append(", ".join(shown) + (f" (each up to {one.error:.1%} more)" if one.error else ""))
    return "; ".join(parts)


_TEXT = 2_000  # characters of a text that is traced
_DOCUMENTS = 40  # of a batch


def _count(count: "Count") -> str:
    times, documents = ("" if each == 1 else "s" for each in (count.times, count.documents))
    return f"{count.times:,} time{times} in {count.documents:,} document{documents}"


def phrase(result: "PhraseMatches") -> Iterator[Text]:
    """How often, what dropped the documents that are not kept, then some documents."""
    yield Text(f"kept: {_count(result.kept)}; dropped: {_count(result.dropped)}")
    if result.rules:
        yield Text("dropped by " + listed(result.rules))
    for document in result.documents:
        yield Text()
        yield from _document(document)


def ranked(result: "WordMatches") -> Iterator[Text]:
    """How many documents match, then the best."""
    documents = "document matches" if result.matching == 1 else "documents match"
    yield Text(f"{result.matching:,} {documents}")
    for rank, one in enumerate(result.documents, 1):
        yield Text()
        yield Text(f"{rank}. {one_line(one.id)}  {_fate(one)}, score {one.score:.2f}")
        row = one.record
        yield Text("  ".join(one_line(f"{part}") for part in (row["source"], row["title"], row["url"]) if part))
        yield _excerpt(one)


def _document(result: "FoundDocument") -> Iterator[Text]:
    times = "once" if result.times == 1 else f"{result.times:,} times"
    yield Text(f"== {one_line(result.id)}  {_fate(result)}, {times}")
    row = result.record
    place = f"{row.get('file')}, offset {row.get('offset')}" if row.get("offset") is not None else row.get("file")
    yield Text("  ".join(one_line(f"{part}") for part in (row.get("source"), row.get("url"), place) if part))
    yield _excerpt(result)


def _fate(one: "FoundDocument | RankedDocument") -> str:
    return "kept" if one.kept else f"dropped by {one.step}.{one.rule}" if one.step else "dropped"


def _excerpt(result: "FoundDocument | RankedDocument") -> Text:
    shown = Text("... ").append(_joined(result.before[-160:]))
    if result.match:
        shown.append(f"⟦{one_line(shortened(result.match, _SHOWN))}⟧", style=_MARKED)
    return shown.append(_joined(result.after[:160])).append(" ...")


def _joined(text: str) -> str:
    """Text around a match in one line, white space as spaces."""
    ends = " " if text[-1:].isspace() else "", " " if text[:1].isspace() else ""
    return ends[1] + one_line(" ".join(text.split())) + ends[0]


def trace(result: "Trace") -> Iterator[Text]:
    """The text, then its spans, each with documents."""
    yield Text(printable(shortened(result.text, _TEXT)) + "\n")
    yield Text(
        f"{result.words:,} words, {result.covered:.0%} of them in {result.all:,} span{'' if result.all == 1 else 's'} "
        "that the training data has"
        + (f"; the {len(result.spans):,} rarest:" if len(result.spans) < result.all else "")
    )
    for number, span in enumerate(result.spans, 1):
        yield Text()
        yield Text(f"{number}. {span.words:,} words, {_count(span.found.kept)}").append(
            f"  ⟦{one_line(shortened(result.text[span.begin : span.end], _SHOWN))}⟧", style=_MARKED
        )
        for document in span.found.documents:
            yield from _document(document)


def batch(contents: "Batch") -> Iterator[str]:
    """The documents of a batch, those with the most tokens first."""
    yield (
        f"step {contents.step:,} of {contents.recipe}: batch {contents.number:,}, samples {contents.samples.start:,} "
        f"to {contents.samples.stop - 1:,}, {contents.tokens:,} tokens of {len(contents.documents):,} documents"
    )
    for document in contents.documents[:_DOCUMENTS]:
        row = document.row
        where = "  ".join(one_line(f"{row[name]}") for name in ("source", "url", "file") if row.get(name))
        yield f"{document.tokens:>8,} tokens  {one_line(row['id'])}  {where}"
    if (more := len(contents.documents) - _DOCUMENTS) > 0:
        yield f"and {more:,} documents more: --json has all"
