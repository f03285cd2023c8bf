"""What decides of a source file, as a digest, and what it imports: known of each file by its times and its size.

All commands wait for it, and a file that is not changed is not read again: what was found is kept in the user's folder
of caches, as Python keeps compiled files.
"""

import ast
import hashlib
import os
import platform
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from gristmill.storage import files

_LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "log"})


class Imported(NamedTuple):
    """`import a, b`: `base` is None; `from ..base import a, b`: with two dots `level` is 2."""

    base: str | None
    level: int
    names: tuple[str, ...]


class Source(NamedTuple):
    """A source file: digest of all that decides, and its imports in their order."""

    digest: str
    imports: tuple[Imported, ...]


def source(path: str) -> Source:
    """What is known of a source file; it is read if it is not the file that it was. Raises FileNotFoundError."""
    status = os.stat(path)
    stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_dev, status.st_ino)
    known = _read_known()
    if path in known and known[path][0] == stamp:
        return known[path][1]
    words: list[str] = []
    statements: list[ast.Import | ast.ImportFrom] = []
    _write(ast.parse(Path(path).read_text(encoding="utf-8")), words, statements)
    result = Source(hashlib.sha256(",".join(words).encode()).hexdigest(), tuple(map(_imported, statements)))
    # a clock that ticks once a second would not tell a file from what it was written over with within that second
    if time.time_ns() - max(stamp[:2]) > _TICK:
        known[path] = stamp, result
        _fresh.add(path)
    return result


def keep() -> None:
    """Keep for later processes what this one has read."""
    if not _fresh:
        return
    there = {path: entry for path, entry in _read_known().items() if os.path.exists(path)}
    with suppress(OSError, RuntimeError):  # no home, or one that cannot be written: the next process reads them again
        _file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_bytes(str(_file()), _KEPT.dump_json((_made_by(), there)))
    _fresh.clear()


_fresh: set[str] = set()
_TICK = 2_000_000_000  # nanoseconds: the longest of file systems, FAT's
_Stamp = tuple[int, int, int, int, int]
_KEPT = TypeAdapter(tuple[tuple[str, str], dict[str, tuple[_Stamp, Source]]])


def _file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gristmill" / "sources.json"


@cache
def _read_known() -> dict[str, tuple[_Stamp, Source]]:
    try:
        made_by, known = _KEPT.validate_json(_file().read_bytes())
    except (OSError, RuntimeError, ValueError):  # none is kept, or what is there is something else
        return {}
    return known if made_by == _made_by() else {}


@cache
def _made_by() -> tuple[str, str]:
    """Of another Python, or another version of this module, the digests are others."""
    return platform.python_version(), hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _imported(node: ast.Import | ast.ImportFrom) -> Imported:
    names = tuple(alias.name for alias in node.names)
    return Imported(None, 0, names) if isinstance(node, ast.Import) else Imported(node.module or "", node.level, names)


def _write(node: Any, words: list[str], imports: list[ast.Import | ast.ImportFrom]) -> None:
    """Write down a syntax tree without what decides nothing: docstrings, log messages, descriptions of settings,
    signals and cuts; and note its imports. In one pass, since all commands wait for it: `ast.dump` of a tree that was
    transformed takes twice as long."""
    if isinstance(node, list):
        words.append("[")
        for each in node:
            _write(each, words, imports)
        words.append("]")
        return
    if not isinstance(node, ast.AST):
        words.append(repr(node))
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        imports.append(node)
    elif isinstance(node, ast.Expr) and _is_message(node.value):
        node = ast.Pass()
    words.append(type(node).__name__)
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if name == "body" and isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            value = value[1:]
        elif name == "keywords" and isinstance(node, ast.Call) and getattr(node.func, "id", None) in _DESCRIBED:
            value = [keyword for keyword in value if keyword.arg != "description"]
        _write(value, words, imports)


_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_DESCRIBED = frozenset({"Field", "Signal", "Cut"})


def _is_message(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOG_METHODS):
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id in ("log", "logger", "logging")
