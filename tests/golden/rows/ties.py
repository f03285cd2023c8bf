"""Rows whose thresholds are values that documents have: what `<` keeps and `<=` does not, and the other way around."""

from collections.abc import Callable
from statistics import median_high, median_low
from typing import Any

from gristmill.storage import parquet
from tests.golden.rows.models import HARM, HEADS, MILLS, SMALL
from tests.golden.rows.row import ANY, BOOKS, EDGES, EVERY, PERSONAL, WEB, Row, Settings, curated, recipe, thresholds
from tests.golden.run import Golden

Steps = Callable[[float], list[Settings]]


def values(golden: Golden, sources: list[Settings], steps: list[Settings], signal: str) -> list[float]:
    """What documents have of a signal, in ascending order."""
    corpus = curated(golden, recipe(sources, steps))
    assert corpus is not None
    found: list[float] = []
    for stage in corpus.measured:
        for shard in corpus.places.shards():
            if signal in parquet.columns(stage.part(shard)):
                column = parquet.read_table(stage.part(shard), [signal])[signal]
                found += [value for value in column.to_pylist() if value is not None]
    return sorted(found)


def _tied(golden: Golden, sources: list[Settings], loose: list[Settings], signal: str, strict: Steps) -> None:
    inner = values(golden, sources, loose, signal)
    least, most = inner[0], inner[-1]
    between = [value for value in inner if least < value < most] or inner
    for value in dict.fromkeys((median_low(between), median_high(between[: len(between) // 4 + 1]), most)):
        curated(golden, recipe(sources, strict(value)))


def _row(
    name: str,
    covers: tuple[str, ...],
    sources: list[Settings],
    loose: list[Settings],
    signal: str,
    strict: Steps,
    **more: Any,
) -> Row:
    return Row(
        f"tied-{name}", covers, lambda golden: _tied(golden, sources, loose, signal, strict), f"tied {name}", **more
    )


def _bounds(step: str, sources: list[Settings], before: list[Settings]) -> Row:
    """Each threshold of a rule set at a value of its signal, by itself."""

    def make(golden: Golden) -> None:
        free = dict.fromkeys(thresholds(step))
        for name in free:
            signal = f"{step}_{name.removeprefix('min_').removeprefix('max_')}"
            every = values(golden, sources, [*before, {"step": step, **free}], signal)
            value = every[len(every) // 2]
            curated(golden, recipe(sources, [*before, {"step": step, **free, name: value}]))

    return Row(f"tied-{step}", (step, "rules"), make, f"tied {step}")


HARMLESS: Settings = {"step": "toxicity", **HARM}
EMBEDDER: Settings = {"step": "embedding", "model": "{fixture}/models/embedder", "heads": HEADS}
TOPIC: Settings = {"step": "topic", "model": "{fixture}/models/topics.bin"}
LINES = [WEB, EDGES]

ROWS = (
    *(_bounds(step, [EDGES], []) for step in ("textbook", "gopher_quality", "fineweb_quality", "ccnet", "madlad")),
    _row(
        "toxicity",
        ("toxicity", "toxicity_cut"),
        LINES,
        [HARMLESS],
        "toxicity",
        lambda at: [{**HARMLESS, "max_score": at}],
    ),
    _row("toxicity-lines", ("toxicity",), LINES, [HARMLESS], "toxicity", lambda at: [{**HARMLESS, "line_score": at}]),
    _row(
        "toxicity-shares",
        ("toxicity", "toxicity_cut"),
        LINES,
        [HARMLESS],
        "toxicity_lines",
        lambda at: [{**HARMLESS, "max_lines": at}],
    ),
    _row(
        "quality",
        ("quality", "quality_cut"),
        [WEB, BOOKS],
        [{"step": "quality", **SMALL, "min_score": 0.0}],
        "quality",
        lambda at: [{"step": "quality", **SMALL, "min_score": at}],
    ),
    _row(
        "topic",
        ("topic",),
        [WEB],
        [TOPIC],
        "topic_score",
        lambda at: [{**TOPIC, "least_probability": at, "drop": ["other"]}],
    ),
    _row(
        "language",
        ("language",),
        [EVERY],
        [ANY],
        "language_score",
        lambda at: [{**ANY, "min_score": at, "unknown_below": at}],
    ),
    _row(
        "mixed_languages",
        ("mixed_languages",),
        [EDGES],
        [ANY, {"step": "mixed_languages"}],
        "other_languages",
        lambda at: [ANY, {"step": "mixed_languages", "max_share": at}],
    ),
    _row(
        "refinedweb_lines",
        ("refinedweb_lines",),
        [EDGES],
        [{"step": "refinedweb_lines", "max_removed_words": None}],
        "refinedweb_lines_removed_words",
        lambda at: [{"step": "refinedweb_lines", "max_removed_words": at}],
    ),
    _row(
        "pii",
        ("pii",),
        [PERSONAL],
        [{"step": "pii", "max_spans": None}],
        "pii_spans",
        lambda at: [{"step": "pii", "max_spans": int(at)}],
    ),
    _row(
        "embedding",
        ("embedding_cut",),
        [MILLS],
        [EMBEDDER],
        "embedding_grade",
        lambda at: [{**EMBEDDER, "min_score": {"grade": round(at, 1)}}],
        floats=("embedding_vectors", "embedding", "embedding_cut"),
    ),
)
