"""Documents for a reader: kept, dropped and edited documents, their lineage, near-duplicates and columns.

Also the results of searches: phrases, spans and batches.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import wrapt
from rich.text import Text

from gristmill.flows.reports.tables import listed
from gristmill.storage.printable import one_line, printable, redact_user
from gristmill.tasks.dedup.near.settings import s_curve

if TYPE_CHECKING:
    from gristmill.flows.explore.search.batches import Batch, BatchDocument
    from gristmill.flows.explore.search.readings import Reading
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
    """Return the beginning of a text, and the number of characters that are left out."""
    rest = len(text) - characters
    return text if rest <= 0 else f"{text[:characters]} [... {rest:,} more characters]"


def _field(name: str, value: object) -> str:
    """Return a value as one line; line ends in it are escaped."""
    return f"{name}: {_value(value)}"


def _value(value: object) -> str:
    """Return a value of a column as one line, a URL without user and password."""
    return one_line(redact_user(str(value)))


def _line(*values: object) -> str:
    """Return the values that are not empty as one line."""
    return "  ".join(_value(value) for value in values if value)


def kept(documents: "KeptDocuments", characters: int) -> Iterator[str]:
    """Yield a heading with the recipes and the stage's folder, then each document with the first characters of its
    text."""
    yield f"== {': '.join([*filter(None, [', '.join(documents.recipes)]), documents.folder])}"
    for document in documents.documents:
        lines = [_field(name, value) for name, value in document.row.items() if value is not None]
        if document.text is not None:
            lines.append(shortened(document.text, characters))
        yield "\n".join(lines) + "\n"


def dropped(sample: "Dropped", characters: int) -> Text:
    """Return the row and the text with its offending parts in ⟦brackets⟧; of a long text, an excerpt around them."""
    block = Text(f"== {sample.stage}\n")
    block.append("".join(_field(name, value) + "\n" for name, value in sample.row.items() if value is not None))
    if sample.unmarked:
        block.append(f"{'not marked' if sample.text else 'not shown'}: {sample.unmarked}\n")
    if sample.remark:
        block.append(f"{sample.remark}\n")
    if sample.text is None:
        return block
    block.append_text(_pieces(marking.excerpt(sample.text, sample.marks, characters))).append("\n")
    if sample.answer:
        block.append(f"-- the language model wrote:\n{shortened(sample.answer, characters)}\n")
    return block


def _pieces(pieces: "Iterable[Piece]") -> Text:
    """Join pieces of a text, with marked pieces in ⟦brackets⟧."""
    line = Text()
    for piece in pieces:
        line.append(*((f"⟦{piece.text}⟧", _MARKED) if piece.marked else (piece.text,)))
        line.append(f" [... {piece.left_out:,} characters] " if piece.left_out else "")
    return line


def edit(sample: "Edit") -> Text:
    """Return the place of an edit, and the text that a step removed."""
    row = sample.row
    lines = f"line {row['first_line'] + 1}"
    if row["last_line"] > row["first_line"]:
        lines = f"lines {row['first_line'] + 1} to {row['last_line'] + 1}"
    block = Text(f"{sample.stage}  {one_line(row['id'])}  {row['step']}.{row['rule']}, {lines}\n")
    removed = "(not stored)" if row["removed"] is None else row["removed"].rstrip("\n")
    block.append(f"⟦{removed}⟧", style=_MARKED)
    return block.append(f" → {row['replacement']}\n" if row["replacement"] else "\n")


def decision(verdict: "Decision") -> str:
    """Return the decision of one stage as a line."""
    if verdict.kept:
        return f"{verdict.stage}: kept"
    row = verdict.row
    lines = [f"dropped by {row['step']}.{row['rule']}"]
    columns = ("value", "threshold", "detail", "representative")
    lines += [f"{name} {one_line(str(row[name]))}" for name in columns if row[name] is not None]
    return f"{verdict.stage}: {', '.join(lines)}"


def lineage(record: "Lineage", characters: int) -> Iterator[str]:
    """Yield the sections record, decision history, scores, raw page and text; page and text are cut to `characters`."""
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
    if record.origin is not None:
        yield f"\n-- rewritten from {one_line(record.origin.row['id'])}, by {one_line(record.row['rewrite_model'])}"
        yield from lineage(record.origin, characters)


def token_lineage(origin: "TokenLineage", characters: int) -> Iterator[str]:
    """Yield the token and its place in its document, the document's lineage, and the tokens derived from its record."""
    place, derived = origin.place, origin.derived
    yield (
        f"== {one_line(origin.path)}, token {place.token:,}: {place.token_id} {origin.piece!r}, "
        f"{place.token - place.first + 1:,} of the {len(place.tokens):,} of the shard's document {place.document:,}"
    )
    yield from lineage(origin.document, characters)
    yield "\n-- derived again"
    if derived.tokens is None:
        yield f"cannot derive the tokens: {one_line(derived.trouble)}"
    elif derived.same(place):
        yield f"{len(derived.tokens):,} tokens from the record, identical to the shard"
    else:
        same = next((i for i, (a, b) in enumerate(zip(derived.tokens, place.tokens, strict=False)) if a != b), None)
        number = (min(len(derived.tokens), len(place.tokens)) if same is None else same) + 1
        yield f"{len(derived.tokens):,} tokens from the record, different from the shard from token {number:,} on"


def look_up(result: "LookUp") -> Iterator[Text]:
    """Yield the query and its settings, then each near-duplicate with the first passage that differs."""
    settings, threshold = result.settings, result.threshold
    shares = [s_curve(settings.bands, settings.rows, jaccard) for jaccard in (threshold, 0.8)]
    lines = [
        f"== {result.stage}",
        *(f"the document itself: {duplicate_decision(outcome)}" for outcome in result.decisions),
        f"candidates that share one of {settings.bands} bands of {settings.rows} rows: {result.sharing:,} (expected: "
        f"{shares[0]:.1%} of near-duplicates at Jaccard {threshold:g}, {shares[1]:.1%} at 0.8)",
        f"with a Jaccard similarity of at least {threshold:g}, on shingles of {settings.shingle} {settings.unit}: "
        f"{result.like:,}",
    ]
    yield Text("\n".join(lines) + "\n")
    for one in result.matches:
        yield match(result.query.text, one)


def match(text: str, result: "Match") -> Text:
    """Return a near-duplicate of a text, and the first passage that differs."""
    lines = [
        f"{result.jaccard:.4f}  {result.id}  {result.source}",
        result.url or "",
        *map(duplicate_decision, result.decisions),
    ]
    block = Text("\n".join(_value(line) for line in lines if line) + "\n")
    return block.append(difference(marking.first_difference(text, result.text)))


def duplicate_decision(verdict: "Decision") -> str:
    """Return the decision of a near-duplicate removal as a line."""
    row = verdict.row
    if verdict.kept:
        return f"{verdict.stage}: kept, cluster of {row['cluster_size']:,}"
    original = f", duplicate of {row['representative']}" if row["representative"] else ""
    link = ", connected through shared bands" if row["value"] is None else f", Jaccard {row['value']:.4f}"
    return f"{verdict.stage}: dropped by {row['step']}.{row['rule']}{original}{link if original else ''}"


def difference(sides: "tuple[Passage, Passage] | None") -> Text:
    """Return two passages below each other, with differences in ⟦brackets⟧."""
    if sides is None:
        return Text("the words are identical\n")
    names = ("  this  ", "  other ")
    return Text("\n").join([passage(side, name) for name, side in zip(names, sides, strict=True)]).append("\n")


def passage(side: "Passage", name: str = "") -> Text:
    """Return a few words of a text after a name, with words that the other text lacks in ⟦brackets⟧."""
    line = Text(f"{name}{' ...' if side.begins_within else ''}")
    for stretch in side.stretches:
        line.append(" ").append(*((f"⟦{stretch.text}⟧", _MARKED) if stretch.alone else (stretch.text,)))
    return line.append(" ..." if side.ends_within else "")


_EXAMPLE_CHARACTERS = 300


_VALUE_CHARACTERS = 40  # of a text among the values of a column


def column_lines(description: "Columns") -> Iterator[str]:
    """Yield a heading, then the columns in their order."""
    where = f"at the step `{description.at}`" if description.at else "after all steps"
    sample = (
        "no finished run, so no values" if description.documents is None else f"{description.documents:,} documents"
    )
    yield f"{description.recipe}, {where}: {len(description.columns):,} columns; {sample}"
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
        values = [f"{_value(text[:_VALUE_CHARACTERS])!r} {share:.1%}" for text, share in one.common]
        parts.append(", ".join(values) + (f" (each at most {one.error:.1%} more)" if one.error else ""))
    return "; ".join(parts)


_TRACED_CHARACTERS = 2_000
_BATCH_DOCUMENTS = 40
_STEPS = 20  # of a training that read a document


def _count(count: "Count") -> str:
    times, documents = ("" if each == 1 else "s" for each in (count.times, count.documents))
    return f"{count.times:,} time{times} in {count.documents:,} document{documents}"


def phrase(result: "PhraseMatches", dropped: bool = True) -> Iterator[Text]:
    """Yield the number of matches, the rules that dropped documents with matches, then some documents. `dropped`:
    whether dropped documents were searched."""
    of_dropped = f"dropped: {_count(result.dropped)}" if dropped else "dropped documents were not searched"
    yield Text(f"kept: {_count(result.kept)}; {of_dropped}")
    if result.rules:
        yield Text("dropped by " + listed(result.rules))
    for document in result.documents:
        yield Text()
        yield from _document(document)


def ranked(result: "WordMatches") -> Iterator[Text]:
    """Yield the number of documents that match, then the best documents."""
    documents = "document matches" if result.matching == 1 else "documents match"
    yield Text(f"{result.matching:,} {documents}")
    for rank, one in enumerate(result.documents, 1):
        yield Text()
        yield Text(f"{rank}. {one_line(one.id)}  {_fate(one)}, score {one.score:.2f}")
        row = one.record
        yield Text(_line(row["source"], row["title"], row["url"]))
        yield _excerpt(one)


def _document(result: "FoundDocument") -> Iterator[Text]:
    times = "once" if result.times == 1 else f"{result.times:,} times"
    yield Text(f"== {one_line(result.id)}  {_fate(result)}, {times}")
    row = result.record
    place = f"{row.get('file')}, offset {row.get('offset')}" if row.get("offset") is not None else row.get("file")
    yield Text(_line(row.get("source"), row.get("url"), place))
    yield _excerpt(result)


def _fate(one: "FoundDocument | RankedDocument") -> str:
    return "kept" if one.kept else f"dropped by {one.step}.{one.rule}" if one.step else "dropped"


def _excerpt(result: "FoundDocument | RankedDocument") -> Text:
    line = Text("... ").append(_joined(result.before[-160:]))
    if result.match:
        line.append(f"⟦{one_line(shortened(result.match, _EXAMPLE_CHARACTERS))}⟧", style=_MARKED)
    return line.append(_joined(result.after[:160])).append(" ...")


def _joined(text: str) -> str:
    """Return the text around a match as one line, with white space as spaces."""
    ends = " " if text[-1:].isspace() else "", " " if text[:1].isspace() else ""
    return ends[1] + one_line(" ".join(text.split())) + ends[0]


def trace(result: "Trace") -> Iterator[Text]:
    """Yield the text, then its spans, each with documents."""
    yield Text(printable(shortened(result.text, _TRACED_CHARACTERS)) + "\n")
    yield Text(
        f"{result.words:,} words, {result.covered:.0%} of them in {result.all:,} span{'' if result.all == 1 else 's'} "
        "of the training data" + (f"; the {len(result.spans):,} rarest:" if len(result.spans) < result.all else "")
    )
    for number, span in enumerate(result.spans, 1):
        yield Text()
        yield Text(f"{number}. {span.words:,} words, {_count(span.found.kept)}").append(
            f"  ⟦{one_line(shortened(result.text[span.begin : span.end], _EXAMPLE_CHARACTERS))}⟧", style=_MARKED
        )
        for document in span.found.documents:
            yield from _document(document)


def batch(contents: "Batch") -> Iterator[str]:
    """Yield the documents of a batch, those with the most tokens first."""
    yield (
        f"step {contents.step:,} of {contents.recipe}: batch {contents.number:,}, samples {contents.samples.start:,} "
        f"to {contents.samples.stop - 1:,}, {contents.tokens:,} tokens of {len(contents.documents):,} documents"
    )
    if (replay := contents.replay) is not None:
        before = (
            f"{replay.level:.3f} on the {replay.earlier} before it" if replay.earlier else "the first of this mixture"
        )
        yield (
            f"weights after step {replay.checkpoint:,}, not trained since: {replay.loss:.3f} nats per token on this "
            f"batch, {before}; documents that add most come first"
        )
    for document in contents.documents[:_BATCH_DOCUMENTS]:
        yield _batch_document(document)
    if (more := len(contents.documents) - _BATCH_DOCUMENTS) > 0:
        yield f"and {more:,} more documents. Print all with --json"
    for spike in contents.spikes:
        done = "ended the run" if spike.to is None else f"went back to step {spike.to:,} and left the batches out"
        yield (
            f"at steps {spike.began:,} to {spike.seen:,} the guard saw a spike ({spike.why}) and {done}; losses of the "
            "weights before it:"
        )
        for document in spike.documents:
            yield _batch_document(document)


def readings(found: "Sequence[Reading]") -> Iterator[str]:
    """Yield for each training how often it read a document, and at which steps."""
    for each in found:
        names = ", ".join(each.recipes) or "no recipe of the home"
        yield (
            f"{one_line(each.document)}  {each.stage} ({names}): {each.tokens:,} tokens, read {each.times:.2f} times "
            f"in {len(each.steps):,} of {each.trained:,} steps"
        )
        shown = [f"{step:,} ({tokens:,} tokens)" for step, tokens in [*each.steps.items()][:_STEPS]]
        more = f" and {len(each.steps) - _STEPS:,} more. Print all with --json" if len(each.steps) > _STEPS else ""
        if shown:
            yield f"    steps {', '.join(shown)}{more}"
        if each.left_out:
            yield f"    the guard left out {each.left_out:,} batches with tokens of it"
        if each.unread:
            yield f"    {each.unread:,} of its tokens are at the end of a source, where they fill no window"


def _batch_document(document: "BatchDocument") -> str:
    row = document.row
    where = _line(*(row.get(name) for name in ("source", "url", "file")))
    loss = "" if document.loss is None else f"  {document.loss:>7.3f} nats per token"
    return f"{document.tokens:>8,} tokens{loss}  {one_line(row['id'])}  {where}"
