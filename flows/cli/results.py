"""Results for the terminal: the summary of a run, decisions, scaling laws, and the capacity of a crawl."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import wrapt
from rich.console import RenderableType
from rich.text import Text

from gristmill.flows.machine.runs import runs_of
from gristmill.flows.machine.settings import DEFAULT_HOME, MachineSettings
from gristmill.flows.recipe.recipe import argument_of
from gristmill.flows.reports import funnel
from gristmill.flows.reports.dependents.retractions import stale_lines
from gristmill.flows.reports.tables import Table, listed
from gristmill.storage import files, layout
from gristmill.storage.printable import redact_url

if TYPE_CHECKING:
    from gristmill.flows.experiments.decisions import page as decision_page
    from gristmill.flows.experiments.decisions.report import DecisionReport
    from gristmill.flows.experiments.planning.capacity import Capacity
    from gristmill.flows.experiments.scaling import report as scaling_report
    from gristmill.flows.experiments.scaling import transfer
    from gristmill.flows.experiments.scaling.report import ScalingReport
    from gristmill.flows.experiments.scaling.transfer import Coordinates, Sweep
    from gristmill.flows.reports import recorded
    from gristmill.flows.reports.run import Run, source_losses
    from gristmill.flows.run import server
    from gristmill.flows.stages import group_losses, removal
    from gristmill.tasks.dedup import takedowns
    from gristmill.tasks.engine import shared
    from gristmill.tasks.engine.make import StageResult
else:
    decision_page = wrapt.lazy_import("gristmill.flows.experiments.decisions.page")
    group_losses = wrapt.lazy_import("gristmill.flows.stages.group_losses")
    recorded = wrapt.lazy_import("gristmill.flows.reports.recorded")
    scaling_report = wrapt.lazy_import("gristmill.flows.experiments.scaling.report")
    source_losses = wrapt.lazy_import("gristmill.flows.reports.run.source_losses")
    removal = wrapt.lazy_import("gristmill.flows.stages.removal")
    takedowns = wrapt.lazy_import("gristmill.tasks.dedup.takedowns")
    shared = wrapt.lazy_import("gristmill.tasks.engine.shared")
    server = wrapt.lazy_import("gristmill.flows.run.server")
    transfer = wrapt.lazy_import("gristmill.flows.experiments.scaling.transfer")


# With more shards, hints are only on the page of a run, because they read the signals of each shard.
MAX_ENTRIES = 3  # of takedown lists that are named
MAX_HINT_SHARDS = 200


def run_parts(report: "Run", recipe: str, settings: Sequence[str] = ()) -> Iterator[RenderableType | Table]:
    """Yield everything that a flow prints at its end. `recipe`, `settings`: the argument and `--set` of the command,
    for the next commands."""
    title = f"Funnel of {report.recipe.name}"
    yield funnel.table(report.steps, report.characters_per_token, report.tokens, title)
    if report.types:
        yield types_line(report.types)
    if report.relabeled:
        yield relabeled_line(report.relabeled)
    yield from report.date_lines
    yield from funnel.damage_lines(report.corpus)
    if report.empty_files:
        yield f"files without records, up to 3 of each source: {', '.join(report.empty_files)}"
    if report.engines:
        yield f"texts by engine: {listed(report.engines)}"
    if report.mixture:
        yield mixture_line(report)
    if report.trained:
        yield from training_lines(report)
        if report.result["sample"] is not None:
            yield Text("\nSample", style="bold")
            yield report.result["sample"]
    yield Text(f"\n{report.recipe.name}", style="bold")
    yield from card_lines(report, recipe, settings)


def card_lines(report: "Run", recipe: str, settings: Sequence[str] = ()) -> Iterator[str]:
    """Yield the summary of a finished run: kept documents, the rule that dropped most, large losses of groups, hints,
    and next commands."""
    yield kept_line(report)
    if (most := most_dropped_line(report)) is not None:
        yield most
    if report.group_losses is not None:
        yield from group_losses.sentences(report.group_losses.result)
        yield from source_losses.sentences(report.source_losses)
    yield from takedown_lines(report)
    if report.exported:
        yield f"exported: {exported_line(report.exported)}"
    typed = argument_of(recipe)
    if len(report.corpus.sources) <= MAX_HINT_SHARDS:
        for hint in report.hints():
            yield f"hint: {hint.sentence}{':' * (not settings)}"
            if not settings:  # these commands have no --set
                yield f"  {hint.command(typed)}"
    yield from served_pages(report.settings, bool(report.trained))
    yield "next:"
    yield from (f"  {command}" for command in next_commands(report, typed, settings))


def kept_line(report: "Run") -> str:
    """`kept: 1,204 of 4,560 documents (26.4%), 1,234,567 tokens`; before there are tokens, characters."""
    first, last = report.steps[0].documents_in, funnel.funnel(report.corpus.stages)[-1]
    share = f" ({last.documents_out / first:.1%})" if first else ""
    size = f"{report.tokens:,} tokens" if report.tokens is not None else f"{last.characters_out or 0:,} characters"
    return f"kept: {last.documents_out:,} of {first:,} documents{share}, {size}"


def most_dropped_line(report: "Run") -> str | None:
    """Return the rule that dropped most documents of the corpus; None if no document was dropped."""
    rows = funnel.funnel(report.corpus.stages)
    drops = [(count, row, rule) for row in rows for rule, count in row.drops.items() if count]
    if not drops:
        return None
    count, row, rule = max(drops, key=lambda one: one[0])
    return f"most dropped by {row.step}.{rule}: {count:,} of the {row.documents_in:,} documents that reached the step"


def takedown_lines(report: "Run") -> Iterator[str]:
    """Name entries of takedown lists that named no document: a typo in a list is not an error of any step. Entries that
    a step `url` matched, or a recipe that is rewritten, are not named."""
    made = next((stage for stage in report.document_stages if stage.name == "takedowns"), None)
    if made is None or len(report.corpus.sources) > MAX_HINT_SHARDS:
        return
    lists = removal.takedown_lists(recorded.open_run(report.settings, report.recipe)[0], report.recipe)
    home = report.settings.home
    run = next(iter(runs_of(home, report.recipe.name)), None)
    labels = () if run is None else [each for each in run.stages if each.startswith(("takedowns-", "documents-"))]
    folders = dict.fromkeys([made.folder, *(files.join(home, "stages", label) for label in labels)])
    there = [each for each in folders if layout.manifest(each) is not None]
    if unmatched := takedowns.unmatched_entries(lists, there):
        shown = ", ".join(unmatched[:MAX_ENTRIES])
        more = f" and {len(unmatched) - MAX_ENTRIES:,} more" if len(unmatched) > MAX_ENTRIES else ""
        yield f"takedown entries that name no curated document: {shown}{more}"


def next_commands(report: "Run", recipe: str, settings: Sequence[str] = ()) -> Iterator[str]:
    """Yield up to three commands to run next. `recipe`: quoted for a shell; `settings`: of a run with `--set`, which
    not all commands can open.

    The first shows the model in MLflow if the run trained one, else the documents. The last exports the model, trains
    if there are tokens, or exports the documents if the run did not.
    """
    changes = "".join(f" --set {shlex.quote(setting)}" for setting in settings)
    yield f"gristmill {'ui' if report.trained else f'browse {recipe}{changes}'}"
    yield f"gristmill report {recipe}{changes}"
    name = report.recipe.name
    # these run missing stages, so they need the limit of the run
    limit = "" if report.recipe.limit is None else f" --limit {report.recipe.limit}"
    if settings and (report.trained or report.tokens is None):
        return
    if report.trained and report.recipe.training.objective == "masked":
        yield f"gristmill train evaluate {recipe}"
    elif report.trained:
        yield f"gristmill export model {recipe} --to {name}-model"
    elif report.tokens is not None:
        yield f"gristmill run {recipe}{changes}{limit}"
    elif not report.exported:
        yield f"gristmill export documents {recipe} --to {name}-documents{limit}"


def _section(name: str, *lines: str) -> Iterator[RenderableType]:
    yield Text(f"\n{name}", style="bold")
    yield from lines


_MAX_TYPES = 8  # in a line


def types_line(types: Mapping[str, int]) -> str:
    """Return the types of records whose text is not extracted."""
    more = f", and {len(types) - _MAX_TYPES:,} more types" if len(types) > _MAX_TYPES else ""
    return f"types without text: {listed(types, _MAX_TYPES)}{more}"


def relabeled_line(pairs: Mapping[str, int]) -> str:
    """Return the number of documents that were not read in the encoding that they declare."""
    more = f", and {len(pairs) - _MAX_TYPES:,} more pairs" if len(pairs) > _MAX_TYPES else ""
    return (
        f"{sum(pairs.values()):,} documents declare a wrong encoding and were read in the right one: "
        f"{listed(pairs, _MAX_TYPES)}{more}"
    )


def mixture_line(report: "Run") -> str:
    """Return the mixture that a model is trained on."""
    mixed = (f"{source.name} {source.share:.0%} ({source.epochs:.2f} epochs)" for source in report.mixture)
    part = ""
    if report.data is not None and (branch := report.data.branch) is not None:
        # a trunk that reads the same data has read the first samples of the mixture
        part = f", with {branch.samples:,} samples that the trunk read" if branch.samples else " after the trunk"
    return f"mixture{part}: {', '.join(mixed)}"


def exported_line(stage: "StageResult") -> str:
    """Return the contents of the folder of an export."""
    counts = stage.result
    return f"{counts['documents']:,} documents, {counts['characters']:,} characters in {stage.folder}"


def training_lines(report: "Run") -> list[str]:
    """Return the size of the model and its losses."""
    result, losses = report.result, report.training_losses
    counted = "of masked tokens only, " if report.recipe.training.objective == "masked" else ""
    return [
        f"model: {result['parameters']:,} parameters, {result['steps']} steps, {result['tokens']:,} tokens",
        *_branch_lines(report),
        f"training loss: {losses[0]:.4f} at the first step, {losses[-1]:.4f} at the last",
        f"unigram model: {result['unigram/loss']:.4f} nats/token, {result['unigram/bits_per_byte']:.4f} bits/byte",
        f"trained model: {result['heldout/loss']:.4f} nats/token, {result['heldout/bits_per_byte']:.4f} bits/byte "
        f"({counted}both on held-out documents as extracted)",
        *(f"trained model: {value:.4f} bits/byte on {name}" for name, value in _other_sets(result).items()),
    ]


def _branch_lines(report: "Run") -> Iterator[str]:
    """Yield which steps and tokens of a branch are its own."""
    if report.data is None or (branch := report.data.branch) is None:
        return
    training, seq_len = report.recipe.training, report.recipe.model.seq_len
    tokens = training.token_budget(seq_len) - training.tokens_read(branch.step, seq_len)
    yield (
        f"branch: steps and tokens include the {branch.step:,} steps of the trunk, model-{branch.key[:8]}; this recipe "
        f"trained {training.steps - branch.step:,} steps on {tokens:,} tokens"
    )


def _other_sets(result: Mapping[str, float]) -> dict[str, float]:
    """Return the bits per byte of a model on other evaluation sets, by their names."""
    sets = {"held-out documents that the recipe keeps": result.get("survivors/bits_per_byte")}
    for name, value in result.items():
        if name.startswith("evaluation/") and name.endswith("/bits_per_byte") and name.count("/") == 2:
            sets[name.split("/")[1]] = value
    return {name: value for name, value in sets.items() if value is not None}


def served_pages(settings: MachineSettings, trained: bool = True) -> Iterator[str]:
    """Yield the addresses of configured servers that show the recorded runs. `trained`: whether MLflow has a run."""
    prefect, mlflow = server.named(), redact_url(settings.tracking_uri)
    if prefect is not None:
        yield f"Prefect: {redact_url(prefect[1])}"
    if mlflow.startswith("http") and trained:
        yield f"MLflow: {mlflow}"


def run_pages(settings: MachineSettings, trained: bool = True) -> Iterator[str]:
    """Yield the addresses of configured servers, and the command that shows runs without such a server."""
    yield from served_pages(settings, trained)
    if server.named() is None or (trained and not settings.tracking_uri.startswith("http")):
        is_default = settings.home == str(Path(DEFAULT_HOME).resolve())
        yield "gristmill ui" if is_default else f"gristmill ui --home {shlex.quote(redact_url(settings.home))}"


def decision_parts(report: "DecisionReport", settings: MachineSettings) -> Iterator[RenderableType | Table]:
    """Yield the verdicts, their tables, the worth of each step, and the pages of the runs."""
    yield from stale_lines(report.stale)
    yield from report.sentences
    if report.tasks_note:
        yield report.tasks_note
    yield from decision_page.tables(report)
    run = f"MLflow: experiment {report.base}, run `{report.headline}`"
    yield from _section("Pages", *run_pages(settings), report.page, run)


def scaling_parts(report: "ScalingReport") -> Iterator[RenderableType | Table]:
    """Yield the law, then its tables."""
    yield from stale_lines(report.stale)
    yield from (report.sentence, *report.remarks)
    for sentence, table in scaling_report.scaling_tables(report):
        yield table
        if sentence:
            yield sentence
    if report.page:
        yield report.page
    yield f"MLflow: run scaling-{report.id[:8]} in the experiment {report.recipe}"


def sweep_lines(sweep: "Sweep") -> Iterator[str]:
    """Yield the loss of each size at each rate, with * at the best rate."""
    yield f"{sweep.rule}: loss by size and learning rate, mean of {sweep.check.seeds} seeds"
    yield f"{'width':>6} {'layers':>6}" + "".join(f"{rate:>10.3g}" for rate in sweep.check.learning_rates)
    for size, row, best in zip(sweep.check.models, sweep.losses, sweep.best, strict=True):
        cells = "".join(f"{loss:>9.4f}{'*' if j == best else ' '}" for j, loss in enumerate(row))
        yield f"{size.dim:>6} {size.layers:>6}{cells}"
    edge = any(best in (0, len(sweep.check.learning_rates) - 1) for best in sweep.best)
    hint = ". A best rate is at the edge: add more rates" if edge else ""
    yield f"best rates differ from the base's by at most {sweep.moved} steps of the sweep{hint}"


def coordinate_lines(coordinates: "Coordinates") -> Iterator[str]:
    """Yield the change of activations at each size, and the slopes."""
    yield f"{coordinates.rule}: change after a few updates (RMS), mean of {coordinates.check.seeds} seeds"
    yield f"{'width':>6} {'layers':>6}" + "".join(f"{name:>13}" for name in transfer.PLACES)
    for size, row in zip(coordinates.check.models, coordinates.changes, strict=True):
        yield f"{size.dim:>6} {size.layers:>6}" + "".join(f"{value:>13.4g}" for value in row)
    yield "slope over size" + "".join(f"{slope:>13.2f}" for slope in coordinates.slopes)[2:]
    yield "0: constant, so the learning rate can be kept; 1: proportional to the size"


def capacity_lines(capacity: "Capacity") -> list[str]:
    """Return hours, memory, requests and prices, their basis, and the command that measures missing values."""
    crawl = capacity.crawl
    machines = (
        f"{crawl.cores:,} cores" if crawl.machines == 1 else f"{crawl.machines:,} machines of {crawl.cores:,} cores"
    )
    hours = "core hours: unknown"
    if (core_hours := capacity.core_hours) is not None:
        hours = f"{core_hours.text()} core hours"
        if capacity.hours is not None:
            hours += f", {capacity.hours.text(1)} hours on {machines}"
    tokens = "" if capacity.tokens is None else f", {capacity.tokens / 1e9:,.1f} billion tokens"
    lines = [f"{capacity.documents:,} pages: {hours}, {capacity.bytes / 1e12:,.2f} TB in the home{tokens}"]
    if core_hours is not None and (limit := capacity.limit) is not None:
        how = "in one job" if limit.alone else f"{limit.jobs:,} jobs, {limit.workers:,} at a time"
        lines.append(f"longest phase: {limit.label}, {limit.hours.text(1)} hours, {how}")
    if (largest := capacity.largest) is not None:
        memory = f"{(largest.memory or 0) / 1e9:,.1f} GB"
        lines.append(f"largest memory: {largest.label}, {memory} per job with its worker")
        if crawl.memory_bytes is not None and (largest.memory or 0) > crawl.memory_bytes:
            lines.append(f"this exceeds the memory of a machine: {crawl.memory:,.0f} GB. Use larger machines")
    if capacity.without_memory:
        lines.append(
            f"memory unknown, because the jobs of the run used too little: {_several(capacity.without_memory)}"
        )
    lines.append(f"{capacity.jobs:,} jobs, and {capacity.requests / 1e6:,.1f} million requests to the store")
    lines.append(_scheduling(capacity))
    if crawl.core_hour or crawl.terabyte_month or crawl.million_requests:
        cores = "unknown" if capacity.computing is None else capacity.computing.text(2)
        lines.append(
            f"price: {cores} for cores, {capacity.requesting:,.2f} for requests, {capacity.storing:,.2f} per month for "
            "the home"
        )
    if capacity.unmeasured:
        lines.append(f"without job sizes, which are no longer in the home: {_several(capacity.unmeasured)}")
    gaps = capacity.gaps if core_hours is None else capacity.time_gaps
    if gaps and capacity.remedy:
        what = "core hours" if core_hours is None else "hours"
        reasons = _several([f"{phase.label} ({phase.basis.gap})" for phase in gaps])
        lines.append(f"{what} unknown, because the run does not show how these grow: {reasons}")
    if capacity.remedy:
        first = f"{capacity.preparation}, then run" if capacity.preparation else "run"
        lines.append(f"to measure, {first}: {capacity.remedy}")
    return [
        *lines,
        f"based on a run over {capacity.measured:,} pages; ranges are 95% intervals. Bytes, requests and tokens are "
        "proportional to the pages. Excludes training",
    ]


def _scheduling(capacity: "Capacity") -> str:
    """Return what flow and scheduler cost at the requested cores, from how many they are the limit, and the basis."""
    line = f"flow and scheduler, in one thread, are busy for {capacity.scheduling.text(1)} hours"
    if (cores := capacity.scheduler_cores) is not None:
        line += f", and are the limit from {_about(cores.low)} to {_about(cores.high)} cores on"
    elif capacity.core_hours is not None:
        line += ", and are not the limit with any number of cores"
    return (
        f"{line}. This assumes {1e3 * shared.TASK_COST:g} ms per task of one or more jobs and "
        f"{1e3 * shared.JOB_COST:g} ms per job, as measured on one idle machine of two cores"
    )


def _about(number: float) -> str:
    """Return a number with two significant digits."""
    return f"{float(f'{number:.2g}'):,.0f}"


MAX_NAMED = 6


def _several(names: Sequence[str]) -> str:
    """Return the first of some names, and the number of others."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
