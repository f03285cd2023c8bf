"""The steps of trainings that read a document, and how often: the reverse of `batches`.

What a training read is not recorded, because it follows from its seed: a window of tokens has one place in the order of
each epoch, and that place has one sample.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.machine.runs import recipes_by_stage
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.stages.model import local_files, local_mixture
from gristmill.samples.order import Order, batch_number, step_of
from gristmill.storage import checked_json, files, parquet
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.home import FinishedStage, Home
from gristmill.storage.training_manifest import TrainingManifest, load_training_manifest
from gristmill.tasks.engine.make import StageResult
from gristmill.training.config import RunConfig
from gristmill.training.hub.weights import RUN
from gristmill.training.objectives import objective
from gristmill.training.step.guard import EVENTS, read_events, windows_left_out

log = logging.getLogger(__name__)

LeftOut = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class TokenRange:
    """The tokens of a document in a shard. `source`: its number in the mixture; `begin`, `end`: in the whole source."""

    source: int
    begin: int
    end: int


@dataclass(frozen=True)
class Reading:
    """What a training read of a document. `stage`: the training's label; `recipes`: names; `trained`: steps of the
    training; `tokens`: of the document in its shards; `steps`: by step, from 1, how many of these tokens are in its
    batch; `left_out`: batches with some of them that the guard left out; `unread`: tokens that are in no window, at the
    end of a source."""

    document: str
    stage: str
    recipes: tuple[str, ...]
    trained: int
    tokens: int
    steps: dict[int, int]
    left_out: int
    unread: int

    @property
    def times(self) -> float:
        """How often its tokens were read, on average."""
        return sum(self.steps.values()) / self.tokens


def readings(prefix: str, settings: MachineSettings | None = None) -> Iterator[Reading]:
    """What each finished training of the home read of the documents whose ids begin with `prefix`, including trainings
    that read nothing of them although their mixture has them. Holds the ids of a shard, and the steps of a training.

    Models of a home in an object store are read through the local folder. Raises LookupError if no training of the home
    has such a document in its tokens.
    """
    settings = settings or MachineSettings()
    found = trainings = 0
    for training in _trainings(settings, lambda ids: pc.starts_with(ids, prefix)):
        trainings += 1
        for reading in training:
            found += 1
            yield reading
    if not found:
        raise LookupError(
            f"none of the {trainings:,} finished trainings in {settings.home} has a document in its tokens whose id "
            f"begins with {prefix}; `gristmill explain lineage {prefix}` shows where it was dropped"
        )


def readings_of(ids: Collection[str], settings: MachineSettings, models: Collection[str]) -> Iterator[Reading]:
    """As `readings`, for documents by id and trainings by label. Yields nothing for a document that is not in the
    tokens of a training."""
    wanted = pa.array(sorted(ids), pa.string())
    for training in _trainings(settings, lambda each: pc.is_in(each, wanted), models):
        yield from training


def recorded_run(settings: MachineSettings, stage: StageResult | FinishedStage) -> tuple[RunConfig, LeftOut]:
    """The settings of a finished training, and the batches that its guard left out, as for `batch_number`."""
    names = [name for name in (RUN, EVENTS) if files.exists(files.join(stage.folder, name))]
    folder = local_files(settings, stage, names)
    run = RunConfig.model_validate(checked_json.read(str(folder / RUN)))
    return run, windows_left_out(read_events(folder / EVENTS))


def order_of(run: RunConfig, manifest: TrainingManifest) -> Order:
    """The order of a finished training."""
    return Order(
        manifest,
        seq_len=run.model.seq_len,
        batch=run.training.batches(run.model.seq_len),
        seed=run.training.data_seed,
        transform=objective(run.training, run.model.seq_len, manifest),
        offset=run.start.offset if run.start else 0,
    )


def first_step(run: RunConfig) -> int:
    """The first step that read the run's own mixture. A branch with a different mixture than its trunk begins later."""
    return run.start.step + 1 if run.start and not run.start.same_data else 1


_Mask = Callable[[pa.ChunkedArray], pa.ChunkedArray]


def _trainings(
    settings: MachineSettings, mask: _Mask, models: Collection[str] | None = None
) -> Iterator[Iterator[Reading]]:
    """For each training, what it read of the documents whose ids a mask chooses."""
    recipes = recipes_by_stage(settings.home)
    for stage in Home(settings.home).stages("model"):
        mixture = stage.input("mixture")
        if mixture is None or (models is not None and stage.label not in models):
            continue
        yield _of_training(settings, stage, mixture, mask, tuple(recipes.get(stage.label, ())))


def _of_training(
    settings: MachineSettings, stage: FinishedStage, mixture: FinishedStage, mask: _Mask, recipes: tuple[str, ...]
) -> Iterator[Reading]:
    try:
        manifest = load_training_manifest(local_mixture(settings, mixture.folder))
        documents = _ranges(manifest, mask)
    except (FileNotFoundError, DamagedFileError) as error:  # `home gc` may have removed the tokens
        log.warning("%s: what it read is unknown, because its tokens cannot be read: %s", stage.label, error)
        return
    for document, ranges in documents.items():
        yield _reading(settings, stage, manifest, document, ranges, recipes)


def _ranges(manifest: TrainingManifest, mask: _Mask) -> dict[str, list[TokenRange]]:
    """By document its tokens in the shards of a mixture. Reads the ids of all shards, one after the other."""
    found: dict[str, list[TokenRange]] = {}
    for number, source in enumerate(manifest.sources):
        start = 0
        for shard in source.shards:
            index = parquet.read_table(f"{str(shard.path).removesuffix('.bin')}.parquet", ["id", "offset", "length"])
            for row in index.filter(mask(index["id"])).to_pylist():
                begin = start + row["offset"]
                found.setdefault(row["id"], []).append(TokenRange(number, begin, begin + row["length"]))
            start += shard.tokens
    return found


def _reading(
    settings: MachineSettings,
    stage: FinishedStage,
    manifest: TrainingManifest,
    document: str,
    ranges: list[TokenRange],
    recipes: tuple[str, ...],
) -> Reading:
    run, left_out = recorded_run(settings, stage)
    order = order_of(run, manifest)
    first = first_step(run)
    end = order.samples(batch_number(run.training.steps - 1, left_out)).stop
    steps: Counter[int] = Counter()
    skipped: set[int] = set()
    unread = 0
    for each in ranges:
        read = np.zeros(each.end - each.begin, bool)
        for window in order.read[each.source].near(each.begin, each.end):
            tokens = 0
            for begin, stop in _places(order, each.source, window):
                begin, stop = max(begin, each.begin), min(stop, each.end)
                tokens += max(0, stop - begin)
                read[max(0, begin - each.begin) : max(0, stop - each.begin)] = True
            for sample in order.samples_of(each.source, window, end) if tokens else ():
                number = order.plan.number_of(sample)
                step = step_of(number, left_out)
                if step is None:
                    skipped.add(number)
                elif step + 1 >= first:
                    steps[step + 1] += tokens
        unread += int((~read).sum())
    tokens = sum(each.end - each.begin for each in ranges)
    return Reading(
        document, stage.label, recipes, run.training.steps, tokens, dict(sorted(steps.items())), len(skipped), unread
    )


def _places(order: Order, source: int, window: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each range of tokens in a window, counted in the source."""
    for span in order.read[source].spans(window):
        begin = order.tokens[source].starts[span.shard] + span.offset
        yield begin, begin + span.length
