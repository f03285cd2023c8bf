"""From records to documents: the main text of each page, with where it came from.

This is where the fused pass over a shard happens: records are read, their URLs judged, their pages extracted under
guard and normalized, every document step that follows in the recipe measures or edits them, and a batch is written. A
shard is read once and written once.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from gristmill.storage import layout, ledger, parquet
from gristmill.storage.contents import ADDRESSES
from gristmill.storage.fingerprint import states_of
from gristmill.storage.printable import one_line, redact_url
from gristmill.storage.remote.config import configured
from gristmill.storage.schema import DOCUMENTS, EDITS, documents_with
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.instants import DateCounts
from gristmill.tasks.documents.measure import Batch, EditCounts, fields, measured, schema
from gristmill.tasks.documents.normalize import Normalize, rewrite
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.documents.step import DocumentStep, work_of
from gristmill.tasks.engine.log_fields import ProgressReport
from gristmill.tasks.extraction.extract import Extract, chosen
from gristmill.tasks.extraction.payload_types import type_counts
from gristmill.tasks.extraction.texts import PLACE, documents, drop, page_guard
from gristmill.tasks.reading.listing import ListedFiles, Shard, given_files, recorded
from gristmill.tasks.reading.own_columns import fitted
from gristmill.tasks.reading.range_plan import RangeRead, Reading
from gristmill.tasks.reading.record import PAGES, Record
from gristmill.tasks.reading.shard import read
from gristmill.tasks.url.step import Url

log = logging.getLogger(__name__)

BATCH = 512
_BATCH_CHARACTERS = 16 << 20
_NAMED = 4  # files of a shard, in a line of the log
_JUDGED = 256
_NO_COLUMNS = pa.schema([])
_JUDGED_BYTES = 16 << 20
# Engines whose texts have no white space but what is meant: that of code and of aligned columns.
SPACED = ("blocks", "text", "pdf", "data")


def extract_shard(
    folder: str,
    number: int,
    source: str,
    source_files: tuple[Shard, ...] | ListedFiles,
    limit: int | None,
    before: tuple[Url, ...],
    extract: Extract,
    normalize: Normalize | None,
    steps: tuple[DocumentStep, ...],
    drawn: Heldout | None = None,
    own: pa.Schema = _NO_COLUMNS,
    choosing: tuple[DocumentStep, ...] = (),
    state: str = "",
) -> dict:
    """Read the files of one shard of a source, write its documents with their signals, and return the shard's record.

    With a `limit`, the first so many records are read that are pages, or were meant to be one; files behind them are
    not opened. `own`: the columns of the sources' own that documents carry; null where a source has none of the name.
    `before` are the URL steps that come before the extraction: what they drop is neither extracted nor kept, except
    for the documents of `drawn`. These are written to a second part as they are extracted and normalized, whether URL
    steps drop them or not; the record has their number. Every record that is a page, or was meant to be one, is a row
    of the shard or of its ledger; the others are counted by kind. By the rules of
    `choosing` the engine `union` chooses a text. The record of a shard that is a range of a file says how it was read
    (`ranges.RangeRead`). `state`: that of the files when their content entered the stage's key. Holds a batch of 512
    documents, or 16 million characters and one document, the ledger, and an id for each record.

    Raises RuntimeError for a file that was written meanwhile.
    """
    judging = (*before, *steps)
    plain = pa.schema([*documents_with(own), *schema(extract)])
    columns = pa.schema([*plain, *fields(judging)])
    edits = EditCounts(steps, source)
    tidied = normalize if normalize and normalize.applies_to(source) else None
    choosing = tuple(step.everywhere() for step in choosing if step.applies_to(source))
    extract = extract if extract.applies_to(source) else Extract()
    lost: dict[str, list[dict]] = {step.step: [] for step in before} | {"extract": [], "normalize": []}
    drawing = _Drawing(drawn)
    kinds: Counter[str] = Counter()
    characters = {"extract": 0, "normalize": 0}
    engines: Counter[str] = Counter()
    relabeled: Counter[str] = Counter()
    dates = DateCounts()
    passed = _Passed()
    shard_files = given_files(source_files)
    records = _records(shard_files, limit, extract, passed)
    drawn_path = layout.part(layout.drawn_folder(folder), number)
    with (
        page_guard(extract) as guard,
        parquet.create(layout.part(folder, number), columns) as out,
        parquet.create(layout.edits_part(folder, number), EDITS) as cuts,
        nullcontext() if drawn is None else parquet.create(drawn_path, plain) as drawn_out,
    ):
        pages = _pages(records, source, own, kinds, lost["extract"])
        if before:
            pages = _allowed(pages, [step for step in before if step.applies_to(source)], lost, drawing)
        rows = documents(pages, guard, extract, lost["extract"], drawing.dropped)
        for batch in _batches(rows):
            if drawn_out is not None:
                table = pa.Table.from_pylist([row for row in batch if row["id"] in drawing.ids], schema=plain)
                table = _normalized(table, tidied, lost=[]) if tidied else table
                drawing.written += len(table)
                drawn_out.write_table(table)
                batch = [row for row in batch if row["id"] not in drawing.dropped]
                if not batch:
                    continue
            if choosing:
                tidy = partial(_normalized, normalize=tidied, lost=[]) if tidied else _as_they_are
                batch = chosen(batch, plain, tidy, choosing)
            engines.update(row["engine"] for row in batch)
            dates.add(row["date"] for row in batch)
            relabeled.update(
                f"{row['charset_declared']} as {row['charset']}"
                for row in batch
                if row["charset_declared"] not in (None, row["charset"])
            )
            table = pa.Table.from_pylist(batch, schema=plain)
            characters["extract"] += _characters(table)
            if tidied:
                table = _normalized(table, tidied, lost["normalize"])
            characters["normalize"] += _characters(table)
            measurement = measured(table, judging, source)
            edits.add(measurement)
            out.write_table(measurement.table)
            cuts.write_table(measurement.edits)
    rows_in = sum(kinds[kind] for kind in PAGES)
    counts = _counts(rows_in, before, normalize, lost, characters)
    rows_out = counts[-1]["rows_out"]
    counts += edits.counts(rows_out, counts[-1]["characters_out"])
    # the guard takes pages ahead, some further than others: drops are noted in no fixed order
    drops = [row for name in lost for row in sorted(lost[name], key=itemgetter("nth"))]
    ledger.write_ledger(folder, number, ledger.from_rows(drops))
    read_kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    log.debug(
        "%s: %s; %d documents, %d characters",
        _named(passed.opened),
        read_kinds or "no record",
        rows_out,
        characters["normalize"],
    )
    if state and states_of([file.path for file in shard_files]) != state:
        raise RuntimeError(
            f"a file of the source {source} was written while it was read, among them "
            f"{redact_url(shard_files[0].path)}: run the same command again"
        )
    return {
        "rows_in": rows_in,
        "rows_out": rows_out,
        "steps": counts,
        "records": dict(sorted(kinds.items())),
        "types": type_counts(row["detail"] or "" for row in lost["extract"] if row["rule"] == "content_type"),
        "engines": dict(sorted(engines.items())),
        "relabeled": dict(sorted(relabeled.items())),
        "dates": asdict(dates),
        "empty_files": passed.empty,
        ADDRESSES: [asdict(file) for file in recorded(passed.opened)],
        **({} if drawn is None else {"drawn": drawing.written}),
        **({"range": asdict(passed.range)} if passed.range else {}),
    }


@dataclass
class _Drawing:
    """The documents of a shard that may be held out: none without `heldout`. `ids`: those that were read so far;
    `dropped`: those among them that URL steps drop; `written`: how many have a text."""

    heldout: Heldout | None
    ids: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    written: int = 0

    def draw(self, documents: pa.Table) -> None:
        """Note which of some documents may be held out, by the columns `id` and `source`."""
        if self.heldout is not None:
            self.ids.update(self.heldout.chosen(documents)["id"].to_pylist())


def _named(files: list[Shard]) -> str:
    names = [one_line(file.name) for file in files[:_NAMED]]
    more = len(files) - len(names)
    return ", ".join([*names, *([f"and {more:,} more files"] if more else [])])


@dataclass
class _Passed:
    """What the reading has passed so far. `opened`: files, also those that were only begun; `pages`: records that are
    pages, or were meant to be one; `records`: all; `empty`: the first files that held none, by name; `range`: how
    the last file's range was read, if it is one."""

    opened: list[Shard] = field(default_factory=list)
    pages: int = 0
    records: int = 0
    empty: list[str] = field(default_factory=list)
    range: RangeRead | None = None


def _records(
    source_files: tuple[Shard, ...], limit: int | None, extract: Extract, passed: _Passed
) -> Iterator[tuple[str, Record]]:
    """The records of files, one after the other. What they pass is noted, and reported to the flow now and then."""
    report, before = ProgressReport(), 0
    for file in source_files:
        passed.opened.append(file)
        reading = Reading()
        held = passed.records
        for name, record in read(file, extract.max_bytes, extract.verify_digests, configured(), reading):
            passed.records += 1
            yield name, record
            passed.pages += record.kind in PAGES
            report.send(passed.pages, before + reading.bytes)
            if passed.pages == limit:
                return
        if passed.records == held and file.part is None and len(passed.empty) < _NAMED:
            passed.empty.append(one_line(file.name))
        before += reading.bytes
        passed.range = reading.range


def _counts(
    rows_in: int, before: tuple[Url, ...], normalize: Normalize | None, lost: dict, characters: dict[str, int]
) -> list[dict]:
    counts = []
    for step in before:
        counts.append(ledger.count(step.step, rows_in, None, ledger.from_rows(lost[step.step]), None))
        rows_in = counts[-1]["rows_out"]
    counts.append(ledger.count("extract", rows_in, None, ledger.from_rows(lost["extract"]), characters["extract"]))
    if normalize:
        characters_in, removed_characters = characters["extract"], characters["extract"] - characters["normalize"]
        emptied = ledger.from_rows(lost["normalize"])
        counts.append(ledger.count("normalize", counts[-1]["rows_out"], characters_in, emptied, removed_characters))
    return counts


def _pages(
    records: Iterable[tuple[str, Record]],
    source: str,
    own: pa.Schema,
    kinds: Counter[str],
    lost: list[dict],
) -> Iterator[tuple[dict, Record]]:
    """The records that are pages, each with the columns of its location."""
    seen: set[str] = set()
    for nth, (file, record) in enumerate(records):
        if record.kind not in PAGES:
            kinds[record.kind] += 1
            continue
        # without a length, the offset counts the file's uncompressed bytes
        identity = "\n".join((source, file, f"{record.offset} {record.length}", record.record_id))
        key = xxhash.xxh3_128_hexdigest(identity.encode("utf-8", "surrogateescape"))
        kinds[record.kind] += 1
        row = {
            "nth": nth,
            "id": key,
            "source": source,
            "url": record.url,
            "date": record.date,
            "ip": record.ip,
            "status": record.status,
            "truncated": record.truncated,
            "note": record.note,
            "file": file,
            "offset": record.offset,
            "length": record.length,
            "record_id": record.record_id,
            "digest": record.digest,
            **{name: fitted(value, own.field(name).type) for name, value in (record.own or {}).items()},
        }
        if key in seen:
            lost.append(drop(row, "repeated_record", detail=record.record_id))
            continue
        seen.add(key)
        yield row, record


def _allowed(
    pages: Iterator[tuple[dict, Record]], steps: Sequence[Url], lost: dict[str, list[dict]], drawing: _Drawing
) -> Iterator[tuple[dict, Record]]:
    """The pages whose URLs the steps let through, and those that are drawn; holds 256 of them, or 16 MiB and one."""
    for batch in _chunks(pages):
        urls = pa.table({name: [row[name] for row, _ in batch] for name in ("id", "source", "url")})
        drawing.draw(urls)
        for step in steps:
            for name, column in work_of(step).measure(step, Batch(urls)).items():
                urls = urls.append_column(name, column)
        rows = {row["id"]: row for row, _ in batch}
        for name, dropped in decide(urls, [(step.step, step.decisions()) for step in steps]):
            for each in dropped.to_pylist():
                row = rows.pop(each["id"])
                lost[name].append(each | {name: row[name] for name in PLACE})
        drawing.dropped |= drawing.ids.intersection(row["id"] for row, _ in batch).difference(rows)
        yield from (page for page in batch if page[0]["id"] in rows or page[0]["id"] in drawing.dropped)


def _chunks(pages: Iterator[tuple[dict, Record]]) -> Iterator[list[tuple[dict, Record]]]:
    batch, size = [], 0
    for page in pages:
        batch.append(page)
        size += len(page[1].payload)
        if len(batch) == _JUDGED or size >= _JUDGED_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _batches(rows: Iterator[dict]) -> Iterator[list[dict]]:
    while batch := list(islice(rows, 1)):
        size = batch[0]["characters"]
        while len(batch) < BATCH and size < _BATCH_CHARACTERS and (row := next(rows, None)) is not None:
            batch.append(row)
            size += row["characters"]
        yield batch


def _normalized(table: pa.Table, normalize: Normalize, lost: list[dict]) -> pa.Table:
    texts = rewrite(normalize, table["text"], pc.is_in(table["engine"], pa.array(SPACED)))
    table = table.set_column(table.schema.get_field_index("text"), DOCUMENTS.field("text"), texts)
    lengths = pc.utf8_length(texts).cast(pa.int64())
    table = table.set_column(table.schema.get_field_index("characters"), DOCUMENTS.field("characters"), lengths)
    empty = pc.equal(lengths, 0)
    for row in table.filter(empty).select(["id", *PLACE[1:]]).to_pylist():
        lost.append(drop(row | {"nth": len(lost)}, "empty_text", step="normalize"))
    return table.filter(pc.invert(empty))


def _as_they_are(table: pa.Table) -> pa.Table:
    return table


def _characters(table: pa.Table) -> int:
    return pc.sum(table["characters"]).as_py() or 0
