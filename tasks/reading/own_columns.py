"""Columns of a source's own: their types, from what its files hold, and their values as these types.

Types are Arrow's. Numbers widen (integers, then floats), structs have the fields of all, null goes with anything; what
else differs is an error that names both places.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.storage.printable import redact_url
from gristmill.storage.remote import streams
from gristmill.tasks.documents.step import PAGE_COLUMNS
from gristmill.tasks.engine.options import current
from gristmill.tasks.reading import parquet_rows, tables
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.record import COLUMNS, OWN_NAME, TAKEN, Columns, Record

# Gives the records of a shard; its second argument: the most bytes of a record.
Read = Callable[[Shard, int], Iterator[Record]]

SAMPLED_ROWS = 512
_INT64 = range(-(1 << 63), 1 << 63)
_FLAT = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
# By column its type, and where a value of it was seen first.
Types = dict[str, tuple[pa.DataType, str]]


class ColumnError(ValueError):
    """Columns of a source cannot be carried: which, why, and what to write instead."""


def carried_schema(source: str, columns: Columns, records: Iterable[Mapping[str, Any]]) -> tuple[Columns, pa.Schema]:
    """The columns of a source by their names, and their types, from the records of `find_types`. Raises ColumnError for
    types that differ, a column that no file has, and, of all columns, a name that documents have already."""
    all_types: Types = {}
    names: dict[str, None] = {}
    for record in records:
        types = {name: (_unpacked(packed), where) for name, packed, where in record["types"]}
        all_types = joined(source, all_types, types)
        names.update(dict.fromkeys(record["names"]))
    if missing := [theirs for ours, theirs in columns.own if ours not in all_types]:
        there = ", ".join(sorted(names)) or "none that can be read"
        raise ColumnError(
            f"the source {source} has no column {', '.join(missing)}, which is in its `columns`: correct "
            f"them; its columns are {there}"
        )
    if columns.every:
        check_every(source, all_types)
        columns = replace(columns, own=tuple((name, name) for name in all_types), every=False)
    types = {name: pa.string() if name in PAGE_COLUMNS else _stored(all_types[name][0]) for name, _ in columns.own}
    return columns, pa.schema(list(types.items()))


def check_every(source: str, names: Iterable[str]) -> None:
    """Raise ColumnError for columns of a source that carries all of them, if documents cannot have one by its name; the
    message has the `columns` to write instead."""
    wrong = [name for name in names if name in TAKEN or not OWN_NAME.fullmatch(name)]
    if wrong:
        renamed = {
            f"their_{re.sub(r'[^a-z0-9_]+', '_', name.lower())}" if name in wrong else name: name for name in names
        }
        columns_value = ", ".join(f"{ours}: {json.dumps(theirs)}" for ours, theirs in renamed.items())
        raise ColumnError(
            f'the source {source} has `columns: "*"`, but documents cannot have the column names '
            f"{', '.join(wrong)}; write `columns: {{{columns_value}}}`, without those that you do not want"
        )


def joined(source: str, one: Types, other: Types) -> Types:
    """The types of both. Raises ColumnError for a column whose types differ."""
    whole = dict(one)
    for name, (kind, where) in other.items():
        if name not in whole:
            whole[name] = kind, where
            continue
        known_type, seen = whole[name]
        try:
            both = pa.unify_schemas(
                [pa.schema([(name, known_type)]), pa.schema([(name, kind)])], promote_options="permissive"
            )
        except pa.ArrowException:
            raise _clash(source, name, (str(known_type), seen), (str(kind), where)) from None
        whole[name] = both.field(0).type, where if pa.types.is_null(known_type) else seen
    return whole


def joined_sources(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of all sources, by their names. Raises ColumnError for one whose types differ."""
    types: Types = {}
    for source, schema in schemas.items():
        types = joined(source, types, {field.name: (field.type, f"the source {source}") for field in schema})
    return pa.schema([(name, kind) for name, (kind, _) in types.items()])


def fitted(value: Any, kind: pa.DataType) -> Any:
    """A value that was read as one of a column's type, which may be wider."""
    if value is None or pa.types.is_null(kind):
        return None
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_string(kind):
        # a struct without fields is all that its column has; of a page's own columns any value may be there
        return None if value == {} else tables.as_text(value)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [fitted(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: fitted(value.get(field.name), field.type) for field in kind}
    return value


def names_of_footer(path: str, columns: Columns) -> list[str]:
    """Names of the columns of a Parquet file that are not text, URL, id or date; none of a damaged one, which is a row
    of the ledger. Raises FileNotFoundError, RemoteIOError."""
    with streams.open_ranges(path) as f:
        try:
            names = pq.read_schema(f).names
        except (OSError, EOFError, pa.ArrowException):
            return []
    return [name for name in names if name not in columns.named]


def names_of_records(read: Read, path: str, format: str, columns: Columns) -> list[str]:
    """The same as `names_of_footer`, from the first record of a file of another format that has columns."""
    every = Shard(format, path, "", replace(columns, every=True, own=()))
    first = next((record for record in read(every, 1 << 20) if record.own), None)
    return [*first.own] if first is not None and first.own else []


def types_of_code() -> Iterator[tuple[Types, list[str]]]:
    """The types of the columns of source code, which are the same everywhere."""
    numbers = ("header_characters", "files")
    types = {name: pa.int64() if name in numbers else pa.string() for name in COLUMNS}
    yield {name: (kind, "every source of code") for name, kind in types.items()}, [*COLUMNS]


def types_of_footer(file: Shard) -> Iterator[tuple[Types, list[str]]]:
    """The types of the columns of a Parquet file, by its footer."""
    try:
        with streams.open_ranges(file.path, current().remote_io) as f:
            schema = pq.read_schema(f)
    except (OSError, EOFError, pa.ArrowException):
        return  # its rows go to the ledger when they are read
    where = redact_url(file.path)
    own = file.columns.own_of(schema.names)
    if parquet_rows.check_schema(schema, [theirs for _, theirs in own]):
        return  # its rows go to the ledger, too
    yield {ours: (_plain(schema.field(theirs).type), where) for ours, theirs in own}, schema.names


def types_of_records(read: Read, file: Shard, max_bytes: int) -> Iterator[tuple[Types, list[str]]]:
    """The types of the columns of a file, by all of its records, 512 at a time."""
    rows: list[tuple[int, Mapping[str, Any]]] = []
    every = replace(file, columns=Columns(file.columns.text, every=True))
    for record in read(every, max_bytes):
        if record.own:
            rows.append((record.offset + 1, record.own))
        if len(rows) == SAMPLED_ROWS:
            yield _of_rows(file, rows)
            rows = []
    yield _of_rows(file, rows)


def _of_rows(file: Shard, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> tuple[Types, list[str]]:
    names = [*dict.fromkeys(name for _, row in rows for name in row)]
    types: Types = {}
    carried = [(number, file.columns.own_values(row)) for number, row in rows]
    for ours in dict.fromkeys(name for _, row in carried for name in row):
        values = [(number, row[ours]) for number, row in carried if row.get(ours) is not None]
        where = f"{redact_url(file.path)}, line {values[0][0] if values else rows[0][0]}"
        types[ours] = _inferred(file, ours, values), where
    return types, names


def _inferred(file: Shard, name: str, values: Sequence[tuple[int, Any]]) -> pa.DataType:
    """The type of values of JSON, each with its line."""
    first: dict[type, int] = {}
    for line, value in values:
        if value is not None:
            first.setdefault(type(value), line)
    kinds = set(first)
    if kinds == {int, float}:
        kinds = {float}
    if not kinds:
        return pa.null()
    if len(kinds) > 1:
        (one, here), (other, there) = list(first.items())[:2]
        where = redact_url(file.path)
        raise _clash("", name, (_JSON[one], f"{where}, line {here}"), (_JSON[other], f"{where}, line {there}"))
    kind = kinds.pop()
    if kind is list:
        return pa.list_(_inferred(file, name, [(line, each) for line, value in values for each in value or ()]))
    if kind is dict:
        keys = dict.fromkeys(key for _, value in values for key in value or ())
        within = {key: [(line, value.get(key)) for line, value in values if value is not None] for key in keys}
        return pa.struct(
            [(key, _inferred(file, f"{name}.{key}", values_of_key)) for key, values_of_key in within.items()]
        )
    if kind is int and (beyond := [line for line, value in values if value is not None and value not in _INT64]):
        raise ColumnError(
            f"{redact_url(file.path)}, line {beyond[0]}: {name} is not an integer of 64 bits; leave it out of `columns`"
        )
    return _FLAT[kind]


_JSON = {bool: "a bool", int: "an integer", float: "a float", str: "a string", list: "a list", dict: "an object"}


def _clash(source: str, name: str, one: tuple[str, str], other: tuple[str, str]) -> ColumnError:
    source_phrase = f" of the source {source}" if source else ""
    return ColumnError(
        f"the column {name}{source_phrase} has two types: {one[0]} in {one[1]}, {other[0]} in {other[1]}; "
        "remove it from `columns`, rename it there, or use the same type in all files"
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type of Parquet without details that only concern storage."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)  # as Parquet has it
    return kind


def _stored(kind: pa.DataType) -> pa.DataType:
    """A type that Parquet can store: what has no values is a string, which is null."""
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and not kind.num_fields):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _stored(field.type)) for field in kind])
    return kind


def packed_type(kind: pa.DataType) -> str:
    return base64.b64encode(pa.schema([("", kind)]).serialize().to_pybytes()).decode()


def _unpacked(packed: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(packed))).field(0).type
