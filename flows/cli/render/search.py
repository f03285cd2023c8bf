"""Phrases, spans and batches for a reader."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from gristmill.flows.cli.render.documents import shortened
from gristmill.storage.printable import one_line, printable

if TYPE_CHECKING:
    from gristmill.flows.explore.search.batches import Batch
    from gristmill.flows.explore.search.memorised import Memorised
    from gristmill.flows.explore.search.phrases import Count, FoundDocument, FoundPhrase, Trace
    from gristmill.flows.explore.search.words import FoundWords, RankedDocument

_MARKED = "bold red"
_SHOWN = 300  # characters of a match
_TEXT = 2_000  # characters of a text that is traced
_DOCUMENTS = 40  # of a batch


def _count(count: "Count") -> str:
    times, documents = ("" if each == 1 else "s" for each in (count.times, count.documents))
    return f"{count.times:,} time{times} in {count.documents:,} document{documents}"


def phrase(found: "FoundPhrase") -> Iterator[Text]:
    """How often, what dropped the documents that are not kept, then some documents."""
    yield Text(f"kept: {_count(found.kept)}; dropped: {_count(found.dropped)}")
    if found.rules:
        yield Text("dropped by " + ", ".join(f"{rule} {count:,}" for rule, count in found.rules.items()))
    for document in found.documents:
        yield Text()
        yield from _document(document)


def ranked(found: "FoundWords") -> Iterator[Text]:
    """How many documents match, then the best."""
    documents = "document matches" if found.matching == 1 else "documents match"
    yield Text(f"{found.matching:,} {documents}")
    for at, one in enumerate(found.documents, 1):
        yield Text()
        fate = "kept" if one.kept else f"dropped by {one.step}.{one.rule}" if one.step else "dropped"
        yield Text(f"{at}. {one_line(one.id)}  {fate}, score {one.score:.2f}")
        row = one.record
        yield Text("  ".join(one_line(f"{part}") for part in (row["source"], row["title"], row["url"]) if part))
        yield _excerpt(one)


def _document(found: "FoundDocument") -> Iterator[Text]:
    fate = "kept" if found.kept else f"dropped by {found.step}.{found.rule}" if found.step else "dropped"
    times = "once" if found.times == 1 else f"{found.times:,} times"
    yield Text(f"== {one_line(found.id)}  {fate}, {times}")
    row = found.record
    place = f"{row.get('file')}, offset {row.get('offset')}" if row.get("offset") is not None else row.get("file")
    yield Text("  ".join(one_line(f"{part}") for part in (row.get("source"), row.get("url"), place) if part))
    yield _excerpt(found)


def _excerpt(found: "FoundDocument | RankedDocument") -> Text:
    shown = Text("... ").append(_joined(found.before[-160:]))
    if found.match:
        shown.append(f"⟦{one_line(shortened(found.match, _SHOWN))}⟧", style=_MARKED)
    return shown.append(_joined(found.after[:160])).append(" ...")


def _joined(text: str) -> str:
    """Text around a match in one line, white space as spaces."""
    ends = " " if text[-1:].isspace() else "", " " if text[:1].isspace() else ""
    return ends[1] + one_line(" ".join(text.split())) + ends[0]


def trace(found: "Trace") -> Iterator[Text]:
    """The text, then its spans, each with documents."""
    yield Text(printable(shortened(found.text, _TEXT)) + "\n")
    yield Text(
        f"{found.words:,} words, {found.covered:.0%} of them in {found.all:,} span{'' if found.all == 1 else 's'} that "
        "the training data has" + (f"; the {len(found.spans):,} rarest:" if len(found.spans) < found.all else "")
    )
    for at, span in enumerate(found.spans, 1):
        yield Text()
        yield Text(f"{at}. {span.words:,} words, {_count(span.found.kept)}").append(
            f"  ⟦{one_line(shortened(found.text[span.begin : span.end], _SHOWN))}⟧", style=_MARKED
        )
        for document in span.found.documents:
            yield from _document(document)


def batch(found: "Batch") -> Iterator[str]:
    """The documents of a batch, those with the most tokens first."""
    yield (
        f"step {found.step:,} of {found.recipe}: batch {found.number:,}, samples {found.samples.start:,} to "
        f"{found.samples.stop - 1:,}, {found.tokens:,} tokens of {len(found.documents):,} documents"
    )
    for document in found.documents[:_DOCUMENTS]:
        row = document.row
        where = "  ".join(one_line(f"{row[name]}") for name in ("source", "url", "file") if row.get(name))
        yield f"{document.tokens:>8,} tokens  {one_line(row['id'])}  {where}"
    if (more := len(found.documents) - _DOCUMENTS) > 0:
        yield f"and {more:,} documents more: --json has all"


def memorised_table(found: "Memorised") -> Table:
    """Groups of prompts by their copies."""
    table = Table(title=f"{found.prompt} tokens given, the {found.continuation} that follow expected of {found.model}")
    table.add_column("copies in the training data")
    for name in ("prompts", "continued verbatim", "interval", "tokens before the first other"):
        table.add_column(name, justify="right")
    for group in found.groups:
        interval = f"{group.low:.2%} to {group.high:.2%}"
        table.add_row(group.name, f"{group.prompts:,}", f"{group.share:.2%}", interval, f"{group.tokens:.1%}")
    return table
