"""What the first records of a recipe's local files show before a run: unread files and dates."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.storage import files
from gristmill.tasks.documents.file_problems import error_sentence
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.reading.formats.source import Files

if TYPE_CHECKING:
    from gristmill.tasks.reading import shard as first_records
else:
    first_records = wrapt.lazy_import("gristmill.tasks.reading.shard")


def of_first_records(recipe: Recipe, settings: MachineSettings) -> tuple[list[Problem], list[str]]:
    """Why nothing can be read of the first local files of a source, as a run says it; and remarks on their dates."""
    problems: list[Problem] = []
    remarks: list[str] = []
    max_bytes = recipe.extract.max_bytes
    for index, source in enumerate(map(settings.placed, recipe.sources)):
        if not isinstance(source, Files) or not source.wanted or not all(map(files.is_local, source.paths)):
            continue
        key = ("sources", index, source.paths_key)
        try:
            shards = source.shards()[: first_records.FILES]
            if trouble := first_records.source_trouble(shards, max_bytes):
                problems.append((key, trouble))
            elif shards and source.read_columns.date:
                first = first_records.first_records(shards[0], max_bytes, dates=True)
                remarks += _of_dates(source.name, source.read_columns.date, first)
        except (OSError, ValueError, RuntimeError) as error:
            problems.append((key, error_sentence(error, ", ".join(source.paths))))
    return problems, remarks


def _of_dates(name: str, column: str, first: "first_records.FirstRecords") -> Iterator[str]:
    if first.unread_dates:
        yield (
            f"sources.{name}.date_column: {len(first.unread_dates)} of the first {first.dates} dates in "
            f"{column} could not be parsed, such as {first.unread_dates[0][:40]!r}. Documents with such "
            "dates count as documents without a date"
        )
    elif not first.dates:
        yield f"sources.{name}.date_column: the first records have no date in {column}"
