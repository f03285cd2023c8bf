"""Results for the terminal: the report of a run, decisions, scaling laws, and the capacity of a crawl."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import wrapt
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gristmill.flows.cli.render.tables import funnel_table
from gristmill.storage.printable import redact_url

if TYPE_CHECKING:
    from gristmill.flows.experiments.decisions.report import ArmFigures, DecisionReport
    from gristmill.flows.experiments.planning import page
    from gristmill.flows.experiments.planning.capacity import Capacity
    from gristmill.flows.experiments.planning.plan import TrainingPlan
    from gristmill.flows.experiments.scaling import transfer
    from gristmill.flows.experiments.scaling.ladder import AgreementReport
    from gristmill.flows.experiments.scaling.report import ScalingReport
    from gristmill.flows.experiments.scaling.transfer import Coordinates, Sweep
    from gristmill.flows.machine.settings import MachineSettings
    from gristmill.flows.reports.run import Report
    from gristmill.flows.run import prefect_env
    from gristmill.flows.stats.law import Interval
    from gristmill.tasks.engine.make import StageResult
else:
    page = wrapt.lazy_import("gristmill.flows.experiments.planning.page")
    prefect_env = wrapt.lazy_import("gristmill.flows.run.prefect_env")
    transfer = wrapt.lazy_import("gristmill.flows.experiments.scaling.transfer")


def print_report(report: "Report", console: Console) -> None:
    """Print the funnel, what was made of losses and a sample of the model, the stages, and how to look at the run."""

    title = f"Funnel of {report.recipe.name}"
    console.print(funnel_table(title, report.steps, report.characters_per_token, report.tokens, console.width))
    if report.types:
        console.print(types_line(report.types), highlight=False)
    if report.engines:
        console.print(engines_line(report.engines), highlight=False)
    if report.mixture:
        console.print(mixture_line(report), highlight=False)
    sections = {"Outputs": [f"{'reused' if stage.reused else 'made  '}  {stage.folder}" for stage in report.stages]}
    looked_at = [prefect_line(*prefect_env.user_interface())]
    if report.trained:
        console.print(Group(*training_lines(report)), highlight=False)
        if report.result["sample"] is not None:
            sections = {"Sample": [report.result["sample"]], **sections}
        looked_at.append(mlflow_line(report.settings))
    if report.exported:
        sections["Exported"] = [exported_line(report.exported)]
    sections["Look at it"] = looked_at
    for name, lines in sections.items():
        console.print(f"\n[bold]{name}[/bold]")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


_TYPES = 8  # that a line names


def types_line(types: Mapping[str, int]) -> str:
    """The types of records of which no text is read."""
    shown = ", ".join(f"{name} {count:,}" for name, count in [*types.items()][:_TYPES])
    more = f", and {len(types) - _TYPES:,} types more" if len(types) > _TYPES else ""
    return f"no text is read of: {shown}{more}"


def engines_line(engines: Mapping[str, int]) -> str:
    """How many documents have the text of each engine that a union asked."""
    return f"texts by engine: {', '.join(f'{name} {count:,}' for name, count in engines.items())}"


def mixture_line(report: "Report") -> str:
    """What a model is trained on."""
    mixed = (f"{source.name} {source.share:.0%} ({source.epochs:.2f} epochs)" for source in report.mixture)
    return f"mixture: {', '.join(mixed)}"


def exported_line(stage: "StageResult") -> str:
    """What lies in the folder of an export."""
    counts = stage.result
    return f"{counts['documents']:,} documents, {counts['characters']:,} characters in {stage.folder}"


def training_lines(report: "Report") -> list[str]:
    """The model, and how well it predicts."""
    result, losses = report.result, report.training_losses
    return [
        f"model: {result['parameters']:,} parameters, {result['steps']} steps, {result['tokens']:,} tokens",
        f"training loss: {losses[0]:.4f} at the first step, {losses[-1]:.4f} at the last",
        f"unigram model: {result['unigram/loss']:.4f} nats/token, {result['unigram/bits_per_byte']:.4f} bits/byte",
        f"trained model: {result['heldout/loss']:.4f} nats/token, {result['heldout/bits_per_byte']:.4f} bits/byte "
        "(both on held-out documents, as they were extracted)",
        *(f"trained model: {value:.4f} bits/byte on {what}" for what, value in _other_sets(result).items()),
    ]


def _other_sets(result: Mapping[str, float]) -> dict[str, float]:
    """Bits per byte of what else a model was evaluated on, by what it is."""
    sets = {"those of them that the recipe keeps": result.get("survivors/bits_per_byte")}
    for name, value in result.items():
        if name.startswith("evaluation/") and name.endswith("/bits_per_byte") and name.count("/") == 2:
            sets[name.split("/")[1]] = value
    return {what: value for what, value in sets.items() if value is not None}


def prefect_line(address: str, home: str) -> str:
    """The address of the Prefect server, or the command that starts one on what has been recorded."""
    return f"Prefect: {redact_url(address)}" if address else f"PREFECT_HOME={home} {_programs()}/prefect server start"


def mlflow_line(settings: "MachineSettings") -> str:
    """The address of the MLflow server, or the command that starts one; without a password."""
    uri = redact_url(settings.tracking_uri)
    return f"MLflow: {uri}" if uri.startswith("http") else f"{_programs()}/mlflow ui --backend-store-uri {uri}"


def _programs() -> Path:
    return Path(sys.executable).parent


_WIDER_THAN_ANY = 100_000  # columns: a console else measures what fits into it


def print_decision(report: "DecisionReport", settings: "MachineSettings", console: Console) -> None:
    """Print the verdicts, the table beside them, what each step is worth, and how to look at the runs."""

    for sentence in [*report.sentences, *([report.tasks_note] if report.tasks_note else [])]:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for table in tables(report):
        print_fitting(table, console)
    console.print("\n[bold]Look at it[/bold]")
    looked_at = [prefect_line(*prefect_env.user_interface()), mlflow_line(settings)]
    looked_at.append(report.page)
    looked_at.append(f"in MLflow: experiment {report.base}, run `{report.headline}`")
    console.print("\n".join(looked_at), markup=False, highlight=False, soft_wrap=True)


def tables(report: "DecisionReport") -> Iterator[Table]:
    """What a decision has to show: verdicts, and where there are any, tasks and what steps are worth."""
    yield verdict_table(report)
    if report.tasks:
        yield task_table(report)
        yield screen_table(report)
    if report.attribution:
        yield attribution_table(report)


def print_fitting(table: Table, console: Console) -> None:
    """Print a table; where it is wider than the console, each row as a block with a line for each column."""
    wide = console.options.update(width=_WIDER_THAN_ANY)
    if console.measure(table, options=wide).maximum <= console.width:
        console.print(table)
        return
    console.print(f"{table.title}", style="table.title", markup=False)
    heads = [str(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        first, *others = [Text.from_markup(str(cell)).plain for cell in cells]
        console.print(first, style="bold", markup=False)
        for head, cell in zip(heads[1:], others, strict=True):
            if cell:
                console.print(f"  {head}: {cell}", markup=False, highlight=False)


def verdict_table(report: "DecisionReport") -> Table:
    """The base, and a row for each candidate."""
    table = Table("recipe", "verdict", title=Text(report.title), title_justify="left")
    for head in ("effect, bits per byte", f"{report.decision.protocol.level:.0%} interval", "pairs"):
        table.add_column(head, justify="right")
    for head in ("documents", "epochs", "CPU hours"):
        table.add_column(head, justify="right")
    table.add_row(escape(report.base), "the base", "", "", "", *_arm(report.arms[report.base]))
    for row in report.rows():
        effect = interval = ""
        if row["effect"] is not None:
            effect, interval = f"{row['effect']:+.4f}", f"{row['low']:+.4f} to {row['high']:+.4f}"
        arm = report.arms[row["candidate"]]
        table.add_row(escape(row["candidate"]), row["outcome"], effect, interval, str(row["pairs"]), *_arm(arm))
    return table


def task_table(report: "DecisionReport") -> Table:
    """A row for each candidate and task."""
    table = Table("recipe", "task", title=Text(f"Tasks: {report.title}"), title_justify="left")
    heads = ("bits per byte", "interval", "accuracy", f"of {report.base}", "difference", "interval", "chance")
    for head in heads:
        table.add_column(escape(head), justify="right")
    for name, tasks in report.tasks.items():
        for task in tasks:
            bits = report.task_effect(name, task.name)
            figures = [f"{bits.effect:+.4f}", f"{bits.low:+.4f} to {bits.high:+.4f}"] if bits else ["", ""]
            figures += [f"{task.accuracy:.1%}", f"{task.base:.1%}", f"{task.difference:+.1%}"]
            figures += [f"{task.low:+.1%} to {task.high:+.1%}", "" if task.chance is None else f"{task.chance:.1%}"]
            table.add_row(escape(name), escape(task.name), *figures)
    return table


def screen_table(report: "DecisionReport") -> Table:
    """A row for each task and measure: what FineTasks asks of a task."""
    table = Table("task", "by", title=Text(f"Which tasks say something: {report.title}"), title_justify="left")
    for head in ("examples", "above chance, standard errors", "rises", "order", "signal / noise"):
        table.add_column(head, justify="right")
    table.add_column("against it")
    for row in report.task_screen:
        figures = ["" if value is None else f"{value:+.1f}" for value in (row.above_chance, row.rises, row.order)]
        ratio = f"{row.signal / row.noise:.1f}" if row.noise else ""
        table.add_row(escape(row.name), row.measure, f"{row.examples:,}", *figures, ratio, "; ".join(row.fails))
    return table


def attribution_table(report: "DecisionReport") -> Table:
    """A row for each step: what is lost without it, and what it costs."""
    table = Table("step", title=Text(f"What each step is worth: {report.title}"), title_justify="left")
    for head in ("worth, bits per byte", "interval", "documents it costs", "CPU seconds it costs"):
        table.add_column(head, justify="right")
    for row in report.attribution:
        worth = interval = ""
        if row.worth is not None:
            worth, interval = f"{row.worth:+.4f}", f"{row.low:+.4f} to {row.high:+.4f}"
        cpu = "" if row.cpu_seconds is None else f"{row.cpu_seconds:.1f}"
        table.add_row(row.step, worth, interval, f"{row.documents:,}", cpu)
    return table


def _arm(arm: "ArmFigures") -> tuple[str, str, str]:
    hours = "" if arm.cpu_seconds is None else f"{arm.cpu_seconds / 3600:.4f}"
    return f"{arm.documents:,}", f"{arm.most_epochs:.2f}", hours


def print_scaling(report: "ScalingReport", out: "Console") -> None:
    """Print the law first, then its tables."""
    for text in (report.sentence, *report.remarks):
        _line(out, text)
    if report.forecasts:
        table = _table("parameters", "tokens", "compute", "forecast", "90% interval", "came", "")
        for row in report.forecast_rows():
            table.add_row(
                f"{row['parameters']:,}",
                f"{row['tokens']:,}",
                f"{row['reach']:.1f}x",
                f"{row['forecast']:.4f}",
                f"{row['low']:.4f} to {row['high']:.4f}",
                f"{row['loss']:.4f}",
                "inside" if row["inside"] else f"outside by {row['outside']:.2%}",
            )
        out.print(table)
        _line(out, report.forecast_sentence)
    if report.optima:
        table = _table("operations", "best parameters", "best tokens", "bits per byte")
        for best in report.optima:
            table.add_row(
                f"{best.compute:.2e}", _counts(best.parameters), _counts(best.tokens), _spread(best.loss, ".4f")
            )
        out.print(table)
    if report.future:
        table = _table("fit up to", "runs", "predicted", "reach", "mean error", "bias", "inside 90%")
        for future in report.future:
            table.add_row(
                f"{future.compute:.2e}",
                f"{future.fitted}",
                f"{future.predicted}",
                f"{future.reach:.1f}x",
                f"{future.error:.2%}",
                f"{future.bias:+.2%}",
                f"{future.inside} of {future.predicted}",
            )
        out.print(table)
    if report.page:
        _line(out, report.page)
    _line(out, f"MLflow: run scaling-{report.id[:8]} in the experiment {report.recipe}")


def print_agreement(report: "AgreementReport", out: "Console") -> None:
    """Print what was found, the recipes with their ranks, and how often each measure of each size agrees."""
    _line(out, report.sentence)
    table = _table("recipe", *(f"{count:,} parameters" for count in report.parameters))
    for row in report.arm_rows():
        both = zip(row["losses"], row["ranks"], strict=True)
        table.add_row(row["arm"], *(f"{loss:.4f} ({rank})" for loss, rank in both))
    out.print(table)
    table = _table(
        "measure", "parameters", "pairs in the largest's order", "90% interval", "clear at both", "of these in order"
    )
    for row in report.rows():
        table.add_row(
            row["measure"],
            f"{row['parameters']:,}",
            f"{row['accuracy']:.0%}",
            f"{row['low']:.0%} to {row['high']:.0%}",
            f"{row['told_apart']}",
            f"{row['same']}",
        )
    out.print(table)


def sweep_lines(sweep: "Sweep") -> Iterator[str]:
    """The loss of each size at each rate, the best marked by *."""
    yield f"{sweep.rule}: loss by size and learning rate, mean over seeds: {sweep.check.seeds}"
    yield f"{'width':>6} {'layers':>6}" + "".join(f"{rate:>10.3g}" for rate in sweep.check.rates)
    for size, row, best in zip(sweep.check.sizes, sweep.losses, sweep.best, strict=True):
        cells = "".join(f"{loss:>9.4f}{'*' if j == best else ' '}" for j, loss in enumerate(row))
        yield f"{size.dim:>6} {size.layers:>6}{cells}"
    edge = any(best in (0, len(sweep.check.rates) - 1) for best in sweep.best)
    hint = "; a best rate is at the edge: widen the rates" if edge else ""
    yield f"best rates differ from the base's by at most {sweep.moved} steps of the sweep{hint}"


def coordinate_lines(coordinates: "Coordinates") -> Iterator[str]:
    """How far things move at each size, and the slopes."""

    yield f"{coordinates.rule}: change by a few updates (root mean square), mean over seeds: {coordinates.check.seeds}"
    yield f"{'width':>6} {'layers':>6}" + "".join(f"{name:>13}" for name in transfer.PLACES)
    for size, row in zip(coordinates.check.sizes, coordinates.changes, strict=True):
        yield f"{size.dim:>6} {size.layers:>6}" + "".join(f"{value:>13.4g}" for value in row)
    yield "slope over size" + "".join(f"{slope:>13.2f}" for slope in coordinates.slopes)[2:]
    yield "0: flat, as the rate needs it to stay; 1: in proportion to the size"


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name == "recipe" else "right")
    return table


def _line(out: "Console", text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _counts(one: "Interval") -> str:
    return _spread(one, ",.0f")


def _spread(one: "Interval", form: str) -> str:
    return f"{one.value:{form}} ({one.low:{form}} to {one.high:{form}})"


def capacity_table(capacity: "Capacity") -> Table:
    """A row for each stage."""
    table = Table("stage", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("documents in", "documents out", "core hours", "hours", "GB"):
        table.add_column(name, justify="right")
    for row in capacity.stages:
        counts = ["" if n is None else f"{n:,}" for n in (row.documents_in, row.documents_out)]
        times = ["not measured" if n is None else f"{n:,.1f}" for n in (row.core_hours, row.hours)]
        table.add_row(row.stage, *counts, *times, f"{row.bytes / 1e9:,.1f}")
    return table


def capacity_lines(capacity: "Capacity") -> list[str]:
    """Sums, what limits, memory, requests and money, and what they were measured on."""
    machines, prices = capacity.machines, capacity.prices
    of = (
        f"{machines.cores:,} cores"
        if machines.number == 1
        else f"{machines.number:,} machines of {machines.cores:,} cores"
    )
    tokens = "" if capacity.tokens is None else f", {capacity.tokens / 1e9:,.1f} billion tokens"
    lines = [
        f"{capacity.documents:,} pages: {capacity.core_hours:,.0f} core hours, {capacity.hours:,.1f} hours with {of}, "
        f"{capacity.bytes / 1e12:,.2f} TB in the home{tokens}"
    ]
    if (limit := capacity.limit) is not None:
        how = "in one job" if limit.alone else f"{limit.jobs:,} jobs, {limit.workers:,} at a time"
        lines.append(f"longest: {limit.phase} of {limit.stage}, {limit.hours:,.1f} hours, {how}")
    if (largest := capacity.largest) is not None:
        memory = f"{(largest.memory or 0) / 1e9:,.1f} GB"
        lines.append(f"most memory: {largest.phase} of {largest.stage}, {memory} a job with its worker")
        if machines.memory is not None and (largest.memory or 0) > machines.memory:
            lines.append(f"that is more than a machine has: {machines.memory / 1e9:,.0f} GB")
    lines.append(
        f"{capacity.jobs:,} jobs, which keep flow and scheduler busy for {capacity.dispatching:,.1f} hours, and "
        f"{capacity.requests / 1e6:,.1f} million requests to the store"
    )
    if prices.core_hour or prices.terabyte_month or prices.million_requests:
        lines.append(
            f"{capacity.computing:,.2f} for the cores, {capacity.requesting:,.2f} for the requests, "
            f"{capacity.storing:,.2f} a month for the home"
        )
    if capacity.unmeasured:
        lines.append(f"without the time of {', '.join(capacity.unmeasured)}, which was not measured")
    lines.append(
        f"of the core hours {capacity.fixed:,.2f} are fixed: by process, for imports, kernels and tables, and by job, "
        "as much as the cheapest job of the run took; the rest grows with the pages"
    )
    if capacity.short:
        lines.append(
            f"too short in the run to say how they grow: {', '.join(capacity.short)}; for these run the recipe over "
            "more files"
        )
    return [*lines, f"by a run over {capacity.measured:,} pages; without the training"]


def plan_tables(plan: "TrainingPlan") -> list[Table]:
    """The layouts that fit, and the split of as much compute by each law."""

    layouts = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    rows = page.layouts(plan)
    for name in rows[0]:
        layouts.add_column(name, justify="right")
    for one in rows:
        layouts.add_row(*one.values())
    laws = Table("law", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("parameters", "tokens", "tokens a parameter", "loss"):
        laws.add_column(name, justify="right")
    for row in page.laws(plan):
        laws.add_row(*row)
    return [layouts, laws]
