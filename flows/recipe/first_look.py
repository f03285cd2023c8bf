"""Checks of the first records of a recipe's local files before a run: readable files, dates, URLs and annotations."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import wrapt

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.storage import files
from gristmill.storage.printable import one_line, redact_url
from gristmill.tasks.documents.file_problems import error_sentence
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.engine.options import current
from gristmill.tasks.models.distillation.step import Distill, column_problem
from gristmill.tasks.reading.formats.source import URL_NAMES, Columned, Files, named_column
from gristmill.tasks.reading.sources import format_of

if TYPE_CHECKING:
    from gristmill.tasks.reading import shard as first_records
    from gristmill.tasks.url import canonical
else:
    canonical = wrapt.lazy_import("gristmill.tasks.url.canonical")
    first_records = wrapt.lazy_import("gristmill.tasks.reading.shard")

_ROWS = 64  # of a source's first file, which are looked at for URLs
_URL = re.compile(r"(?:https?|ftp)://[^/\s]", re.IGNORECASE)


def of_first_records(recipe: Recipe, settings: MachineSettings) -> tuple[list[Problem], list[str]]:
    """Why the first local files of a source cannot be read, with the message of a run, and remarks on their dates."""
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


def annotation_problems(recipe: Recipe, settings: MachineSettings) -> Iterator[Problem]:
    """Problems with columns of local files that steps learn from, judged by the types in the first file of each
    source."""
    for index, step in enumerate(recipe.steps):
        for source in map(settings.placed, recipe.sources):
            if not isinstance(step, Distill) or not isinstance(source, Columned) or not step.applies_to(source.name):
                continue
            if not all(map(files.is_local, source.paths)):
                continue
            with suppress(OSError, ValueError, RuntimeError):  # what is wrong with the files is a finding
                kind = _kind_of(source, step.of, recipe.extract.max_bytes)
                if kind and (problem := column_problem(step, kind)):
                    yield ("steps", index, "of"), f"cannot be learned from: {problem}"
                    break


def _kind_of(source: Columned, column: str, max_bytes: int) -> str:
    """The kind of a column for `column_problem`, from the first rows; "" if these have no value."""
    for shard in source.shards()[:1]:
        for types, _ in format_of(shard.format).column_types(shard, max_bytes):
            kind = types[column][0] if column in types else pa.null()
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                return "string"
            if pa.types.is_boolean(kind):
                return "bool"
            return "number" if pa.types.is_integer(kind) or pa.types.is_floating(kind) else ""
    return ""


def unread_urls(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """Remarks on sources with URLs in a column that is not read, whose documents then all count as one host, and on
    URLs that no list can match. The column is not used automatically, because the output of a run must not depend on a
    few records."""
    yield from _without_scheme(recipe, settings)
    for source in map(settings.placed, recipe.sources):
        if not isinstance(source, Columned) or source.url_column is not None:
            continue
        if canonical.OWN in dict(source.read_columns.own):  # which is the host
            continue
        if not all(map(files.is_local, source.paths)):
            continue
        with suppress(OSError, ValueError, RuntimeError):  # what is wrong with the files is a finding
            if column := _column_of_urls(source, recipe.extract.max_bytes):
                yield (
                    f"sources.{source.name}: the records have URLs in {column}, which are not read, so all documents "
                    f"of a file count as one host; add `url_column: {column}` to the source"
                )


def _without_scheme(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """Remarks on sources whose first URLs have no scheme and may not begin with a host, in recipes that compare URLs
    with lists, because no entry matches such a URL."""
    if not recipe.takedowns and not any(step.step in ("url", "rights") for step in recipe.steps):
        return
    for source in map(settings.placed, recipe.sources):
        if not isinstance(source, Columned) or not source.url_column or not all(map(files.is_local, source.paths)):
            continue
        with suppress(OSError, ValueError, RuntimeError):  # what is wrong with the files is a finding
            for shard in source.shards()[:1]:
                read = islice(first_records.read(shard, recipe.extract.max_bytes, False, current().remote_io), _ROWS)
                urls = [record.url for _, record in read if record.url]
                if bad := [url for url in urls if not _URL.match(url.strip())]:
                    yield (
                        f"sources.{source.name}.url_column: {len(bad)} of the first {len(urls)} URLs do not begin with "
                        "https://, http:// or ftp://, or with a host and a slash, such as "
                        f"{one_line(redact_url(bad[0]))[:80]!r}. No host, URL or folder of a list matches them: add "
                        "the scheme to the URLs, or list ids"
                    )


def _column_of_urls(source: Columned, max_bytes: int) -> str:
    """The column of the first file that has a common name for URLs and whose first values are URLs; "" if none."""
    shards = source.shards()[:1]
    if not shards:
        return ""
    every = replace(shards[0], columns=replace(source.read_columns, every=True, own=()))
    read = islice(first_records.read(every, max_bytes, False, current().remote_io), _ROWS)
    rows = [record.own for _, record in read if record.own]
    names = dict.fromkeys(name for row in rows for name in row)
    while column := named_column(URL_NAMES, [*names]):
        values = [value for row in rows if isinstance(value := row.get(column), str) and value]
        if values and all(map(_URL.match, values)):
            return column
        del names[column]
    return ""
