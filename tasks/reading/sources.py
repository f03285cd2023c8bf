"""The table of source formats. From it follow the sources of a recipe, and how their files are listed, read, checked
and recognized.

A source is known by which key it has: `warc`, `jsonl`, `parquet`, `text`, `pages`, `code`, `reader`, `snapshot` or
`index`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from gristmill.tasks.reading.formats.crawls import Archives, Selection, Snapshot
from gristmill.tasks.reading.formats.own import Own
from gristmill.tasks.reading.formats.rows import Lines, Pages, Tables, Texts
from gristmill.tasks.reading.formats.source import SourceSettings
from gristmill.tasks.reading.formats.source_code import Code

FORMATS: tuple[type[SourceSettings], ...] = (
    Archives,
    Lines,
    Tables,
    Texts,
    Pages,
    Code,
    Own,
    Snapshot,
    Selection,
)
BY_KEY = {kind.key: kind for kind in FORMATS}
# A snapshot's files are archives.
_BY_FORMAT = {kind.file_format: kind for kind in reversed(FORMATS)}


def format_of(name: str) -> type[SourceSettings]:
    """The class that reads the files of a shard, by the name of their format, or the address of a user's reader."""
    return Own if ":" in name else _BY_FORMAT[name]


def _key(value: Any) -> str | None:
    keys = value if isinstance(value, Mapping) else getattr(type(value), "model_fields", ())
    matching_keys = [key for key in BY_KEY if key in keys]
    return matching_keys[0] if len(matching_keys) == 1 else None


if TYPE_CHECKING:
    Source = SourceSettings  # a type checker cannot follow a union made of a table
else:
    Source = Annotated[
        Union[tuple(Annotated[kind, Tag(key)] for key, kind in BY_KEY.items())],  # noqa: UP007  (the table's)
        Discriminator(
            _key,
            custom_error_type="source",
            custom_error_message=f"a source has exactly one of the keys {', '.join(BY_KEY)}",
        ),
    ]
