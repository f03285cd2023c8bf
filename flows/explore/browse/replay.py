"""Try another threshold on a finished corpus: what it would drop, and which documents would enter and leave."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.explore.browse.draws import Draw, DrawnDocument, add_drawn, documents
from gristmill.flows.explore.browse.opened import Opened
from gristmill.flows.recipe.steps import thresholds_of
from gristmill.flows.reports.whatif import ComparedStep, Replay, ShardReplay, funnel, whatif
from gristmill.storage import parquet
from gristmill.tasks.documents.step import Bound, DocumentStep

EXAMPLES = 5  # documents shown that enter, and that leave


@dataclass(frozen=True)
class Threshold:
    """A setting of a step that can be replayed, and the rule and signal that it belongs to if it is a number.

    `ends`: the smallest and the largest valid value, if both are known."""

    step: str
    setting: str
    value: Any
    rule: str = ""
    signal: str = ""
    ends: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        return f"{self.step}.{self.setting}"

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)


@dataclass
class Moved:
    """Documents that enter, or that leave. `documents`: their number; `examples`: some of them, drawn with the seed."""

    documents: int = 0
    examples: list[DrawnDocument] = field(default_factory=list)
    drawn: list[Draw] = field(default_factory=list, repr=False)

    def add(self, shard: int, ids: pa.ChunkedArray, seed: int) -> None:
        self.documents += len(ids)
        self.drawn = add_drawn(self.drawn, shard, ids, EXAMPLES, seed)


@dataclass(frozen=True)
class Replayed:
    """The new funnel compared with the recorded one, and the documents that enter and leave after the replayed
    steps."""

    changes: dict[str, Any]
    rows: list[ComparedStep]
    enter: Moved
    leave: Moved
    behind: tuple[str, ...]
    unchanged: bool


class SupersededError(RuntimeError):
    """Another replay was requested."""


class Replays:
    """Runs one replay at a time: a newer one stops the previous one."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._one, self.newest = threading.Lock(), 0

    def replay(self, changes: dict[str, Any], seed: int) -> Replayed:
        """Decide again, with one shard for each core at a time. Raises SupersededError, and the errors of `whatif`."""
        self.newest += 1
        number = self.newest
        with self._one:

            def check() -> None:
                if number != self.newest:
                    raise SupersededError("another replay was requested")

            check()
            return replayed(self._opened, changes, seed, check)


@dataclass(frozen=True)
class _Watched(Replay):
    """A replay that calls `on_shard` after each shard."""

    on_shard: Callable[[int, ShardReplay], None]

    def shard(self, number: int) -> ShardReplay:
        result = super().shard(number)
        self.on_shard(number, result)
        return result


def replayed(opened: Opened, changes: dict[str, Any], seed: int, check: Callable[[], None] = lambda: None) -> Replayed:
    """Replay as in `gristmill decide whatif`, with the documents that enter and leave. Holds for each core the columns
    of a shard that the decisions read. `check` is called for each shard and may raise an error to stop."""
    plain = whatif(opened.recipe, changes, opened.settings)
    enter, leave, lock = Moved(), Moved(), threading.Lock()

    def on_shard(number: int, shard: ShardReplay) -> None:
        check()
        before = parquet.read_table(plain.passed.left.kept.part(number), ["id"])["id"]
        new = shard.kept.filter(pc.invert(pc.is_in(shard.kept, before.combine_chunks())))
        gone = before.filter(pc.invert(pc.is_in(before, shard.kept.combine_chunks())))
        with lock:
            enter.add(number, new, seed)
            leave.add(number, gone, seed)

    watched = _Watched(**{each.name: getattr(plain, each.name) for each in fields(plain)}, on_shard=on_shard)
    rows = funnel(watched)
    for moved in (enter, leave):
        moved.examples = [_shown(opened, plain, shard, id_) for _, shard, id_ in moved.drawn]
    return Replayed(changes, rows, enter, leave, watched.behind, watched.unchanged)


def _shown(opened: Opened, replay: Replay, shard: int, id_: str) -> DrawnDocument:
    """A document as it reached the replayed steps, since later steps may have dropped it."""
    [document] = documents(opened, shard, [id_], replay.passed.arriving.documents.part(shard))
    return document


def thresholds(step: Any) -> list[Threshold]:
    """The settings of a step that can be replayed and are a number, a text or null. Settings of rules are first, and
    after each setting its values for single languages."""
    settings = []
    for name in thresholds_of(step):
        value = getattr(step, name)
        if isinstance(value, int | float | str | None):
            rule = _moved_by(step, name, value)
            ends = _ends(type(step).model_fields[name].metadata)
            names = (rule.rule, rule.signal) if rule else ("", "")
            settings.append(Threshold(step.step, name, value, *names, ends))
            settings += [
                Threshold(step.step, f"languages.{language}.{name}", own[name], *names, ends)
                for language, own in getattr(step, "languages", {}).items()
                if name in own and "." not in language  # a dot separates the parts of a setting's name
            ]
    return sorted(settings, key=lambda one: not one.rule)


def _moved_by(step: Any, name: str, value: Any) -> Bound | None:
    """The rule on a number that changes if the setting changes."""
    if not isinstance(step, DocumentStep) or isinstance(value, str | bool):
        return None
    other = step.model_copy(update={name: 1 if value is None else value + 1})
    try:
        pairs = zip(step.decisions(), other.decisions(), strict=True)
        rules = [one for one, new in pairs if isinstance(one, Bound) and one != new]
    except (TypeError, ValueError):  # the setting is not a number, or the other value is not valid
        return None
    return rules[0] if len(rules) == 1 else None


def _ends(metadata: list[Any]) -> tuple[float, float] | None:
    """The smallest and the largest valid value of a setting, if it has both."""
    low, high = (
        next((end for each in metadata for kind in kinds if (end := getattr(each, kind, None)) is not None), None)
        for kinds in (("ge", "gt"), ("le", "lt"))
    )
    return None if low is None or high is None else (float(low), float(high))
