"""What the weights of a finished training have read, by source: from its training manifest and the guard's events.

Nothing records what a training read, since that follows from shares and steps. Separate: an SQL table, and read only
when a query needs it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.run.rows import Rows
from gristmill.flows.stages.heldout import Data
from gristmill.flows.stages.model import Trained, local_files
from gristmill.samples.order import batch_number, schedule_of
from gristmill.storage import checked_json, files, layout
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.config import TrainingConfig
from gristmill.training.start import offset_of
from gristmill.training.step.guard import EVENTS, read_events, windows_left_out

_TRAINING = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False, metadata={"what": "or the group of the mixture"}),
        pa.field("tokens", pa.int64(), nullable=False, metadata={"what": "that the source has for training"}),
        pa.field("share", pa.float64(), nullable=False, metadata={"what": "of what was read, in [0, 1]"}),
        pa.field("samples", pa.int64(), nullable=False, metadata={"what": "sequences that the weights learned from"}),
        pa.field("tokens_read", pa.int64(), nullable=False, metadata={"what": "tokens of these sequences"}),
        pa.field("epochs", pa.float64(), nullable=False, metadata={"what": "how often the source was read"}),
        pa.field("first_step", pa.int64(), metadata={"what": "first step, from 1, that read the source"}),
        pa.field("last_step", pa.int64(), metadata={"what": "last step that read the source"}),
    ]
)


@dataclass(frozen=True)
class SourceRead:
    """`samples`: sequences of a source that the final weights learned from; `windows`: those that an epoch has;
    `first_step`, `last_step`: that read some, None if none did."""

    source: str
    tokens: int
    samples: int
    windows: int
    first_step: int | None
    last_step: int | None


def rows(settings: MachineSettings, data: Data, trained: Trained) -> Rows:
    """A row for each source of the mixture."""
    seq_len = trained.model.manifest["record"]["model"]["seq_len"]

    def read(_: int, names: Sequence[str]) -> Iterator[pa.Table]:
        sources = read_by_source(settings, data, trained)
        total = sum(one.samples for one in sources)
        table: list[dict[str, Any]] = [
            {
                "source": one.source,
                "tokens": one.tokens,
                "share": one.samples / total if total else 0.0,
                "samples": one.samples,
                "tokens_read": one.samples * seq_len,
                "epochs": one.samples / one.windows if one.windows else 0.0,
                "first_step": one.first_step,
                "last_step": one.last_step,
            }
            for one in sources
        ]
        yield pa.Table.from_pylist(table, _TRAINING).select(names)

    path = files.join(data.mixture.folder, "mixture.json")
    key = layout.digest_of(["training", data.mixture.contents, trained.model.contents])
    return Rows(_TRAINING, (path,), read, key)


def read_by_source(settings: MachineSettings, data: Data, trained: Trained) -> list[SourceRead]:
    """What the final weights learned from, in the mixture's order, without the batches that the guard left out. Of a
    branch that goes on in the data of its trunk, what the trunk read of them is included."""
    record = trained.model.manifest["record"]
    training, seq_len = TrainingConfig.model_validate(record["training"]), record["model"]["seq_len"]
    manifest = TrainingManifest.model_validate(checked_json.read(files.join(data.mixture.folder, "mixture.json")))
    window = seq_len
    if training.objective != "causal":
        from gristmill.training.objectives import Objective  # here, since it imports torch

        window = Objective(training, seq_len, manifest).tokens - 1
    if manifest.row_length is None:
        windows = [(source.tokens - 1) // window for source in manifest.sources]
    else:
        windows = [sum(entry.rows for entry in source.rows) for source in manifest.sources]
    mean = [source.tokens / max(1, count) for source, count in zip(manifest.sources, windows, strict=True)]
    schedule = schedule_of(manifest, seq_len, mean)
    plan = training.batches(seq_len)
    trunk = record.get("trunk")
    offset = 0 if trunk is None else offset_of(plan, trunk["step"], trunk["samples"])
    there = [name for name in (EVENTS,) if files.exists(files.join(trained.model.folder, name))]
    left_out = windows_left_out(read_events(local_files(settings, trained.model, there) / EVENTS))

    def drawn(batch: int) -> list[int]:
        """Samples of each source in the batches before this one."""
        return schedule.counts(max(0, plan.first(batch) - offset))

    def learned(steps: int) -> list[int]:
        """Samples of each source in the batches of the first steps."""
        end = batch_number(steps - 1, left_out) + 1 if steps else 0
        samples = drawn(end)
        for first, stop in _merged(left_out, end):
            samples = [n - (b - a) for n, a, b in zip(samples, drawn(first), drawn(stop), strict=True)]
        return samples

    found = []
    for number, (count, of_epoch) in enumerate(zip(learned(training.steps), windows, strict=True)):
        source = manifest.sources[number]
        first, last = (
            bisect_left(range(training.steps + 1), least, key=lambda steps: learned(steps)[number]) if count else None
            for least in (1, count)
        )
        found.append(SourceRead(source.name, source.tokens, count, of_epoch, first, last))
    return found


def _merged(windows: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Ranges of batches before `end`, without overlaps."""
    merged: list[tuple[int, int]] = []
    for first, stop in sorted(windows):
        first, stop = max(first, merged[-1][1] if merged else 0), min(stop, end)
        if first < stop:
            merged.append((first, stop))
    return merged
