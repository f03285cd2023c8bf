"""Whose extraction a stage `documents` is. Separate: runs of a recipe that rewrites another have the stages of both."""

from collections.abc import Iterator, Mapping
from typing import Any

from gristmill.flows.machine.runs import RecordedRun
from gristmill.flows.reports.dependents.graph import HomeGraph


def owners(graph: HomeGraph, label: str) -> list[str]:
    """Names of the recipes whose sources a stage `documents` has read; of recipes with more sources than these, those
    with the fewest. Empty if no recorded run tells."""
    formats = set(graph.stages[label].settings.get("formats", ()))
    runs = [run for run in graph.runs if label in graph.origins(run.stages)]
    others: dict[str, int] = {}
    for recipe in (recipe for run in runs for recipe in _recipes(run)):
        sources = {source["name"] for source in recipe["sources"]}
        if formats <= sources:
            count = len(sources - formats)
            others[recipe["name"]] = min(count, others.get(recipe["name"], count))
    return sorted(name for name, count in others.items() if count == min(others.values()))


def _recipes(run: RecordedRun) -> Iterator[Mapping[str, Any]]:
    """The recipe of a run, and those that it rewrites, as it saw them."""
    for value in (run.recipe, *run.outside.values()):
        if isinstance(value, Mapping) and {"name", "sources", "steps"} <= value.keys():
            yield value
