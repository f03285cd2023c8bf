"""The documents of a finished training in the order in which it read them, as a folder of Parquet files.

The order follows from the training manifest, the seed and the batches that the guard left out, as `batches` computes it
for one step. Documents come from the indexes of the token shards: each index is read at most once for each part.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from gristmill.flows.explore.search.readings import first_step, order_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import argument_of
from gristmill.flows.reports.finished import finished
from gristmill.flows.stages.model import local_files, local_mixture
from gristmill.samples.order import Order, batch_number
from gristmill.storage import checked_json, files, layout, parquet
from gristmill.storage.printable import redact_url
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.training.config import RunConfig
from gristmill.training.hub.weights import RUN
from gristmill.training.step.guard import EVENTS, read_events, windows_left_out

SUMMARY = "reading-order.json"
FOLDER = "data"
# Tokens of the steps in a part. A part takes a few hundred bytes of memory for each of its rows.
PART_TOKENS = 1 << 27
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

    A stopped export continues after its last part. Reads the indexes of token shards and no tokens; holds a part.
    `say`: prints progress. Raises NotFinishedError without a finished training, FileExistsError for a folder with
    other files.
    """
    settings = settings or MachineSettings()
    report = finished(target, settings)
    if report.data is None or report.trained is None:
        raise NotFinishedError(
            f"the training of {report.recipe.name} is not finished: run `gristmill run {argument_of(target)}`"
        )
    stage = report.trained.model
    names = [name for name in (RUN, EVENTS) if files.exists(files.join(stage.folder, name))]
    folder = local_files(settings, stage, names)
    run = RunConfig.model_validate(checked_json.read(str(folder / RUN)))
    left_out = windows_left_out(read_events(folder / EVENTS))
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
    rows = 0
    for number, block in enumerate(blocks):
        path = layout.part(files.join(to, FOLDER), number)
        if not files.exists(path):
            parquet.write_table(path, read_pieces(order, block, left_out))
            say(f"steps {block[0]:,} to {block[-1]:,} of {steps[-1]:,}")
        rows += parquet.rows(path)
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


def _blocks(order: Order, steps: range, left_out: Sequence[tuple[int, int]]) -> Iterator[range]:
    """Steps that are a part together."""
    begin, tokens = steps.start, 0
    for step in steps:
        tokens += len(_samples(order, step, left_out)) * order.seq_len
        if tokens >= PART_TOKENS:
            yield range(begin, step + 1)
            begin, tokens = step + 1, 0
    if begin < steps.stop:
        yield range(begin, steps.stop)


def _samples(order: Order, step: int, left_out: Sequence[tuple[int, int]]) -> range:
    return order.samples(batch_number(step - 1, left_out))


def read_pieces(order: Order, steps: range, left_out: Sequence[tuple[int, int]] = ()) -> pa.Table:
    """The pieces of documents (`SCHEMA`) that some steps, which count from 1, read. `left_out`: batches that the guard
    left out, as for `batch_number`."""
    spans: dict[tuple[int, int], list[tuple[int, int, int, int, int]]] = {}
    for step in steps:
        samples = _samples(order, step, left_out)
        for sample, (source, _, window) in zip(samples, order.windows_of(samples), strict=True):
            for span in order.read[source].spans(window):
                row = (step, sample, span.at, span.offset, span.length)
                spans.setdefault((source, span.shard), []).append(row)
    tables = [
        _pieces_of_shard(order.sources[source].name, order.sources[source].shards[shard].path, np.array(rows))
        for (source, shard), rows in sorted(spans.items())
    ]
    # no two pieces of a sample begin at the same position
    return pa.concat_tables(tables).sort_by([(name, "ascending") for name in ("step", "sample", "position")])


def _pieces_of_shard(source: str, path: Path, spans: np.ndarray) -> pa.Table:
    """Cut spans (step, sample, position, offset, length) of the tokens of a shard at the documents' ends."""
    index = parquet.read_table(f"{str(path).removesuffix('.bin')}.parquet", ["id", "offset", "length"])
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
