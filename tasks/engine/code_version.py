"""Which code made a stage: a digest of what a function's module says and of the libraries that it uses."""

import ast
import hashlib
from functools import cache
from importlib.metadata import Distribution, distributions, version
from importlib.util import find_spec
from pathlib import Path
from unicodedata import unidata_version

OURS = ("storage", "tasks", "training")


def code_version(module: str) -> str:
    """Digest of a module of ours, of all modules of ours that it imports, directly or not, and of the versions
    of the distributions that these import. 16 hexadecimal characters.

    Comments, layout and docstrings do not count; any other change to the code does. So nobody has to
    remember to raise a number, and a stage is never reused after the code behind it has changed.
    """
    seen: dict[str, str] = {}
    libraries: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        source, imports = _read(name)
        seen[name] = source
        for imported in imports:
            if imported.split(".")[0] in OURS:
                waiting.append(imported)
            else:
                libraries.add(imported.split(".")[0])
    lines = [f"{name} {seen[name]}" for name in sorted(seen)]
    lines += [f"{name}=={release}" for name, release in _releases(frozenset(libraries))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@cache
def _read(module: str) -> tuple[str, tuple[str, ...]]:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{module}: no such module of ours, so its code cannot be part of a key")
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    imports = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imports.add(node.module)
            if node.module.split(".")[0] in OURS:
                imports.update(
                    f"{node.module}.{alias.name}" for alias in node.names if _is_module(node.module, alias.name)
                )
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = body[1:]
    digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return digest, tuple(sorted(imports))


def _is_module(package: str, name: str) -> bool:
    spec = find_spec(package)
    return bool(spec and spec.submodule_search_locations) and find_spec(f"{package}.{name}") is not None


@cache
def _releases(libraries: frozenset[str]) -> tuple[tuple[str, str], ...]:
    names = {found.name for library in libraries for found in _distributions().get(library, ())}
    releases = [(name, _version(name)) for name in sorted(names) if name != "gristmill"]
    # of Python's own modules, the one that gives other results with another Python
    return (*releases, ("unicodedata", unidata_version)) if "unicodedata" in libraries else tuple(releases)


@cache
def _distributions() -> dict[str, list[Distribution]]:
    """The installed distributions by the packages and modules that they bring.

    What importlib.metadata.packages_distributions tells, which takes a third of a second, since it parses the
    metadata of each.
    """
    found: dict[str, list[Distribution]] = {}
    for distribution in distributions():
        names = (distribution.read_text("top_level.txt") or "").split()
        if not names:
            lines = (distribution.read_text("RECORD") or "").splitlines()
            names = {line.partition(",")[0].partition("/")[0].removesuffix(".py") for line in lines}
        for name in names:
            found.setdefault(name, []).append(distribution)
    return found


_version = cache(version)
