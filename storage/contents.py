"""The contents of a stage in a few values: logical digests of JSON, rows and parts, and summed counts of documents.

Two stages with equal digests hold the same values, even if other libraries wrote their files, in another folder or at
another time. Digests are xxh3-128, hexadecimal.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import xxhash

# A stage's folder as another stage's files name it, `../<name>-<key>/`: the key says how the stage was made, and
# nothing about its contents.
_STAGE_PATH = re.compile(rb"\.\./([A-Za-z0-9_]+)-[0-9a-f]{16}/")


def digest_json(value: Any) -> str:
    """The digest of a JSON value: keys sorted, and without the keys of stages in paths."""
    return xxhash.xxh3_128_hexdigest(_plain(value))


# In a job's record: addresses that it read from. They say where its input was, and nothing about the contents.
ADDRESSES = "read_from"


class PartsDigest:
    """The digest of what a stage's jobs recorded and wrote, and of its result."""

    def __init__(self) -> None:
        self._digest = xxhash.xxh3_128()

    def add(self, number: int, record: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]) -> None:
        """Add a job: its number, its record, and what is known of its files, as `gristmill.storage.files.facts`."""
        digests = {name: of_file(facts) for name, facts in files.items()}
        own = {name: value for name, value in record.items() if name != ADDRESSES}
        job = [number, own, {name: digest for name, digest in digests.items() if digest}]
        self._digest.update(_plain(job) + b"\n")

    def hexdigest(self, result: Any) -> str:
        """The digest of all jobs and of the stage's result."""
        whole = self._digest.copy()
        whole.update(_plain(result))
        return whole.hexdigest()


def of_file(facts: Mapping[str, Any]) -> str:
    """The logical digest of a file by what is recorded of it: of its bytes, where it has no other. Empty for a file
    that is not part of the contents, such as a log with times."""
    return str(facts["values"] if "values" in facts else facts["content"])


def _plain(value: Any) -> bytes:
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return _STAGE_PATH.sub(rb"../\1/", data)


_SUMMED = ("rows_in", "rows_out", "characters_in", "characters_out")


def sum_counts(shards: Iterable[list[dict]]) -> list[dict]:
    """The counts of steps (`gristmill.storage.ledger.count`) over shards, in the order of the steps."""
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


# The logical digest of a table's rows, as Arrow values.


class RowDigest:
    """The digest of rows that come table by table: names and types of the columns, and every value.

    It does not depend on how rows are grouped into tables, chunks and row groups, nor on dictionaries, compression, or
    what lies in the buffers under a null. All NaNs are one value. Column metadata and nullability do not count.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._leaves: dict[str, Any] = {}
        self._rows = 0

    def update(self, table: pa.Table) -> None:
        """Add the rows of a table that has the columns of the schema, in its order."""
        self._rows += len(table)
        for index, column in enumerate(table.columns):
            for chunk in column.chunks:
                self._add(f"{index}", chunk)

    def hexdigest(self) -> str:
        columns = [[field.name, str(_plain_type(field.type))] for field in self._schema]
        leaves = {name: leaf.hexdigest() for name, leaf in self._leaves.items()}
        return digest_json({"columns": columns, "rows": self._rows, "leaves": leaves})

    def _feed(self, name: str, data: Any) -> None:
        leaf = self._leaves.get(name)
        if leaf is None:
            leaf = self._leaves[name] = xxhash.xxh3_128()
        leaf.update(data)

    def _add(self, name: str, array: pa.Array) -> None:
        """Add an array: which slots are valid, then lengths and values of the valid ones, each to a digest of its own,
        so that it does not show where one chunk ends and the next begins."""
        if not len(array):
            return
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        kind = _plain_type(array.type)
        if kind != array.type:
            array = array.cast(kind)
        self._feed(f"{name}?", array.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False))
        if array.null_count:
            array = array.drop_null()
        if pa.types.is_null(kind) or not len(array):
            return
        if pa.types.is_struct(kind):
            for index, child in enumerate(array.flatten()):
                self._add(f"{name}.{index}", child)
        elif _is_list(kind):
            if not pa.types.is_fixed_size_list(kind):
                self._feed(f"{name}#", np.diff(array.offsets.to_numpy()).astype("<i8"))
            self._add(f"{name}[]", array.flatten())
        elif _is_text(kind):
            wide = kind in (pa.large_string(), pa.large_binary())
            ends = np.frombuffer(array.buffers()[1], "<i8" if wide else "<i4")[array.offset :][: len(array) + 1]
            self._feed(f"{name}#", np.diff(ends).astype("<i8"))
            if ends[-1] > ends[0]:
                self._feed(name, memoryview(array.buffers()[2])[int(ends[0]) : int(ends[-1])])
        else:
            self._feed(name, _values(array, kind))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without its encoding: a dictionary's values, a view's texts, a map's pairs."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _values(array: pa.Array, kind: pa.DataType) -> Any:
    """The bytes of values of one width, of an array without nulls."""
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8()).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False)
        if np.isnan(values).any():
            values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
        return np.ascontiguousarray(values)
    width = kind.bit_width // 8
    return memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]
