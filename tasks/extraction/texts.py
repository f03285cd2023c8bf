"""The text of each record: of a page by an engine under guard, of a table's row as it is; or the reason for a drop."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Set
from itertools import groupby, islice

from gristmill.tasks.extraction.extract import Extract, united
from gristmill.tasks.extraction.page import PLAIN, extract_page, is_read
from gristmill.tasks.extraction.payload_types import OCTETS, is_pdf, payload_type
from gristmill.tasks.guard.child import describe
from gristmill.tasks.guard.parent import Guard
from gristmill.tasks.reading.record import Record

log = logging.getLogger(__name__)

PLACE = ("nth", "url", "file", "offset", "length")
_UNGUARDED_BYTES = 1 << 20  # of a text that cannot reach a limit of a page
# The smallest PDF document. It is read before all pages, so that its library is loaded then.
_BLANK_PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)


def page_guard(extract: Extract) -> Guard:
    """Guarded processes that extract pages.

    The first call of an engine compiles its kernels, which takes longer than any page may. An engine of a user's may
    do anything with that page."""
    work = f"{extract_page.__module__}:{extract_page.__name__}"
    page = (b"<p>Grist to the mill.</p>", "text/html", "utf-8", "")
    own = [engine for engine in extract.asked if ":" in engine]
    pages: list[tuple] = [(*page, engine, extract.format) for engine in extract.asked if engine not in own]
    if "pdf" in extract.types:
        pages.append((_BLANK_PDF, "application/pdf", None, "", extract.asked[0], extract.format, extract.types))
    trials = tuple((*page, engine, extract.format) for engine in own)
    return Guard(work, extract.limits, *pages, trials=trials, name=f"engine {', '.join(own)}" if own else "")


def documents(
    pages: Iterator[tuple[dict, Record]], guard: Guard, extract: Extract, lost: list[dict], dropped: Set[str]
) -> Iterator[dict]:
    """A row of DOCUMENTS for each page that has a text, in order, with the engine `union` also the page's further
    texts. The guard takes pages ahead of what it gives. `dropped`: ids of pages that are in the ledger already."""
    for as_it_is, some in groupby(_fit(pages, extract, lost, dropped), key=_is_given_text):
        for row, result in _given_texts(some, extract) if as_it_is else _guarded(some, guard, extract):
            if "rule" in result:
                if result["rule"] == "extractor_error" and any(":" in engine for engine in extract.asked):
                    _tell_once(result["detail"])
                if row["id"] not in dropped:
                    lost.append(drop(row, result["rule"], detail=result["detail"]))
            else:
                # a text says nothing of itself: its table may
                values = {name: value for name, value in result.items() if value is not None}
                yield dict.fromkeys(result) | row | values | {"characters": len(result["text"])}


def _fit(
    pages: Iterator[tuple[dict, Record]], extract: Extract, lost: list[dict], dropped: Set[str]
) -> Iterator[tuple[dict, Record]]:
    for row, record in pages:
        if unfit := _unfit(row, record, extract.types):
            if row["id"] not in dropped:
                lost.append(unfit)
            continue
        yield row, record


def _is_given_text(page: tuple[dict, Record]) -> bool:
    """Whether a page is the text of a table's row: no library parses it, and one so short reaches no limit of a page,
    so it needs no guard, which would take more time than all that is done with it."""
    _, record = page
    return (
        record.kind == "row"
        and record.content_type in PLAIN
        and len(record.payload) <= _UNGUARDED_BYTES
        and not is_pdf(record.payload)
    )


def _given_texts(pages: Iterable[tuple[dict, Record]], extract: Extract) -> Iterator[tuple[dict, dict]]:
    for row, record in pages:
        call = record.payload, record.content_type, record.charset, record.url, "text", extract.format, extract.types
        try:
            result = extract_page(*call, given=True)
        except Exception as error:  # of any kind: it costs only its document
            result = {"rule": "extractor_error", "detail": describe(error)}
        yield row, result


def _guarded(pages: Iterable[tuple[dict, Record]], guard: Guard, extract: Extract) -> Iterator[tuple[dict, dict]]:
    waiting: deque[tuple[dict, int]] = deque()

    def calls() -> Iterator[tuple]:
        for row, record in pages:
            # a text is the same by all of them, and so is a PDF document's
            plain = record.content_type in PLAIN
            alike = plain or is_pdf(record.payload)
            engines = extract.asked[:1] if alike else extract.asked
            waiting.append((row, len(engines)))
            for engine in engines:
                yield (
                    *(record.payload, record.content_type, record.charset, record.url),
                    *(engine, extract.format, extract.types, plain and record.kind == "row"),
                    extract.options(engine),
                    record.headers if extract.rights else None,
                )

    results = guard.map(calls())
    for first in results:
        row, engine_count = waiting.popleft()
        yield row, united([first, *islice(results, engine_count - 1)]) if engine_count > 1 else first


_told: set[str] = set()


def _tell_once(failure: str) -> None:
    """A line of the log for what an engine of a user's does wrong, once in a process for each place and kind of it."""
    where = failure.partition(")")[0]
    if where not in _told:
        _told.add(where)
        log.warning("%s; pages on which it fails are dropped as extractor_error", failure)


def _unfit(row: dict, record: Record, types: tuple[str, ...]) -> dict | None:
    """The ledger's row of a record that cannot have a text, whatever its payload is."""
    if record.problem:
        rule, detail = record.problem
        return drop(row, rule, detail=detail)
    if record.status is not None and record.status != 200:
        return drop(row, "http_status", value=float(record.status))
    if not is_read(record.payload, record.content_type, types):
        content_type = record.content_type
        return drop(
            row,
            "content_type",
            detail=(payload_type(record.payload, content_type) if content_type in OCTETS else None) or content_type,
        )
    return None


def drop(row: dict, rule: str, value: float | None = None, detail: str | None = None, step: str = "extract") -> dict:
    place = {name: row[name] for name in PLACE}
    return {"id": row["id"], "step": step, "rule": rule, "value": value, "detail": detail, **place}
