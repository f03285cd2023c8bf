"""The page of a plan: its sentences, memory and time of layouts, and what the laws say of as much compute."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from markupsafe import Markup

from gristmill.flows.experiments.planning.layouts import Choice
from gristmill.flows.experiments.planning.phase_costs import Range
from gristmill.flows.experiments.planning.plan import TrainingPlan
from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer
from gristmill.flows.reports.tables import Table
from gristmill.storage import files

MOST = 8  # layouts that are shown
PARTS = ("weights", "gradients", "optimizer", "gathered", "activations", "logits", "buffers")

OPTIONAL = ("#tensor", "#pipeline", "#bubble|.0%")  # columns that are shown if a layout has several of them
STATES = ("weights", "gradients", "optimizer", "gathered", "buffers")


def lines(made: TrainingPlan) -> Iterator[str]:
    """The plan in sentences."""
    at, best = made.devices, made.best
    yield (
        f"{made.recipe}: {made.parameters:,} parameters, {made.tokens:,} tokens in {made.steps:,} steps, "
        f"{made.flops:.3g} floating-point operations (6 N D: {made.compute_6nd:.3g}), "
        f"{made.tokens / made.parameters:,.1f} tokens per parameter"
    )
    if (again := made.repetition) is not None:
        yield (
            f"the corpus has {again.unique:,.0f} tokens, so training reads them {again.epochs:.2f} times, "
            f"which is equivalent to {again.worth:,.0f} unique tokens and adds {again.added_loss:.3f} nats "
            f"per token (Muennighoff); with the same compute, {again.best.parameters:,.0f} parameters on "
            f"{again.best.tokens:,.0f} tokens would be optimal"
        )
    if (serving := made.serving) is not None:
        yield (
            f"inference-aware (Sardana): {serving.parameters:,.0f} parameters on {serving.tokens:,.0f} "
            f"tokens reach the loss of {made.parameters:,} on Chinchilla's, with the fewest operations for "
            "training and serving together"
        )
    yield (
        f"{at.count} {at.name} at {at.mfu:.0%} of {at.sheet.flops / 1000000000000.0:,.1f} TFLOP/s, "
        f"{at.memory / 1000000000.0:,.0f} GB each, {at.machine} per machine: shards {best.layout.shards}, "
        f"replicas {best.layout.replicas}, tensor {best.layout.tensor}, pipeline {best.layout.pipeline}, "
        f"recompute {best.recompute}, micro_batch {best.micro_batch}, {best.seconds:.3g} s per step"
    )
    saved = made.checkpoints
    yield (
        f"checkpoints of {saved.bytes / 1000000000.0:,.1f} GB every {saved.steps:,} steps "
        f"({saved.interval / 60:,.0f} minutes, by Daly: one of the devices fails every "
        f"{saved.failures / 3600:,.1f} hours); saving and repeated training take {saved.lost:.2%}"
    )
    money = f", {made.bill.price:,.2f}" if made.price else ""
    yield f"training: {made.bill.hours:,.1f} hours, {made.bill.device_hours:,.1f} device hours{money}"
    if (ramp := made.ramp) is not None:
        yield (
            f"the finished run's gradient noise scale was {ramp.first:,.1f} sequences after the warm-up and "
            f"{ramp.last:,.1f} at its end; "
            + (
                f"batch_ramp: {ramp.setting} keeps batches at most a quarter of it, and reads the same "
                f"tokens in {ramp.steps:,} steps instead of {ramp.fixed_steps:,}"
                if ramp.stages
                else "twice its batch would be more than a quarter of that, so batch_ramp is not useful"
            )
        )
    if (crawl := made.bill.corpus) is not None:
        parts = [f"{crawl.documents:,} pages"]
        if crawl.core_hours is not None:
            parts.append(f"{crawl.core_hours.text(1)} core hours")
        if crawl.hours is not None:
            parts.append(f"{crawl.hours.text(1)} hours")
        parts.append(f"{crawl.bytes / 1e12:,.2f} TB")
        if crawl.computing is not None and crawl.computing.high:
            requesting = Range(crawl.requesting, crawl.requesting)
            parts += [(crawl.computing + requesting).text(2), f"{crawl.storing:,.2f} per month"]
        yield f"corpus: {', '.join(parts)}, based on a run over {crawl.measured:,} pages"
        if (total := made.bill.total) is not None and total.high:
            yield f"crawl to model: {total.text(2)}, without monthly costs of the home"
    yield from made.remarks


def laws(made: TrainingPlan) -> Table:
    """A row for each law: the best parameters and tokens of the same compute, and its loss."""
    columns = (
        "law",
        "#parameters|,.0f",
        "#tokens|,.0f",
        "#tokens per parameter|,.1f",
        "#loss, nats per token of its text|.3f",
    )
    return Table(
        columns, [(one.law, one.parameters, one.tokens, one.tokens / one.parameters, one.loss) for one in made.splits]
    )


def layouts(made: TrainingPlan) -> Table:
    """The first layouts: of the parallelism what a layout has, recomputation, micro-batch and how many, GB by part and
    in all, GB sent a step, seconds a step, tokens a second of a device, and memory and time as pictures. What none of
    them has is left out."""
    shown = made.choices[:MOST]
    slowest = max(max(one.computing, one.sending + one.waiting) for one in shown)
    rows = [_row(made, one, slowest) for one in shown]
    names = [name for name in rows[0] if name not in OPTIONAL or any(row[name] not in (1, 0) for row in rows)]
    return Table(names, [[row[name] for name in names] for row in rows])


def _row(made: TrainingPlan, one: Choice, slowest: float) -> dict[str, Any]:
    at, held, sent = one.layout, one.memory, one.traffic
    parts = [(name, getattr(held, part)) for name, part in zip(charts.SERIES, PARTS, strict=True)]
    waiting = charts.stack([("light", one.sending), ("cut", one.waiting)], slowest, f"{one.sending:.3g} s sent")
    return {
        "#shards": at.shards,
        "#replicas": at.replicas,
        "#tensor": at.tensor,
        "#pipeline": at.pipeline,
        "#recompute": one.recompute,
        "#micro-batch": f"{one.micro_batch} x {one.micro_batches}",
        "#states, GB|,.1f": sum(getattr(held, part) for part in STATES) / 1e9,
        "#activations|,.1f": held.activations / 1e9,
        "#logits|,.1f": held.logits / 1e9,
        "#all, GB|,.1f": held.total / 1e9,
        "#sent, GB|,.1f": (sent.gather + sent.replicas + sent.tensor + sent.pipeline) / 1e9,
        "#bubble|.0%": one.bubble,
        "#s per step|.3g": one.seconds,
        "#tokens/s|,.0f": made.tokens / made.steps / one.seconds / made.devices.count,
        "memory by part": charts.stack(parts, made.devices.usable, f"{held.total / 1e9:,.1f} GB"),
        "time of a step": charts.bar(one.computing, slowest) + waiting,
    }


def write(made: TrainingPlan, home: str) -> str:
    """Write the page into the home's `reports`, under the recipe and a hash of what the page has; returns its path."""
    content = page(made)
    return pages.write(home, f"plan-{made.recipe}-{files.digest(content.encode())[:16]}.html", content)


def page(made: TrainingPlan) -> str:
    """The page; the same plan gives the same bytes."""
    best, bill = made.best, made.bill
    return pages.render(
        "plan.html",
        plan=made,
        figures=[
            ("parameters", made.parameters),
            ("tokens", made.tokens),
            ("tokens per parameter", f"{made.tokens / made.parameters:,.1f}"),
            ("devices", f"{made.devices.count} {made.devices.name}"),
            ("hours", f"{bill.hours:,.1f}"),
            ("price", f"{bill.price:,.2f}" if made.price else None),
            ("memory per device", f"{best.memory.total / 1e9:,.1f} GB"),
        ],
        sentences=list(lines(made)),
        layouts=layouts(made),
        usable=made.devices.usable,
        parts=list(zip(charts.SERIES, PARTS, strict=True)),
        laws=laws(made),
        split=split(made),
    )


def split(made: TrainingPlan) -> Markup:
    """The splits of the plan's compute on the line of 6 N D, and the plan."""
    sizes = [one.parameters for one in made.splits] + [made.parameters]
    line = np.geomspace(min(sizes) / 2, max(sizes) * 2, 50)
    return charts.plot(
        "parameters and tokens for the same compute, by law",
        Axis("parameters", log=True),
        Axis("tokens", log=True),
        Layer("dotted", line, made.compute_6nd / 6 / line, "soft", "6 N D of this training"),
        *(
            Layer("points", [one.parameters], [one.tokens], charts.SERIES[1 + number % 5], one.law)
            for number, one in enumerate(made.splits)
        ),
        Layer("points", [made.parameters], [made.tokens], "cut", "this training"),
    )
