"""The order of a repository's files in a document: what is imported comes before what imports it.

So a model has read a module when it comes to its use, as in DeepSeek-Coder's repositories (Guo et al. 2024, arXiv
2401.14196, section 2.2), whose algorithm this is: of the files that are left, the one with the fewest imports that are
not placed yet is next. Imports are known of Python; other files stand by their paths behind those.
"""

import heapq
import re
from collections.abc import Sequence

# a statement at the beginning of a line: those inside of functions do not say what must come first
_IMPORT = re.compile(r"^(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+\(?([^#\n]*)|import[ \t]+([\w., \t]+))", re.MULTILINE)

# folders above a file in which what it imports is looked for, beside the root
_MOST_ABOVE = 16


def in_order(files: Sequence[tuple[str, str]]) -> list[int]:
    """The places of files, given as (path, text), in the order in which they are read: of Python files those first
    that import none of the others, in a circle the one with the fewest such imports; ties go by the path. The other
    files follow by their paths."""
    python = [at for at, (path, _) in enumerate(files) if path.endswith(".py")]
    modules: dict[str, int] = {}
    for at in python:
        modules.setdefault(_module(files[at][0]), at)
    needs = {at: _imported(*files[at], modules) - {at} for at in python}
    users: dict[int, list[int]] = {at: [] for at in python}
    for at, others in needs.items():
        for other in others:
            users[other].append(at)
    left = {at: len(others) for at, others in needs.items()}
    heap = [(count, files[at][0], at) for at, count in left.items()]
    heapq.heapify(heap)
    found: list[int] = []
    while heap:
        count, _, at = heapq.heappop(heap)
        if left.get(at) != count:
            continue  # placed, or with fewer left by now
        del left[at]
        found.append(at)
        for user in users[at]:
            if user in left:
                left[user] -= 1
                heapq.heappush(heap, (left[user], files[user][0], user))
    rest = sorted((at for at in range(len(files)) if at not in needs), key=lambda at: files[at][0])
    return found + rest


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(path: str, text: str, modules: dict[str, int]) -> set[int]:
    """The files that a file imports: a module of the repository is known by its path, or by the end of it, as the
    folder of sources is not always the first."""
    package = _module(path) if path.endswith("/__init__.py") else _module(path).rpartition(".")[0]
    found: set[int] = set()
    for match in _IMPORT.finditer(text):
        if match[3]:
            wanted = [name.split()[0] for name in match[3].split(",") if name.split()]
        else:
            base = _absolute(match[1], package)
            names = [name.split()[0] for name in match[2].strip("() \\").split(",") if name.split()]
            wanted = [f"{base}.{name}" if base else name for name in names]
            known = [name for name in wanted if _of_name(name, package, modules) is not None]
            # a package that gives only its own modules need not be read before
            wanted = known if len(known) == len(wanted) else [*known, base]
        for name in wanted:
            if (at := _of_name(name, package, modules)) is not None:
                found.add(at)
    return found


def _absolute(name: str, package: str) -> str:
    dots = len(name) - len(name.lstrip("."))
    if not dots:
        return name
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - dots + 1], *filter(None, [name[dots:]])])


def _of_name(name: str, package: str, modules: dict[str, int]) -> int | None:
    """The module of a name, as it is seen from a package: below a folder on the way from the root to it."""
    if name in modules:
        return modules[name]
    folders = package.split(".")
    for depth in range(len(folders), max(0, len(folders) - _MOST_ABOVE), -1):
        if (at := modules.get(".".join([*folders[:depth], name]))) is not None:
            return at
    return None
