"""A plan in words and in tables, for the terminal."""

from collections.abc import Iterator

from gristmill.flows.planning.layouts import Choice
from gristmill.flows.planning.plan import TrainingPlan

MOST = 8  # layouts that are shown
PARTS = ("weights", "gradients", "optimizer", "gathered", "activations", "logits", "buffers")

ENGINES = ("tensor", "pipeline", "bubble")  # columns of layouts that our own loop has not
STATES = ("weights", "gradients", "optimizer", "gathered", "buffers")


def lines(made: TrainingPlan) -> Iterator[str]:
    """The plan in sentences."""
    at, best = made.devices, made.best
    yield (
        f"{made.recipe}: {made.parameters:,} parameters, {made.tokens:,} tokens in {made.steps:,} steps, "
        f"{made.flops:.3g} floating-point operations (6 N D: {made.compute_6nd:.3g}), "
        f"{made.tokens / made.parameters:,.1f} tokens a parameter"
    )
    if (again := made.repetition) is not None:
        yield (
            f"the corpus has {again.unique:,.0f} tokens, so training reads them {again.epochs:.2f} times, which is "
            f"worth {again.worth:,.0f} new ones and adds {again.added_loss:.3f} nats a token (Muennighoff); of "
            f"the same compute {again.best.parameters:,.0f} parameters on {again.best.tokens:,.0f} tokens would be best"
        )
    if (serving := made.serving) is not None:
        yield (
            f"inference-aware (Sardana): {serving.parameters:,.0f} parameters on {serving.tokens:,.0f} tokens are as "
            f"good as {made.parameters:,} on Chinchilla's, with the fewest operations of training and serving together"
        )
    yield (
        f"{at.count} {at.name} at {at.mfu:.0%} of {at.sheet.flops / 1e12:,.1f} TFLOP/s, {at.memory / 1e9:,.0f} GB "
        f"each, {at.machine} a machine: shards {best.layout.shards}, replicas {best.layout.replicas}, tensor "
        f"{best.layout.tensor}, pipeline {best.layout.pipeline}, recompute {best.recompute}, micro_batch "
        f"{best.micro_batch}, {best.seconds:.3g} s a step"
    )
    saved = made.checkpoints
    yield (
        f"checkpoints of {saved.bytes / 1e9:,.1f} GB every {saved.steps:,} steps ({saved.interval / 60:,.0f} minutes, "
        f"by Daly: one of the devices fails every {saved.failures / 3600:,.1f} hours); saving and training again take "
        f"{saved.lost:.2%}"
    )
    money = f", {made.bill.price:,.2f}" if made.price else ""
    yield f"training: {made.bill.hours:,.1f} hours, {made.bill.device_hours:,.1f} device hours{money}"
    if (ramp := made.ramp) is not None:
        yield (
            f"the finished run's gradient noise scale was {ramp.first:,.1f} sequences after the warm-up, "
            f"{ramp.last:,.1f} at its end; "
            + (
                f"batch_ramp: {ramp.setting} keeps batches at most a quarter of it, and reads the same tokens in "
                f"steps: {ramp.steps:,}, not {ramp.fixed_steps:,}"
                if ramp.stages
                else "twice its batch would be more than a quarter of that, so no batch_ramp"
            )
        )
    if (crawl := made.bill.corpus) is not None:
        paid = f", {crawl.computing + crawl.requesting:,.2f}, {crawl.storing:,.2f} a month" if crawl.computing else ""
        yield (
            f"corpus: {crawl.documents:,} pages, {crawl.core_hours:,.1f} core hours, {crawl.hours:,.1f} hours, "
            f"{crawl.bytes / 1e12:,.2f} TB{paid}"
        )
        if made.bill.total:
            yield f"crawl to model: {made.bill.total:,.2f}, without the months of the home"
    yield from made.remarks


def laws(made: TrainingPlan) -> Iterator[tuple[str, ...]]:
    """A row for each law: its name, the best parameters, tokens and tokens a parameter of the same compute, its
    loss."""
    for one in made.splits:
        loss = "" if one.loss is None else f"{one.loss:.3f}"
        yield one.law, f"{one.parameters:,.0f}", f"{one.tokens:,.0f}", f"{one.tokens / one.parameters:,.1f}", loss


def layouts(made: TrainingPlan) -> list[dict[str, str]]:
    """The first layouts, by column: of the parallelism what a layout has, recomputation, micro-batch and how many, GB
    by part and in all, GB sent a step, seconds a step, tokens a second of a device. What none of them has is left
    out."""
    rows = [_row(made, one) for one in made.choices[:MOST]]
    idle = [name for name in ENGINES if all(row[name] in ("1", "0%") for row in rows)]
    return [{name: value for name, value in row.items() if name not in idle} for row in rows]


def _row(made: TrainingPlan, one: Choice) -> dict[str, str]:
    at, held, sent = one.layout, one.memory, one.traffic
    tokens = made.tokens / made.steps / one.seconds / made.devices.count
    return {
        "shards": f"{at.shards}",
        "replicas": f"{at.replicas}",
        "tensor": f"{at.tensor}",
        "pipeline": f"{at.pipeline}",
        "recompute": one.recompute,
        "micro-batch": f"{one.micro_batch} x {one.micro_batches}",
        "states, GB": f"{sum(getattr(held, part) for part in STATES) / 1e9:,.1f}",
        "activations": f"{held.activations / 1e9:,.1f}",
        "logits": f"{held.logits / 1e9:,.1f}",
        "all, GB": f"{held.total / 1e9:,.1f}",
        "sent, GB": f"{(sent.gather + sent.replicas + sent.tensor + sent.pipeline) / 1e9:,.1f}",
        "bubble": f"{one.bubble:.0%}",
        "s a step": f"{one.seconds:.3g}",
        "tokens/s": f"{tokens:,.0f}",
    }
