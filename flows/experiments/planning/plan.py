"""The plan of a recipe's training: its time and memory on given devices, and the cost of training and corpus."""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import wrapt

from gristmill.flows.experiments.options import PlanOptions
from gristmill.flows.experiments.planning.capacity import Capacity, capacity
from gristmill.flows.experiments.planning.laws import (
    Ramp,
    Split,
    inference_aware,
    ramp,
    repeated_loss,
    repeated_split,
    splits,
    worth,
)
from gristmill.flows.experiments.planning.layouts import Choice, Devices, Work, choices
from gristmill.flows.experiments.planning.memory import FLOAT, Counts, counts, optimizer_bytes
from gristmill.flows.experiments.planning.phase_costs import Range
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.given_files import check_tokenizer_file
from gristmill.flows.recipe.options import spread
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.settings_file import Value
from gristmill.flows.recipe.trunk import trained_tokens
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.run import Run
from gristmill.flows.stats.law import ScalingLaw, TokenCost
from gristmill.storage import checked_json, files
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.training.config import TrainingConfig
from gristmill.training.hardware import asked_sheet

if TYPE_CHECKING:
    from gristmill.training import decoder
else:
    decoder = wrapt.lazy_import("gristmill.training.decoder")


@dataclass(frozen=True)
class Checkpoints:
    """`bytes`: size of a checkpoint, weights and optimizer of all ranks; `stall`: seconds that training waits for it;
    `failures`: seconds between two failures; `interval`: seconds of training between two checkpoints; `steps`: the same
    in steps; `lost`: the share of time for saving and for training again after failures."""

    bytes: float
    stall: float
    failures: float
    interval: float
    steps: int
    lost: float


def young(stall: float, failures: float) -> float:
    """Young 1974: sqrt(2 delta M), the first-order optimal interval between two checkpoints."""
    return math.sqrt(2 * stall * failures)


def daly(stall: float, failures: float) -> float:
    """Daly 2006, equation 37: a higher order, also valid for slow checkpoints; seconds of work between the end of one
    checkpoint and the beginning of the next."""
    if stall >= 2 * failures:
        return failures
    x = math.sqrt(stall / (2 * failures))
    return young(stall, failures) * (1 + x / 3 + x * x / 9) - stall


def checkpoints(
    training: TrainingConfig, parameters: Counts, devices: int, copied: float, step: float, device_hours: float
) -> Checkpoints:
    """The checkpoints of a training. `copied`: bytes per second from a device to its machine's memory, for which
    training waits (files are written in the background); `step`: seconds of a step; `device_hours`: hours of one device
    between failures, each of which ends the run."""
    size = FLOAT * parameters.whole + optimizer_bytes(training, parameters)
    stall = size / devices / copied
    failures = device_hours * 3600 / devices
    interval = daly(stall, failures)
    lost = stall / (interval + stall) + (interval + stall) / (2 * failures)
    return Checkpoints(size, stall, failures, interval, max(1, round(interval / step)), lost)


@dataclass(frozen=True)
class Repetition:
    """A training that reads more tokens than the corpus has, according to Muennighoff et al. 2023. `worth`: the
    equivalent number of new tokens; `added_loss`: the loss minus the loss on the same number of new tokens, in nats per
    token of their text; `best`: the split of the same compute by their law."""

    unique: float
    epochs: float
    worth: float
    added_loss: float
    best: Split


@dataclass(frozen=True)
class Bill:
    """The total cost of training. `hours`: duration, including checkpoints and lost work; `device_hours`: of all
    devices; `price`: of these; `corpus`: the cost of the crawl, None without a finished run."""

    hours: float
    device_hours: float
    price: float
    corpus: Capacity | None

    @property
    def total(self) -> Range | None:
        """The price of everything except storing the home; None if the price of the crawl is unknown."""
        if self.corpus is None:
            return Range(self.price, self.price)
        if self.corpus.computing is None:
            return None
        rest = self.price + self.corpus.requesting
        return self.corpus.computing + Range(rest, rest)


@dataclass(frozen=True)
class TrainingPlan:
    """`tokens`: of training; `flops`: of the whole training, as counted by the model; `compute_6nd`: 6 N D; `splits`:
    the best parameters and tokens for the same compute, by law; `choices`: layouts that fit, the fastest first; `ramp`:
    larger batches that the noise of the finished run allows, None without such a run; `remarks`: what is unknown, and
    why."""

    recipe: str
    vocab_size: int
    parameters: int
    tokens: int
    steps: int
    flops: float
    devices: Devices
    price: float
    splits: tuple[Split, ...]
    serving: Split | None
    repetition: Repetition | None
    choices: tuple[Choice, ...]
    checkpoints: Checkpoints
    bill: Bill
    ramp: Ramp | None = None
    remarks: tuple[str, ...] = ()

    @property
    def compute_6nd(self) -> float:
        return 6.0 * self.parameters * self.tokens

    @property
    def best(self) -> Choice:
        return self.choices[0]

    def settings(self) -> dict[str, Value]:
        """The best layout as settings of a recipe's `training`."""
        best, layout = self.best, self.best.layout
        more = {"tensor": layout.tensor, "pipeline": layout.pipeline}
        every = min(self.steps, self.checkpoints.steps)
        return {
            "micro_batch": best.micro_batch,
            "recompute": best.recompute,
            "parallel": {"replicas": layout.replicas, **{name: size for name, size in more.items() if size > 1}},
            "checkpoint_every": every,
        }

    def as_json(self) -> dict[str, Any]:
        """All values for `--json`."""
        values = asdict(self) | {"compute_6nd": self.compute_6nd}
        for row, one in zip(values["choices"], self.choices, strict=True):
            row["seconds"] = one.seconds
            row["memory"]["total"] = one.memory.total
        corpus = self.bill.corpus
        sums = ("core_hours", "hours", "bytes", "requests", "computing", "storing", "requesting")
        values["bill"]["corpus"] = None if corpus is None else {name: getattr(corpus, name) for name in sums}
        values["bill"]["total"] = self.bill.total
        return values


@spread
def plan(recipe: Any, options: PlanOptions, settings: MachineSettings | None = None) -> TrainingPlan:
    """Plan the training of a recipe on given devices. Trains nothing, and needs no device. If the corpus of the recipe
    is finished, the bill includes the cost of the crawl (`capacity`).

    Raises ValueError for a device without a data sheet, for invalid shares, and if no layout fits, and the errors of
    `load`.

    Args:
        recipe: in any form that `load` accepts
        settings: default: from the environment
    """
    name = recipe if isinstance(recipe, str) else ""
    recipe, settings = load(recipe), settings or MachineSettings()
    hardware, devices = _devices(options), options.devices
    remarks: list[str] = []
    report = _finished(recipe, settings, remarks)
    work = _work(recipe, settings, report)
    parameters, tokens = work.parameters.whole, recipe.training.token_budget(recipe.model.seq_len)
    compute = float(work.flops) * tokens
    own = _own_law(recipe, settings, options.law, remarks)
    unique = options.corpus_tokens if options.corpus_tokens is not None or report is None else report.tokens
    layouts = choices(work, hardware, options.tensor, options.pipeline)
    seconds, lasting = layouts[0].seconds, options.failure_hours
    saved = checkpoints(recipe.training, work.parameters, devices, hardware.sheet.host, seconds, lasting)
    trained = trained_tokens(settings, recipe)
    if trained < tokens:
        remarks.append(
            f"training begins with {recipe.training.init_from}, so hours and price are those of the remaining "
            f"{trained:,} of {tokens:,} tokens"
        )
    steps = trained / (recipe.training.batch * recipe.model.seq_len)
    if saved.lost >= 1:
        raise ValueError(
            f"{devices} devices, each of which fails every {lasting:,.0f} hours, leave no time to train between "
            f"checkpoints of {saved.stall:,.0f} seconds; use fewer devices, or a larger --failure-hours"
        )
    hours = steps * seconds / 3600 / (1 - saved.lost)
    crawl = None if report is None else capacity(report, options, name)
    if crawl is not None and crawl.core_hours is None:
        remarks.append(
            "the core hours of the crawl are unknown, so the price from crawl to model is unknown too: "
            f"`gristmill decide capacity {crawl.recipe}` shows which phases the finished run does not "
            "measure, and how to measure them"
        )
    return TrainingPlan(
        recipe=recipe.name,
        vocab_size=work.vocab_size,
        parameters=parameters,
        tokens=tokens,
        steps=recipe.training.steps,
        flops=compute,
        devices=hardware,
        price=options.price,
        splits=tuple(splits(compute, own)),
        serving=None if options.served is None else inference_aware(parameters, options.served),
        repetition=None if unique is None or tokens <= unique else _repetition(parameters, tokens, unique),
        choices=tuple(layouts),
        checkpoints=saved,
        bill=Bill(hours, hours * devices, hours * devices * options.price, crawl),
        ramp=None if report is None else ramp(report.metrics, recipe.training, recipe.model.seq_len),
        remarks=tuple(remarks),
    )


def _devices(options: PlanOptions) -> Devices:
    sheet = asked_sheet(options.device, options.mfu)
    count, machine, network = options.devices, options.machine_devices, options.network
    for what, value in (("--devices", count), ("--machine-devices", machine), ("--network", network)):
        if value <= 0:
            raise ValueError(f"{what} {value:g} is not above 0; correct it")
    held = sheet.memory if options.device_memory is None else options.device_memory * 1e9
    return Devices(options.device, sheet, count, min(machine, count), network * 1e9 / 8, options.mfu, held)


def _work(recipe: Recipe, settings: MachineSettings, report: Run | None) -> Work:
    training = recipe.training
    if report is not None and report.data is not None:
        vocabulary = checked_json.read(files.join(report.data.mixture.folder, "mixture.json"))["vocab_size"]
    else:
        vocabulary = check_tokenizer_file(settings, recipe) or recipe.tokenizer.vocab_size
    return Work(
        recipe.model, training, vocabulary, counts(recipe.model, vocabulary),
        decoder.flops_per_token(recipe.model, vocabulary),
        product=4 if training.precision == "fp32" else 2,
        compiled=training.compile is not False,
    )  # fmt: skip


def _finished(recipe: Recipe, settings: MachineSettings, remarks: list[str]) -> Run | None:
    if files.is_local(settings.home) and not files.exists(files.join(settings.home, "stages")):
        remarks.append(f"the home {settings.home} has no finished run, so the cost does not include the corpus")
        return None
    try:
        return finished(recipe, settings)
    except (NotFinishedError, RecipeError, FileNotFoundError) as error:
        remarks.append(f"no finished run of {recipe.name}, so the cost does not include the corpus: {error}")
        return None


def _own_law(
    recipe: Recipe, settings: MachineSettings, path: str | None, remarks: list[str]
) -> tuple[ScalingLaw, TokenCost] | None:
    """The law that `gristmill decide scale` fitted for the recipe, and its cost of a token."""
    if path is None:
        folder = files.join(settings.home, "scaling")
        names = [n for n in files.names(folder) if n.startswith(f"{recipe.name}-")] if files.exists(folder) else []
        if len(names) != 1:
            if names:
                remarks.append(f"{len(names)} laws of {recipe.name} are in {folder}: choose one with --law")
            return None
        path = files.join(folder, names[0])
    record = checked_json.read(path)
    values = {name: interval["value"] for name, interval in record["law"].items()}
    return ScalingLaw(**values), TokenCost(**record["token_cost"])


def _repetition(parameters: float, tokens: float, unique: float) -> Repetition:
    added = repeated_loss(parameters, tokens, unique) - repeated_loss(parameters, tokens, tokens)
    best = repeated_split(6 * parameters * tokens, unique)
    return Repetition(unique, tokens / unique, worth(tokens, unique), added, best)
