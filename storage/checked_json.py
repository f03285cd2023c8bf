"""JSON files that contain their own checksum and name, so that damage, and a file in the place of another, is an error
and never another value.

{
  "checksum": "xxh3-128 of everything after the comma after it, hexadecimal",
  "file": "its name, as `gristmill.storage.damage.name_of` has it",
  ...
}
"""

from collections.abc import Mapping
from typing import Any

import orjson

from gristmill.storage import files
from gristmill.storage.contents import digest_json
from gristmill.storage.damage import check_name, damaged, name_of

_BEGIN = b'{\n  "checksum": "'
_DIGITS = 32
_END = len(_BEGIN) + _DIGITS + 2


def dumps(value: Mapping[str, Any], path: str) -> bytes:
    """What `path` gets: sorted keys and two-space indents after the checksum, the same for the same value and name.

    Raises ValueError for a mapping that has a key `checksum` or `file`.
    """
    if reserved_keys := value.keys() & {"checksum", "file"}:
        raise ValueError(f"a file with a checksum has keys of its own, and so has the value: {sorted(reserved_keys)}")
    whole = {**value, "file": name_of(path)}
    rest = orjson.dumps(whole, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)[1:]
    return b'%s%s",%s' % (_BEGIN, files.digest(rest).encode(), rest)


def loads(data: bytes, path: str) -> dict[str, Any]:
    """The value that `dumps` has written for this path. Raises DamagedFileError, which names `path`."""
    value = content(data, path)
    check_name(path, value.pop("file", "a file of another version"))
    return value


def content(data: bytes, path: str) -> dict[str, Any]:
    """The same as `loads`, for a file with any name: the value has it as `file`."""
    if data[:_END] != b'%s%s",' % (_BEGIN, files.digest(data[_END:]).encode()):
        raise damaged(path, "is not what was written")
    value = orjson.loads(data)
    del value["checksum"]
    return value


def write(path: str, value: Mapping[str, Any]) -> None:
    files.record_values(path, digest_json(value))
    files.write_bytes(path, dumps(value, path))


def read(path: str) -> dict[str, Any]:
    """Raises FileNotFoundError, and DamagedFileError for a file that is not what was written."""
    return loads(files.read_bytes(path), path)
