"""JSON files that hold a checksum of themselves, so that damage is an error and never another value.

{
  "checksum": "xxh3-128 of all that follows the comma behind it, hexadecimal",
  ...
}
"""

from collections.abc import Mapping
from typing import Any

import orjson

from gristmill.storage import files
from gristmill.storage.damage import damaged

_BEGIN = b'{\n  "checksum": "'
_DIGITS = 32
_END = len(_BEGIN) + _DIGITS + 2


def dumps(value: Mapping[str, Any]) -> bytes:
    """Sorted keys and two-space indents behind the checksum: the same value gives the same bytes.

    Raises ValueError for a mapping that is empty or has a key `checksum`.
    """
    if not value or "checksum" in value:
        raise ValueError(f"a file with a checksum needs other keys, and has {sorted(value)}")
    rest = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)[1:]
    return b'%s%s",%s' % (_BEGIN, files.digest(rest).encode(), rest)


def loads(data: bytes, path: str) -> dict[str, Any]:
    """The value that `dumps` has written. Raises DamagedFileError, which names `path`."""
    if data[:_END] != b'%s%s",' % (_BEGIN, files.digest(data[_END:]).encode()):
        raise damaged(path, "is not what was written")
    value = orjson.loads(data)
    del value["checksum"]
    return value


def write(path: str, value: Mapping[str, Any]) -> None:
    files.write_bytes(path, dumps(value))


def read(path: str) -> dict[str, Any]:
    """Raises FileNotFoundError, and DamagedFileError for a file that is not what was written."""
    return loads(files.read_bytes(path), path)
