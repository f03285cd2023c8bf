"""What a step of a finished training read: the documents of its batch."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill.flows.experiments.models.evaluation import trained_model
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.lineage import rows_of
from gristmill.flows.reports.token_lineage import token_source
from gristmill.flows.stages.model import local_files
from gristmill.samples.order import Order, batch_number
from gristmill.storage import files, parquet
from gristmill.training.step.guard import EVENTS, read_events, windows_left_out

_PLACE = ["id", "source", "url", "file", "offset", "length", "record_id"]


@dataclass(frozen=True)
class BatchDocument:
    """A document of a batch. `tokens`: how many of its tokens the batch has; `shard`, `token`: the path of the token
    shard, and the number there of the first of them; `row`: its source, its URL and where its record is."""

    tokens: int
    shard: str
    token: int
    row: dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """The batch of a step, which counts from 1; `number`: the batch's own, which counts from 0 and is another one where
    the guard left batches out. `documents`: those with the most tokens first."""

    recipe: str
    step: int
    number: int
    samples: range
    tokens: int
    documents: tuple[BatchDocument, ...]


def batch_of(target: str, step: int, settings: MachineSettings | None = None) -> Batch:
    """What a finished recipe's training read at a step. Raises IndexError for a step that it did not make, and what
    `trained_model` raises; ValueError for a folder in the place of a recipe."""
    settings = settings or MachineSettings()
    model = trained_model(target, settings)
    run, data = model.saved.run, model.saved.data
    if model.report is None or model.report.trained is None or run is None or data is None:
        raise ValueError(f"{target} is the folder of a model: give its recipe, whose home has the documents")
    stage = model.report.trained.model
    names = [name for name in (EVENTS,) if files.exists(files.join(stage.folder, name))]
    left_out = windows_left_out(read_events(local_files(settings, stage, names) / EVENTS))
    steps = run.training.steps
    if not 1 <= step <= steps:
        raise IndexError(f"the training of {model.name} has the steps 1 to {steps:,}, so there is no step {step:,}")
    plan = run.training.batches(run.model.seq_len)
    order = Order(data, seq_len=run.model.seq_len, batch=plan, seed=run.training.data_seed)
    number = batch_number(step - 1, left_out)
    samples = order.samples(number)
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for source, _, window in order.windows_of(samples):
        for span in order.read[source].spans(window):
            path = str(data.sources[source].shards[span.shard].path)
            spans[path].append((span.offset, span.length))
    documents = [each for path, ranges in sorted(spans.items()) for each in _documents(settings.home, path, ranges)]
    documents.sort(key=lambda each: (-each.tokens, each.row["id"]))
    tokens = sum(length for ranges in spans.values() for _, length in ranges)
    return Batch(model.name, step, number, samples, tokens, tuple(documents))


def _documents(home: str, path: str, ranges: Sequence[tuple[int, int]]) -> list[BatchDocument]:
    """The documents of some ranges (offset, length) of the tokens of a shard. Reads its index."""
    index = parquet.read_table(f"{path.removesuffix('.bin')}.parquet", ["id", "offset", "length"])
    begins = index["offset"].to_numpy()
    ends = begins + index["length"].to_numpy()
    tokens: dict[int, int] = defaultdict(int)
    firsts: dict[int, int] = {}
    for offset, length in sorted(ranges):
        first = int(np.searchsorted(begins, offset, side="right")) - 1
        last = int(np.searchsorted(begins, offset + length - 1, side="right"))
        for at in range(first, last):
            begin = max(offset, int(begins[at]))
            tokens[at] += min(offset + length, int(ends[at])) - begin
            firsts.setdefault(at, begin)
    ids = index["id"].take(list(tokens)).to_pylist()
    source = token_source(home, path)
    rows = {row["id"]: row for row in rows_of(source.texts[0].part(source.number), ids, _PLACE)}
    return [
        BatchDocument(count, path, firsts[at], rows[name])
        for (at, count), name in zip(tokens.items(), ids, strict=True)
    ]
