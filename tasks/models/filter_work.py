"""What the stages of all learned filters have their jobs do beside the work of the filter's own."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from gristmill.tasks.documents.step import Bound, Settings


def find_bounds(folder: str, number: int, work: str, settings: Settings, scores: Sequence[str]) -> dict:
    """`bounds`: what the module `work` finds by the parts with scores, as mappings."""
    return {"bounds": [asdict(bound) for bound in import_module(work).bounds(settings, scores)]}


def bounds_of(record: Mapping[str, Any]) -> tuple[Bound, ...]:
    """Those that `find_bounds` has recorded."""
    return tuple(Bound(**_with_pairs(bound)) for bound in record["bounds"])


def _with_pairs(bound: Mapping[str, Any]) -> dict[str, Any]:
    return {**bound, "languages": {name: (low, high) for name, (low, high) in bound["languages"].items()}}
