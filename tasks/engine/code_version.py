"""Digests of the code of stages, releases of libraries, and digests of data in packages.

Manifests record the code digest. It protects a stage while it is made: workers must have the same code as the driver,
and only the code that began an unfinished stage resumes it. It is not in keys, except for user code that declares no
version.
"""

import ast
import hashlib
import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import unidata_version

from pydantic import TypeAdapter

from gristmill.storage import files
from gristmill.tasks.engine.bundled import BUNDLED

_LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "log"})


class Imported(NamedTuple):
    """`import a, b`: `base` is None; `from ..base import a, b`: with two dots `level` is 2."""

    base: str | None
    level: int
    names: tuple[str, ...]


class Source(NamedTuple):
    """A source file: the digest of its relevant code, and its imports in order."""

    digest: str
    imports: tuple[Imported, ...]


def source(path: str) -> Source:
    """Return the digest and imports of a source file, which is read again if it changed. Raises FileNotFoundError."""
    status = os.stat(path)
    stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_dev, status.st_ino)
    known = _read_known()
    if path in known and known[path][0] == stamp:
        return known[path][1]
    words: list[str] = []
    statements: list[ast.Import | ast.ImportFrom] = []
    _write(ast.parse(Path(path).read_text(encoding="utf-8")), words, statements)
    result = Source(hashlib.sha256(",".join(words).encode()).hexdigest(), tuple(map(_imported_names, statements)))
    # with timestamps of one second, a file that was replaced within that second would look unchanged
    if time.time_ns() - max(stamp[:2]) > _TICK:
        known[path] = stamp, result
        _fresh.add(path)
    return result


def keep() -> None:
    """Store for later processes what this one has read."""
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
    """The Python version and the version of this module, on which the digests depend."""
    return platform.python_version(), hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _imported_names(node: ast.Import | ast.ImportFrom) -> Imported:
    names = tuple(alias.name for alias in node.names)
    return Imported(None, 0, names) if isinstance(node, ast.Import) else Imported(node.module or "", node.level, names)


def _write(node: Any, words: list[str], imports: list[ast.Import | ast.ImportFrom]) -> None:
    """Serialize a syntax tree without docstrings, log messages, and descriptions of settings, signals and cuts, and
    collect its imports. This is a single pass because every command waits for it: `ast.dump` of a transformed tree
    takes twice as long."""
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


# The packages of this project whose modules are followed. Of `flows` only the stages, because the rest does not affect
# the contents of a stage.
FOLLOWED = ("gristmill.samples", "gristmill.storage", "gristmill.tasks", "gristmill.training", "gristmill.flows.stages")

# Transport and engine do not affect outputs: bytes arrive complete and correct, or not at all. Neither does the owner
# of a temporary file. The digests of source files are inputs, but the code that computes them is not. Compiled modules
# have no source. The releases that they are compiled from are in the keys of stages that use them.
NEUTRAL = (
    "gristmill.storage.exclusive",
    "gristmill.storage.fingerprint",
    "gristmill.storage.home",
    "gristmill.storage.leftovers",
    "gristmill.storage.remote",
    "gristmill.storage.files",
    "gristmill.tasks.engine",
    "gristmill.tasks.models.compiled",
)


def code_version(modules: tuple[str, ...]) -> str:
    """Digest of modules, and of all modules of their packages or of FOLLOWED that they import directly or indirectly.

    Comments, layout, docstrings, log messages, and descriptions of settings, signals and cuts do not count. Any other
    change to the code does, and so does Python's version of Unicode, on which letters and cases depend.
    16 hexadecimal characters. Raises ModuleNotFoundError for a module without source.
    """
    return _code_version(tuple(sorted(set(modules))), FOLLOWED, NEUTRAL)


def own_code(modules: tuple[str, ...]) -> str:
    """Digest of a user's modules and of all modules of their packages that they import. Modules of Gristmill do not
    count, because they declare versions. 16 hexadecimal characters. Raises ModuleNotFoundError for a module without
    source.
    """
    return _code_version(tuple(sorted(name for name in set(modules) if not is_ours(name))), (), ())


def is_ours(module: str) -> bool:
    """Whether a module is part of Gristmill."""
    return module.partition(".")[0] == "gristmill"


@cache
def release() -> str:
    """The installed release of Gristmill."""
    try:
        return version("gristmill")
    except PackageNotFoundError:  # a checkout on Python's path
        return "unknown"


@cache
def is_editable() -> bool:
    """Whether the running code is an editable checkout instead of an installed release."""
    try:
        origin = distribution("gristmill").read_text("direct_url.json") or ""
    except PackageNotFoundError:
        return True
    return '"editable": true' in origin


@cache
def data_digest(address: str) -> str:
    """The digest of a file in an installed package, given as `package:path`. Raises FileNotFoundError."""
    package, _, path = address.partition(":")
    return files.digest(resources.files(package).joinpath(path).read_bytes())


def releases(libraries: tuple[str, ...]) -> dict[str, str]:
    """The release of each distribution: of its sources if it is compiled into Gristmill, else the installed one. Raises
    PackageNotFoundError for a distribution that is neither."""
    return {name: _release(name) for name in sorted(set(libraries))}


@cache
def _release(name: str) -> str:
    return BUNDLED[name].release if name in BUNDLED else version(name)


@cache
def _code_version(modules: tuple[str, ...], followed: tuple[str, ...], neutral: tuple[str, ...]) -> str:
    packages = frozenset({*followed, *(package for name in modules if (package := name.split(".")[0]) != "gristmill")})
    digests: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in digests or _is_within(name, neutral):
            continue
        digests[name], imports = _read(name, packages)
        waiting += [imported for imported in imports if _is_within(imported, packages)]
    keep()
    lines = [f"Unicode {unidata_version}", *(f"{name} {digests[name]}" for name in sorted(digests))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _is_within(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def _related(module: str, packages: Iterable[str]) -> bool:
    """Whether a module is in one of the packages, or contains one of them."""
    return _is_within(module, packages) or any(_is_within(package, (module,)) for package in packages)


@cache
def _read(module: str, packages: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """Digest of a module's code, and the modules that it imports, at least those in `packages`."""
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        if spec is not None and spec.submodule_search_locations:
            return "a package that contains no code", ()
        raise ModuleNotFoundError(f"{module}: its source does not exist, so its code cannot be part of a key")
    module_source = source(spec.origin)
    imports = {name for each in module_source.imports for name in _imported(each, module, spec.origin, packages)}
    return module_source.digest, tuple(sorted(imports))


def _imported(statement: Imported, module: str, origin: str, packages: frozenset[str]) -> list[str]:
    if statement.base is None:
        return list(statement.names)
    base = statement.base
    if statement.level:
        parts = module.split(".") if origin.endswith("__init__.py") else module.split(".")[:-1]
        base = ".".join([*parts[: len(parts) - statement.level + 1], *([base] if base else [])])
    if not _related(base, packages):  # to look into torch or MLflow would load them
        return [base]
    return [base, *(f"{base}.{name}" for name in statement.names if _is_module(base, name))]


@cache
def _is_module(package: str, name: str) -> bool:
    try:
        spec = find_spec(package)
        return bool(spec and spec.submodule_search_locations) and find_spec(f"{package}.{name}") is not None
    except (ImportError, ValueError):
        return False
