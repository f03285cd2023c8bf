"""The documents of a finished training in the order in which it read them, as a folder of Parquet files.

    spans in reading order ──sort by shard──▶ pieces of documents ──sort by step──▶ parts

The order follows from the training manifest, the seed and the batches that the guard left out, as in `batches`.
Documents come from the indexes of the token shards. Because each step reads from all shards, spans are sorted by shard,
so that each index is read once, and their pieces are sorted back by step. DuckDB sorts, and spills to the temporary
folder.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa

from gristmill.flows.explore.search.readings import LeftOut, first_step, order_of, recorded_run
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import argument_of
from gristmill.flows.reports.finished import finished
from gristmill.flows.stages.model import local_mixture
from gristmill.samples.order import Order, batch_number
from gristmill.storage import files, layout, parquet
from gristmill.storage.printable import redact_url
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.documents import isolated_duckdb
from gristmill.tasks.engine.make import NotFinishedError

if TYPE_CHECKING:
    import duckdb

SUMMARY = "reading-order.json"
FOLDER = "data"
# Tokens of the steps in a part. A part takes a few hundred bytes of memory for each of its rows.
PART_TOKENS = 1 << 27
_SORT_BYTES = 2 << 30  # that both sorts hold
BATCH_ROWS = 1 << 16  # that are passed on together
_SPANS = pa.schema(
    [(name, pa.int64()) for name in ("source", "shard", "step", "sample", "position", "offset", "length")]
)
COLUMNS = {
    "step": "training step, from 1",
    "sample": "number of the sample in the training, from 0",
    "position": "number in the sample of the first token, from 0",
    "length": "tokens in a row of this document, at this place of the sample",
    "source": "source of the mixture",
    "id": "document",
    "begin": "number in the document of the first token, from 0",
    "shard": "token shard, as `gristmill explain lineage --shard` takes it",
    "offset": "number in the shard of the first token, from 0",
}
_KINDS = {"source": pa.string(), "id": pa.string(), "shard": pa.string()}
SCHEMA = pa.schema(
    [
        pa.field(name, _KINDS.get(name, pa.int64()), nullable=False, metadata={"what": about})
        for name, about in COLUMNS.items()
    ]
)


@dataclass(frozen=True)
class ReadingOrder:
    """An export. `model`: the training's stage; `steps`: its first and last; `rows`: of all parts."""

    folder: str
    model: str
    steps: tuple[int, int]
    parts: int
    rows: int


def write_reading_order(
    target: str, to: str, settings: MachineSettings | None = None, say: Callable[[str], None] = lambda line: None
) -> ReadingOrder:
    """Write a row for each piece of a document that a recipe's finished training read, in reading order: by step,
    sample, and position in the sample.

    A stopped export writes the parts that are missing. Reads the indexes of token shards and no tokens; holds a part,
    and up to 2 GiB of rows that are sorted. `say`: prints progress. Raises NotFinishedError without a finished
    training, FileExistsError for a folder with other files.
    """
    settings = settings or MachineSettings()
    report = finished(target, settings)
    if report.data is None or report.trained is None:
        raise NotFinishedError(
            f"the training of {report.recipe.name} is not finished: run `gristmill run {argument_of(target)}`"
        )
    stage = report.trained.model
    run, left_out = recorded_run(settings, stage)
    order = order_of(run, load_training_manifest(local_mixture(settings, report.data.mixture.folder)))
    steps = range(first_step(run), run.training.steps + 1)
    blocks = [*_blocks(order, steps, left_out)]

    to = files.absolute(to)
    written = {
        "model": stage.label,
        "contents": stage.contents,
        "steps": [steps[0], steps[-1]],
        "part_tokens": PART_TOKENS,
        "columns": COLUMNS,
    }
    _check_folder(to, written)
    files.write_bytes(files.join(to, SUMMARY), _json(written | {"parts": len(blocks), "rows": None}))
    paths = [layout.part(files.join(to, FOLDER), number) for number in range(len(blocks))]
    missing = [number for number, path in enumerate(paths) if not files.exists(path)]
    pieces = read_pieces(order, chain.from_iterable(blocks[number] for number in missing), left_out)
    for number, table in zip(missing, _parts(pieces, [blocks[number] for number in missing]), strict=True):
        parquet.write_table(paths[number], table)
        say(f"steps {blocks[number][0]:,} to {blocks[number][-1]:,} of {steps[-1]:,}")
    rows = sum(map(parquet.rows, paths))
    files.write_bytes(files.join(to, SUMMARY), _json(written | {"parts": len(blocks), "rows": rows}))
    return ReadingOrder(to, stage.label, (steps[0], steps[-1]), len(blocks), rows)


def _json(value: dict) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _check_folder(to: str, written: dict) -> None:
    if not files.names(to):
        return
    try:
        there = orjson.loads(files.read_bytes(files.join(to, SUMMARY)))
    except (FileNotFoundError, orjson.JSONDecodeError):
        raise FileExistsError(f"{redact_url(to)} contains other files: choose another folder, or empty it") from None
    if {name: there.get(name) for name in written} != written:
        raise FileExistsError(
            f"{redact_url(to)} contains the reading order of another training or release: choose another folder, or "
            "empty it"
        )


def _blocks(order: Order, steps: range, left_out: LeftOut) -> Iterator[range]:
    """Steps that are a part together."""
    begin, tokens = steps.start, 0
    for step in steps:
        tokens += len(_samples(order, step, left_out)) * order.seq_len
        if tokens >= PART_TOKENS:
            yield range(begin, step + 1)
            begin, tokens = step + 1, 0
    if begin < steps.stop:
        yield range(begin, steps.stop)


def _samples(order: Order, step: int, left_out: LeftOut) -> range:
    return order.samples(batch_number(step - 1, left_out))


def read_pieces(order: Order, steps: Iterable[int], left_out: LeftOut = ()) -> Iterator[pa.RecordBatch]:
    """The pieces of documents (`SCHEMA`) that some steps, which count from 1, read, by step, sample and position.
    `left_out`: batches that the guard left out, as for `batch_number`. Reads the index of each shard once."""
    database = isolated_duckdb.connect(_SORT_BYTES)
    # the spans of a sample begin at different positions, and so do its pieces
    by_shard = _sorted(database, _SPANS, _spans(order, steps, left_out), "source, shard, step, sample, position")
    yield from _sorted(database.cursor(), SCHEMA, _pieces(order, by_shard), "step, sample, position")


def _sorted(
    connection: "duckdb.DuckDBPyConnection", schema: pa.Schema, batches: Iterator[pa.RecordBatch], columns: str
) -> Iterator[pa.RecordBatch]:
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return iter(connection.from_arrow(reader).order(columns).to_arrow_reader(BATCH_ROWS))


def _spans(order: Order, steps: Iterable[int], left_out: LeftOut) -> Iterator[pa.RecordBatch]:
    """Where the tokens of each sample are (`_SPANS`), in reading order."""
    rows = (
        (source, span.shard, step, sample, span.at, span.offset, span.length)
        for step in steps
        for samples in (_samples(order, step, left_out),)
        for sample, (source, _, window) in zip(samples, order.windows_of(samples), strict=True)
        for span in order.read[source].spans(window)
    )
    while some := [*islice(rows, BATCH_ROWS)]:
        yield pa.record_batch([*np.array(some, np.int64).T], schema=_SPANS)


def _pieces(order: Order, spans: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut spans, in the order of shards, at the ends of documents. Holds the index of a shard."""
    here, index = None, pa.table({})
    for batch in spans:
        rows = np.stack([column.to_numpy() for column in batch.columns], axis=1)
        begins = np.flatnonzero((rows[1:, :2] != rows[:-1, :2]).any(axis=1)) + 1
        for some in np.split(rows, begins):
            source, shard = some[0, :2].tolist()
            path = order.sources[source].shards[shard].path
            if here != (source, shard):
                here = source, shard
                index = parquet.read_table(f"{str(path).removesuffix('.bin')}.parquet", ["id", "offset", "length"])
            yield from _pieces_of_shard(order.sources[source].name, path, index, some[:, 2:]).to_batches()


def _pieces_of_shard(source: str, path: Path, index: pa.Table, spans: np.ndarray) -> pa.Table:
    """Cut spans (step, sample, position, offset, length) of the tokens of a shard at the documents' ends."""
    begins = index["offset"].to_numpy()
    ends = begins + index["length"].to_numpy()
    offsets, stops = spans[:, 3], spans[:, 3] + spans[:, 4]
    first = np.searchsorted(begins, offsets, side="right") - 1
    counts = np.searchsorted(begins, stops - 1, side="right") - first
    span = np.repeat(np.arange(len(spans)), counts)
    document = first[span] + np.arange(len(span)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.maximum(offsets[span], begins[document])
    columns = {
        "step": spans[span, 0],
        "sample": spans[span, 1],
        "position": spans[span, 2] + begin - offsets[span],
        "length": np.minimum(stops[span], ends[document]) - begin,
        "source": pa.array([source] * len(span), pa.string()),
        "id": index["id"].take(document).combine_chunks(),
        "begin": begin - begins[document],
        "shard": pa.array(["/".join(path.parts[-2:])] * len(span), pa.string()),
        "offset": begin,
    }
    return pa.table(columns).cast(SCHEMA)


def _parts(pieces: Iterable[pa.RecordBatch], blocks: Iterable[range]) -> Iterator[pa.Table]:
    """The pieces of each block, a table per block; blocks and pieces are sorted by step. Holds one block."""
    batches, rest = iter(pieces), SCHEMA.empty_table()
    for block in blocks:
        held: list[pa.Table] = []
        while True:
            here = int(np.searchsorted(rest["step"].to_numpy(), block.stop))
            held.append(rest[:here])
            rest = rest[here:]
            if len(rest) or (batch := next(batches, None)) is None:
                break
            rest = pa.Table.from_batches([batch]).cast(SCHEMA)
        yield pa.concat_tables(held).combine_chunks()
