"""The code behind a stage: a digest of modules, and the releases of the libraries that a step names."""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unicodedata import unidata_version

# The rooms of this project whose modules are followed. Of `flows` the stages alone: the rest arranges them, and says
# nothing about what one of them gives.
FOLLOWED = ("gristmill.storage", "gristmill.tasks", "gristmill.training", "gristmill.flows.stages")

# Bytes arrive whole and right or not at all, whatever the transport and the engine do: neither decides an output.
# Nor does whose a temporary file is.
# Digests of source files are inputs; how they are computed is not.
NEUTRAL = (
    "gristmill.storage.exclusive",
    "gristmill.storage.fingerprint",
    "gristmill.storage.home",
    "gristmill.storage.leftovers",
    "gristmill.storage.leftovers",
    "gristmill.storage.remote",
    "gristmill.storage.space",
    "gristmill.tasks.engine",
)

_LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "log"})


def code_version(modules: tuple[str, ...]) -> str:
    """Digest of modules and of all modules of the same packages, or of FOLLOWED, that these import, directly or not.

    Comments, layout, docstrings, log messages and the descriptions of settings, signals and cuts do not count; any
    other change to the code does, and so does Python's version of Unicode, on which letters and cases depend. So nobody
    has to remember to raise a number, and a stage is never reused after the code behind it has changed.
    16 hexadecimal characters. Raises ModuleNotFoundError for a module without source.
    """
    return _code_version(tuple(sorted(set(modules))), FOLLOWED, NEUTRAL)


def releases(libraries: tuple[str, ...]) -> dict[str, str]:
    """The installed release of each distribution. Raises PackageNotFoundError for one that is not installed."""
    return {name: _release(name) for name in sorted(set(libraries))}


_release = cache(version)


@cache
def _code_version(modules: tuple[str, ...], followed: tuple[str, ...], neutral: tuple[str, ...]) -> str:
    packages = frozenset({*followed, *(package for name in modules if (package := name.split(".")[0]) != "gristmill")})
    digests: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in digests or _within(name, neutral):
            continue
        digests[name], imports = _read(name, packages)
        waiting += [imported for imported in imports if _within(imported, packages)]
    lines = [f"Unicode {unidata_version}", *(f"{name} {digests[name]}" for name in sorted(digests))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _within(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def _related(module: str, packages: Iterable[str]) -> bool:
    """Whether a module is in one of the packages, or one of them in it."""
    return _within(module, packages) or any(_within(package, (module,)) for package in packages)


@cache
def _read(module: str, packages: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """Digest of a module's code, and the modules that it imports, those of `packages` at least."""
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        if spec is not None and spec.submodule_search_locations:
            return "a package without code of its own", ()
        raise ModuleNotFoundError(f"{module}: its source is not there, so its code cannot be part of a key")
    words: list[str] = []
    statements: list[ast.Import | ast.ImportFrom] = []
    _write(ast.parse(Path(spec.origin).read_text(encoding="utf-8")), words, statements)
    imports = {name for node in statements for name in _imported(node, module, spec.origin, packages)}
    return hashlib.sha256(",".join(words).encode()).hexdigest(), tuple(sorted(imports))


def _imported(node: ast.Import | ast.ImportFrom, module: str, origin: str, packages: frozenset[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = module.split(".") if origin.endswith("__init__.py") else module.split(".")[:-1]
        base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
    if not _related(base, packages):  # to look into torch or MLflow would load them
        return [base]
    return [base, *(f"{base}.{alias.name}" for alias in node.names if _is_module(base, alias.name))]


@cache
def _is_module(package: str, name: str) -> bool:
    try:
        spec = find_spec(package)
        return bool(spec and spec.submodule_search_locations) and find_spec(f"{package}.{name}") is not None
    except (ImportError, ValueError):
        return False


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
