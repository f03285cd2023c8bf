"""What a step of a finished training read: the documents of its batch, and what the weights before it lost on them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.flows.experiments.models.evaluation import TrainedModel, trained_model
from gristmill.flows.explore.search.readings import first_step, order_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.lineage import ORIGIN, rows_of
from gristmill.flows.reports.token_lineage import token_source
from gristmill.flows.stages.model import local_files, local_folder
from gristmill.samples.order import Order, batch_number
from gristmill.storage import files, parquet
from gristmill.storage.damage import DamagedFileError
from gristmill.training.checkpoint.keeping import COMMIT, fetch_checkpoint, folder_name, stored
from gristmill.training.config import CHECKPOINTS, RunConfig
from gristmill.training.decoder import parameter_count
from gristmill.training.evaluate.batch_losses import DocumentLoss, batch_losses
from gristmill.training.hub.weights import SavedModel, open_model
from gristmill.training.run.recovery import CHECKED
from gristmill.training.step.guard import EVENTS, Event, read_events, windows_left_out
from gristmill.training.world import processes


@dataclass(frozen=True)
class BatchDocument:
    """A document of a batch. `tokens`: how many of its tokens the batch has; `shard`, `token`: the path of the token
    shard, and the number there of the first of them; `row`: its source, its URL and where its record is; `loss`: nats
    per token of those that are targets, None where it was not computed, or none is one."""

    tokens: int
    shard: str
    token: int
    row: dict[str, Any]
    loss: float | None = None


@dataclass(frozen=True)
class SpikeAtStep:
    """A spike of the loss that the guard saw in the steps `began` to `seen`, in batches that the model was then not
    trained on. `why`: the likely cause; `to`: the step that it went back to, None where it ended the run; `documents`:
    those that it named, with the losses of the weights before the spike."""

    began: int
    seen: int
    why: str
    to: int | None
    documents: tuple[BatchDocument, ...]


@dataclass(frozen=True)
class BatchReplay:
    """Losses in nats per token of the weights after `checkpoint` steps, not trained on anything since: `loss` on the
    batch, `level` on the `earlier` batches of the same mixture before it. Without any, `level` is `loss`."""

    checkpoint: int
    loss: float
    level: float
    earlier: int


@dataclass(frozen=True)
class Batch:
    """The batch of a step, which counts from 1; `number`: the batch's own, which counts from 0 and is another one where
    the guard left batches out. `documents`: those with the most tokens first, or with `replay` those that add most to
    its loss."""

    recipe: str
    step: int
    number: int
    samples: range
    tokens: int
    documents: tuple[BatchDocument, ...]
    replay: BatchReplay | None = None
    spikes: tuple[SpikeAtStep, ...] = ()


def batch_of(
    target: str,
    step: int,
    settings: MachineSettings | None = None,
    losses: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Batch:
    """What a finished recipe's training read at a step. `losses`: also the loss of each document, by the weights of the
    newest checkpoint before the step, on a GPU if there is one; `say` is told what that takes before it begins.

    Raises IndexError for a step that it did not make, what `trained_model` raises, and ValueError for a folder in the
    place of a recipe, or without a checkpoint before the step.
    """
    settings = settings or MachineSettings()
    model = trained_model(target, settings)
    run, data = model.saved.run, model.saved.data
    if model.report is None or model.report.trained is None or run is None or data is None:
        raise ValueError(f"{target} is the folder of a model: give its recipe, whose home has the documents")
    stage = model.report.trained.model
    names = [name for name in (EVENTS,) if files.exists(files.join(stage.folder, name))]
    events = read_events(local_files(settings, stage, names) / EVENTS)
    left_out = windows_left_out(events)
    _check_step(model.name, run, step)
    order = order_of(run, data)
    number = batch_number(step - 1, left_out)
    samples = order.samples(number)
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for source, _, window in order.windows_of(samples):
        for span in order.read[source].spans(window):
            path = str(data.sources[source].shards[span.shard].path)
            spans[path].append((span.offset, span.length))
    earlier = [batch_number(before - 1, left_out) for before in range(max(first_step(run), step - CHECKED), step)]
    replay, of_documents = _replayed(settings, model, order, step, number, earlier, say) if losses else (None, {})
    documents = [
        each for path, ranges in sorted(spans.items()) for each in _documents(settings.home, path, ranges, of_documents)
    ]
    documents.sort(key=lambda each: (_added(each, replay), -each.tokens, each.row["id"]))
    tokens = sum(length for ranges in spans.values() for _, length in ranges)
    at_step = [event for event in events if event.began and event.began <= step <= event.step]
    spikes = tuple(_spike(settings.home, event) for event in at_step)
    return Batch(model.name, step, number, samples, tokens, tuple(documents), replay, spikes)


def _check_step(name: str, run: RunConfig, step: int) -> None:
    """Raise IndexError for a step that a training did not make."""
    steps, first = run.training.steps, first_step(run)
    if first <= step <= steps:
        return
    trunk = "" if run.start is None or first == 1 else f" (those before are of {run.start.trunk})"
    raise IndexError(
        f"the training of {name} has the steps {first:,} to {steps:,}{trunk}, so there is no step {step:,}"
    )


def _added(document: BatchDocument, replay: BatchReplay | None) -> float:
    """What sorts the documents that add most to a loss first."""
    if replay is None or document.loss is None:
        return 0.0
    return -(document.loss - replay.level) * document.tokens


def _replayed(
    settings: MachineSettings,
    model: TrainedModel,
    order: Order,
    step: int,
    number: int,
    earlier: Sequence[int],
    say: Callable[[str], None],
) -> tuple[BatchReplay, dict[tuple[str, int], DocumentLoss]]:
    """The losses on a batch of the weights in the newest checkpoint before a step; by document, named by the path of
    its shard and the number there of its first token."""
    run, data = model.saved.run, model.saved.data
    assert run is not None and data is not None, "it is the model of a recipe"
    checkpoint, saved = _before(settings, model, step)
    with processes(timeout_seconds=600) as world:
        size = parameter_count(run.model, data.vocab_size)
        read = sum(order.plan.size(each) for each in (number, *earlier)) * run.model.seq_len
        say(
            f"computing losses of the weights after step {checkpoint:,}: {size:,} parameters read {read:,} tokens, "
            f"without training, on {world.device.type}"
        )
        weights = saved.load().to(world.device)
        arguments = run.training, data.end_of_text, world
        of_batch = batch_losses(weights, order, [number], *arguments)
        level = batch_losses(weights, order, earlier, *arguments).loss if earlier else of_batch.loss
    by_document = {(each.shard, each.token): each for each in of_batch.documents}
    return BatchReplay(checkpoint, of_batch.loss, level, len(earlier)), by_document


def _before(settings: MachineSettings, model: TrainedModel, step: int) -> tuple[int, SavedModel]:
    """The newest checkpoint before a step: its own steps, and its model. Raises ValueError where none is left."""
    assert model.report is not None and model.report.trained is not None and model.saved.run is not None
    folder, start = model.report.trained.model.folder, model.saved.run.start
    steps = stored(files.join(folder, CHECKPOINTS))
    if earlier := [each for each in steps if each < step]:
        root = Path(local_folder(settings, folder)) / CHECKPOINTS
        path = root / folder_name(max(earlier))
        if not (path / COMMIT).exists():
            path = fetch_checkpoint(files.join(folder, CHECKPOINTS), max(earlier), root)
        return max(earlier), open_model(path, model.saved.run.data)
    if start is not None and start.step < step and (Path(start.address) / COMMIT).exists():
        return start.step, open_model(Path(start.address))
    there = ", ".join(f"{each:,}" for each in sorted(steps)) or "none"
    raise ValueError(
        f"no checkpoint before step {step:,} is left of {model.name}, which has those of steps {there}; set "
        "training.keep_every for later trainings, or name a later step"
    )


def _documents(
    home: str, path: str, ranges: Iterable[tuple[int, int]], losses: Mapping[tuple[str, int], DocumentLoss]
) -> list[BatchDocument]:
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
    rows = {row["id"]: row for row in rows_of(source.texts[0].part(source.number), ids, ORIGIN)}
    found = []
    for (at, count), name in zip(tokens.items(), ids, strict=True):
        loss = losses.get((path, int(begins[at])))
        found.append(BatchDocument(count, path, firsts[at], rows[name], None if loss is None else loss.loss))
    return found


def _spike(home: str, event: Event) -> SpikeAtStep:
    """The documents that the guard named, with their ids, those that add most to the spike first."""
    found: list[BatchDocument] = []
    for each in event.documents:
        path = files.join(home, "stages", each.shard)
        try:
            [document] = _documents(home, path, [(each.token, 1)], {})
        except (FileNotFoundError, LookupError, DamagedFileError):  # the tokens are gone, and with them the ids
            document = BatchDocument(0, path, each.token, {"id": "", "source": each.source})
        found.append(replace(document, tokens=each.tokens, loss=each.loss))
    assert event.began is not None, "it is a spike"
    return SpikeAtStep(event.began, event.step, event.why, event.to, tuple(found))
