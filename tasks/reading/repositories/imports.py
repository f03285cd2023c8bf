"""Which files of its repository a file imports, by its lines: of Python, JavaScript, TypeScript, C, C++, Java and Rust.

What a line names is looked for at the paths where the language's tools would look, as far as these follow from the
repository alone: no search path is known, and no name of a package but the folders'. Go imports folders, so nothing is
known of the order in which the files of one are read.
"""

import heapq
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

# folders above a file in which what it imports is looked for, beside the root
_MAX_ABOVE = 16
# lines that are looked up, of all files together: 64 MiB of code have a fourth of that
_MAX_LINES = 200_000
# statements at the beginning of a line: those inside of functions do not say what must come first
_PYTHON = re.compile(r"^(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+\(?([^#\n]*)|import[ \t]+([\w., \t]+))", re.MULTILINE)
_SCRIPT_ENDINGS = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".d.ts")
_PACKAGE = re.compile(r"^[ \t]*package[ \t]+([\w.]+)", re.MULTILINE)


def _above(path: str) -> Iterator[str]:
    """The folders from a file's own up to the root."""
    folder = posixpath.dirname(path)
    for _ in range(_MAX_ABOVE):
        yield folder
        if not folder:
            return
        folder = posixpath.dirname(folder)
    yield ""


def _script(path: str, name: str, text: str) -> Iterator[str]:
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    yield whole
    # a module of TypeScript is named as what is made of it
    for base in (whole, re.sub(r"\.[mc]?jsx?$", "", whole)):
        yield from (base + ending for ending in _SCRIPT_ENDINGS)
        yield from (f"{base}/index{ending}" for ending in _SCRIPT_ENDINGS)


def _header(path: str, name: str, text: str) -> Iterator[str]:
    for folder in _above(path):
        yield from (posixpath.normpath(posixpath.join(folder, inside, name)) for inside in ("", "include", "src"))


def _java(path: str, name: str, text: str) -> Iterator[str]:
    """Below the folder that has the file's own package; a static import names a member."""
    own = _PACKAGE.search(text[:20_000])
    package = own[1].replace(".", "/") if own else ""
    folder = posixpath.dirname(path)
    root = folder.removesuffix(package).rstrip("/")
    whole = name.replace(".", "/")
    yield from (posixpath.join(root, f"{each}.java") for each in (whole, posixpath.dirname(whole)))


def _rust(path: str, name: str, text: str) -> Iterator[str]:
    folder, stem = posixpath.dirname(path), posixpath.basename(path).removesuffix(".rs")
    inside = folder if stem in ("mod", "lib", "main") else posixpath.join(folder, stem)
    yield from (posixpath.join(inside, each) for each in (f"{name}.rs", f"{name}/mod.rs"))


# By extension what a line that imports looks like, and the paths where what it names may be, nearest first.
_RULES: dict[str, tuple[re.Pattern[str], Callable[[str, str, str], Iterator[str]]]] = {
    extension: (re.compile(pattern, re.MULTILINE), resolver)
    for extensions, pattern, resolver in (
        (
            "js jsx mjs cjs ts tsx mts cts",
            r"(?:\bfrom|\bimport|\brequire[ \t]*\()[ \t]*['\"](\.{1,2}/[^'\"\n]{1,1000})['\"]",
            _script,
        ),
        (
            "c h cc cpp cxx hpp hh hxx cu cuh m mm inl ipp",
            r"^[ \t]*#[ \t]*(?:include|import)[ \t]*[<\"]([^<>\"\n]{1,1000})[>\"]",
            _header,
        ),
        ("java", r"^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]+)[ \t]*;", _java),
        ("rs", r"^[ \t]*(?:pub(?:\([^)\n]*\))?[ \t]+)?mod[ \t]+(\w+)[ \t]*;", _rust),
    )
    for extension in extensions.split()
}


class Imports:
    """The imports between files of a repository, which are known by their paths: of the first 200,000 lines that have
    one."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.places: dict[str, int] = {}
        self.modules: dict[str, int] = {}
        self.remaining_lines = _MAX_LINES
        for index, path in enumerate(paths):
            self.places.setdefault(path, index)
            if path.endswith(".py"):
                self.modules.setdefault(_module(path), index)

    def of(self, path: str, text: str) -> set[int] | None:
        """The places of the files that a file imports; None for a language whose imports are not known."""
        if path.endswith(".py"):
            return _of_python(path, self._matches(_PYTHON, text), self.modules)
        rule = _RULES.get(posixpath.basename(path).rpartition(".")[2])
        if rule is None:
            return None
        pattern, resolver = rule
        places = set()
        for name in {match[1] for match in self._matches(pattern, text)}:
            candidates = (self.places[each] for each in resolver(path, name, text) if each in self.places)
            if (place := next(candidates, None)) is not None:
                places.add(place)
        return places

    def _matches(self, pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
        matches = list(islice(pattern.finditer(text), self.remaining_lines))
        self.remaining_lines -= len(matches)
        return matches


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _of_python(path: str, lines: list[re.Match[str]], modules: dict[str, int]) -> set[int]:
    """A module of the repository is known by its path, or by the end of it, as the folder of sources is not always the
    first."""
    package = _module(path) if path.endswith("/__init__.py") else _module(path).rpartition(".")[0]
    places: set[int] = set()
    for match in lines:
        if match[3]:
            module_names = [name.split()[0] for name in match[3].split(",") if name.split()]
        else:
            base = _absolute(match[1], package)
            names = [name.split()[0] for name in match[2].strip("() \\").split(",") if name.split()]
            module_names = [f"{base}.{name}" if base else name for name in names]
            known_names = [name for name in module_names if _of_name(name, package, modules) is not None]
            # a package that gives only its own modules need not be read before
            module_names = known_names if len(known_names) == len(module_names) else [*known_names, base]
        for name in module_names:
            if (place := _of_name(name, package, modules)) is not None:
                places.add(place)
    return places


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
    for depth in range(len(folders), max(0, len(folders) - _MAX_ABOVE), -1):
        if (place := modules.get(".".join([*folders[:depth], name]))) is not None:
            return place
    return None


# The order of a repository's files in a document: what is imported comes before what imports it.
#
# So a model has read a module when it comes to its use, as in DeepSeek-Coder's repositories (Guo et al. 2024, arXiv
# 2401.14196, section 2.2), whose algorithm this is: of the files that are left, the one with the fewest imports that
# are not placed yet is next. Files of languages whose imports are not known follow, sorted by path.


def in_order(files: Sequence[tuple[str, str]]) -> list[int]:
    """The places of files, given as (path, text), in the order in which they are read: those first that import none of
    the others, in a circle the one with the fewest such imports; ties go by the path. Files of which no imports are
    known follow by their paths."""
    imports = Imports([path for path, _ in files])
    needs = {
        place: others - {place}
        for place, (path, text) in enumerate(files)
        if (others := imports.of(path, text)) is not None
    }
    users: dict[int, list[int]] = {}
    for place, others in needs.items():
        for other in others & needs.keys():
            users.setdefault(other, []).append(place)
    open_needs = {place: len(others & needs.keys()) for place, others in needs.items()}
    heap = [(count, files[place][0], place) for place, count in open_needs.items()]
    heapq.heapify(heap)
    places: list[int] = []
    while heap:
        count, _, place = heapq.heappop(heap)
        if open_needs.get(place) != count:
            continue  # placed, or with fewer left by now
        del open_needs[place]
        places.append(place)
        for user in users.get(place, ()):
            if user in open_needs:
                open_needs[user] -= 1
                heapq.heappush(heap, (open_needs[user], files[user][0], user))
    rest = sorted((place for place in range(len(files)) if place not in needs), key=lambda place: files[place][0])
    return places + rest
