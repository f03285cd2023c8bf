"""Counts of documents, summed."""

from collections.abc import Iterable

_SUMMED = ("rows_in", "rows_out", "characters_in", "characters_out")


def summed(shards: Iterable[list[dict]]) -> list[dict]:
    """The counts of steps (`count`) over shards, in the order of the steps."""
    totals: dict[str, dict] = {}
    for steps in shards:
        for step in steps:
            tallies: dict[str, dict[str, int]] = {name: {} for name in ("drops", "edits") if name in step}
            total = totals.setdefault(step["step"], {**step, **tallies, **dict.fromkeys(_SUMMED, 0)})
            for name in _SUMMED:
                total[name] = None if step[name] is None else total[name] + step[name]
            for tally in tallies:
                for rule, number in step[tally].items():
                    total[tally][rule] = total[tally].get(rule, 0) + number
    return list(totals.values())
