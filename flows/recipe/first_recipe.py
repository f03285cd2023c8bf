"""`gristmill recipe init`: a first recipe for a user's own files."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt
import yaml

from gristmill.flows.recipe.errors import Origin
from gristmill.flows.recipe.recipe import Recipe, validated
from gristmill.storage import files
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.guard.parent import Limits
from gristmill.tasks.reading.formats.source import Columned, Look
from gristmill.tasks.reading.record import TAKEN, Columns
from gristmill.tasks.reading.sources import BY_KEY, languages, look

if TYPE_CHECKING:
    from gristmill.tasks.extraction import texts as extraction
else:
    extraction = wrapt.lazy_import("gristmill.tasks.extraction.texts")

# How many files of a folder with one suffix are examined; all, if these differ.
_LOOKS = 32
_DOCUMENTS = 8  # of a folder of PDF documents, which are read
_CHARACTERS = 2000  # of their texts
_PDF_MEMORY = 512 << 20  # bytes that one of them may take
_READABLE = "pdf_garbled is null or pdf_garbled < 0.2"
_COMMAND = "gristmill recipe init --out code.yaml"
# A language with a smaller share of the sample is not kept.
_MIN_SHARE = 0.1
_COMPRESSED = (".gz", ".zst", ".lz4")


@dataclass(frozen=True)
class FoundSource:
    """Files of one kind: the source's entry in the recipe, the numbers of files and bytes, and a summary. `columns`:
    how each column of a table is used. `others`: the unused columns."""

    entry: dict[str, Any]
    files: int
    bytes: int
    looks: tuple[Look, ...]
    columns: dict[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The key that names the files."""
        return next(key for key in BY_KEY if key in self.entry)


@dataclass(frozen=True)
class FirstRecipe:
    """`steps`: each with its comment. `languages`: documents of the sample by language, most frequent first.
    `passed_over`: files that no source reads, with the reason. `folder`: of relative paths."""

    name: str
    steps: tuple[tuple[dict[str, Any], str], ...]
    sources: tuple[FoundSource, ...]
    languages: dict[str, int]
    passed_over: tuple[tuple[str, str], ...]
    folder: str = ""

    @property
    def text(self) -> str:
        """The recipe as YAML with comments."""
        return _written(self.name, self.sources, self.steps)

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return validated(yaml.safe_load(self.text), Origin(folder=self.folder or "."))

    def with_setting(self, step: str, setting: str, value: Any, comment: str) -> "FirstRecipe":
        """A copy with a setting of a step, and a comment that explains it."""
        steps = tuple(
            (settings | {setting: value}, f"{remark}; {comment}") if settings["step"] == step else (settings, remark)
            for settings, remark in self.steps
        )
        return replace(self, steps=steps)


@dataclass
class _Group:
    """Files that one source may name, by the user's paths."""

    root: str
    look: Look
    paths: list[str] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)


def first_recipe(patterns: Sequence[str], name: str = "", folder: str = "") -> FirstRecipe:
    """Create a recipe for files and folders. It is for `folder` (default: the working folder), where relative paths
    begin.

    Raises FileNotFoundError for missing paths, or if no file can be read as a source; ValueError for an invalid
    name."""
    groups: dict[tuple[str, str, Columns], _Group] = {}
    passed_over: list[tuple[str, str]] = []
    for root, paths in _roots(patterns).items():
        for path, seen, new in _looked_at(paths):
            if seen.kind is None:
                passed_over.append((path, seen.trouble))
                continue
            group = groups.setdefault((root, seen.kind, seen.columns), _Group(root, seen))
            group.paths.append(path)
            group.looks += [seen] if new else []
    if code := [key for key in groups if key[1] == "code"] if len({key[1] == "code" for key in groups}) > 1 else []:
        for key in code:
            remedy = (
                f"source code mixed with other files: write a separate recipe for it, as `{_COMMAND} "
                f"{groups[key].paths[0]}`"
            )
            passed_over += [(path, remedy) for path in groups.pop(key).paths]
    for group in groups.values():
        if group.look.kind == "pages":
            group.looks = _read(group.paths)
    if not groups:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in passed_over[:3]) or "the folder is empty"
        raise FileNotFoundError(
            "no WARC, ARC, WET, Parquet, text or PDF files, archives of source code or JSON Lines in "
            f"{', '.join(patterns)} ({reasons})"
        )
    sources = tuple(_sources([*groups.values()], patterns))
    ranked = languages([text for source in sources for look in source.looks for text in look.texts])
    language_counts = dict(sorted(ranked.items(), key=lambda item: (-item[1], item[0])))
    for each in sources:
        kind = each.kind
        paths = [path if os.path.isabs(path) else os.path.relpath(path, folder or ".") for path in each.entry[kind]]
        each.entry[kind] = paths
    name = name or sources[0].entry["name"]
    steps = _steps_of_code() if "code" in sources[0].entry else _steps(sources, language_counts)
    draft = FirstRecipe(name, tuple(steps), sources, language_counts, tuple(passed_over), folder)
    Recipe.model_validate(yaml.safe_load(draft.text))
    return draft


def _roots(patterns: Sequence[str]) -> dict[str, list[str]]:
    """The files below each given folder, or beside each given file, without hidden files."""
    roots: dict[str, list[str]] = {}
    for path in patterns:
        if os.path.isdir(path):
            below = roots.setdefault(path.rstrip("/") or "/", [])
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                below += [os.path.join(folder, name) for name in sorted(names) if not name.startswith(".")]
        elif os.path.isfile(path):
            roots.setdefault(os.path.dirname(path), []).append(path)
        else:
            raise FileNotFoundError(f"there is no file or folder {path}")
    return {root: sorted({*paths}) for root, paths in roots.items()}


def _looked_at(paths: Sequence[str]) -> Iterator[tuple[str, Look, bool]]:
    """Each file with its kind, and whether the file itself was examined or only others with its suffix."""
    by_suffix: dict[str, list[str]] = {}
    for path in paths:
        if os.path.isfile(path):
            by_suffix.setdefault(_suffix(path), []).append(path)
        else:  # to open a pipe waits for a writer
            yield path, Look(None, trouble="a pipe, a device, or a broken link"), True
    for same in by_suffix.values():
        step = max(1, len(same) // _LOOKS)
        seen = {path: look(path) for path in same[::step][:_LOOKS]}
        if len({(one.kind, one.columns) for one in seen.values()}) > 1:
            seen |= {path: look(path) for path in same if path not in seen}
        common = next(iter(seen.values()))
        for path in same:
            yield path, seen.get(path, common), path in seen


def _read(paths: Sequence[str]) -> list[Look]:
    """Read the PDF documents of a sample as the recipe will read them, in a guarded process, but with less memory,
    because a sample can skip documents that need much."""
    extract = Extract(types=("pdf",), limits=Limits(page_memory=_PDF_MEMORY))
    sample = paths[:: max(1, len(paths) // _DOCUMENTS)][:_DOCUMENTS]
    payloads = (Path(path).read_bytes() for path in sample if os.path.getsize(path) <= extract.max_bytes)
    calls = ((each, "application/pdf", None, "", extract.asked[0], "plain", extract.types) for each in payloads)
    with extraction.page_guard(extract) as guard:
        texts = [result["text"] for result in guard.map(calls) if "text" in result]
    return [Look("pages", texts=tuple(text[:_CHARACTERS] for text in texts))]


def _suffix(path: str) -> str:
    """The suffix for a glob, including that of the compression; "" if there is none."""
    stem, last = os.path.splitext(os.path.basename(path))
    if last.lower() in _COMPRESSED:
        return os.path.splitext(stem)[1] + last
    return last


def _sources(groups: Sequence[_Group], patterns: Sequence[str]) -> Iterator[FoundSource]:
    taken: set[str] = set()
    for group in groups:
        paths = _patterns(group.root, group.paths)
        kind = group.look.kind
        assert kind is not None, "skipped files of unknown formats"
        alone = len(group.paths) == 1 and group.paths[0] in patterns
        entry: dict[str, Any] = {"name": _name(group.paths[0] if alone else group.root, kind, taken), kind: paths}
        columns = group.look.columns
        named = {"text": columns.text, "url": columns.url, "id": columns.id, "date": columns.date}
        entry |= {f"{what}_column": n for what, n in named.items() if n and (what, n) != ("text", "text")}
        size = sum(os.path.getsize(path) for path in group.paths)
        taken_for = {what: name for what, name in named.items() if name} if issubclass(BY_KEY[kind], Columned) else {}
        others = tuple(dict.fromkeys(name for look in group.looks for name in look.others))
        yield FoundSource(entry, len(group.paths), size, tuple(group.looks), taken_for, others)


def _name(path: str, kind: str, taken: set[str]) -> str:
    """A name for a source, from a folder or a file."""
    base = Path(os.path.abspath(path)).name.split(".")[0].lower()
    base = re.sub(r"[^a-z0-9_]+", "-", base).strip("-")
    if not re.match("[a-z]", base):
        base = f"{kind}-{base}".strip("-")
    name = base if base not in taken else f"{base}-{kind}"
    number = 2
    while name in taken:
        name, number = f"{base}-{kind}-{number}", number + 1
    taken.add(name)
    return name


def _patterns(root: str, paths: Sequence[str]) -> list[str]:
    """Globs that match these files and no others, or else the list of files."""
    patterns: list[str] = []
    by_suffix: dict[str, list[str]] = {}
    for path in paths:
        by_suffix.setdefault(_suffix(path), []).append(path)
    for suffix, same in by_suffix.items():
        deep = any(os.path.dirname(path) != root for path in same)
        pattern = os.path.join(glob.escape(root), "**" if deep else "", f"*{glob.escape(suffix)}")
        alike = suffix and len(same) > 1 and set(_absolute(files.glob(pattern))) == set(_absolute(same))
        patterns += [pattern] if alike else [glob.escape(path) for path in same]
    return patterns


def _absolute(paths: Iterable[str]) -> list[str]:
    return [os.path.abspath(path) for path in paths]


def _written(name: str, sources: Sequence[FoundSource], steps: Sequence[tuple[dict[str, Any], str]]) -> str:
    weights = _flow({source.entry["name"]: 1 for source in sources})
    lines = [
        "# A starting recipe, by `gristmill recipe init`. `gristmill recipe rules` lists what steps measure.",
        f"name: {_flow(name)}",
        "sources:",
        *(f"  - {_flow(source.entry)} # {_plural(source.files, 'file')}{_further(source)}" for source in sources),
        "steps:",
        *(f"  - {_flow(step)} # {comment}" for step, comment in steps),
        f"# To also train on the documents: mixture: {{weights: {weights}}}",
        "",
    ]
    return "\n".join(lines)


# Languages of scripts without spaces, in which each character counts as a word (`tasks.kernels.characters.UNSPACED`).
UNSPACED_LANGUAGES = {"bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"}


def _steps(sources: Sequence[FoundSource], language_counts: dict[str, int]) -> list[tuple[dict[str, Any], str]]:
    total = sum(language_counts.values())
    keep = [code for code, count in language_counts.items() if count >= _MIN_SHARE * total] or ["en"]
    sampled = ", ".join(f"{code} {count}" for code, count in list(language_counts.items())[:5]) or "none recognized"
    pages = sum(look.pages for source in sources for look in source.looks)
    quality: dict[str, Any] = {"step": "gopher_quality"} | ({} if keep == ["en"] else {"min_stop_words": 0})
    if set(keep) & UNSPACED_LANGUAGES:
        quality["min_mean_word_length"] = None  # each of their characters counts as a word
    documents = any("pages" in source.entry for source in sources)
    first: list[tuple[dict[str, Any], str]] = [
        ({"step": "extract"}, "the main text of HTML pages" if pages else "texts are kept unchanged")
    ]
    if documents:
        first = [
            ({"step": "extract", "types": ["html", "text", "pdf"]}, "text of PDF documents"),
            ({"step": "where", "keep": _READABLE}, "at most a fifth of the pages garbled"),
        ]
    return [
        *first,
        ({"step": "language", "keep": keep}, f"documents in a sample: {sampled}"),
        ({"step": "gopher_repetition"}, "repeated lines, paragraphs and phrases"),
        (
            quality,
            "length, symbols, "
            + ("stop words" if keep == ["en"] else "no stop words, because the built-in list is English"),
        ),
        ({"step": "minhash"}, "keep one of each group of near-duplicates"),
    ]


def _steps_of_code() -> list[tuple[dict[str, Any], str]]:
    """The steps of the shipped recipe `code`."""
    return [
        ({"step": "code_language"}, "by file names and extensions"),
        ({"step": "code"}, "measures what the next step decides by"),
        ({"step": "stack_v2"}, "drop generated, minified and data-like files"),
        ({"step": "where", "drop": "license_type = 'non_permissive'"}, "keep files without a license"),
        ({"step": "content_dedup"}, "keep one of equal files"),
        ({"step": "minhash"}, "keep one of each group of near-duplicates"),
        ({"step": "pii", "kinds": ["email", "api_key"], "max_spans": None}, "mask secrets"),
    ]


def _further(source: FoundSource) -> str:
    """How to use the columns that are not used."""
    if not source.others:
        return ""
    renamed = {f"their_{name.lower()}" if name in TAKEN else name: name for name in source.others}
    plain = [*renamed] == [*renamed.values()]
    return f"; to also keep other columns: columns: {_flow([*renamed] if plain else renamed)}"


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, str):
        return yaml.safe_dump([value], default_flow_style=True, width=1 << 30, allow_unicode=True).strip()[1:-1]
    return yaml.safe_dump(value, default_flow_style=True, width=1 << 30, sort_keys=False, allow_unicode=True).strip()


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def sampled(sources: Iterable[FoundSource]) -> Counter[str]:
    """Counts of the sample: `documents`, and how many of them were HTML, `pages`."""
    counted: Counter[str] = Counter()
    for source in sources:
        for each in source.looks:
            counted["documents"] += len(each.texts)
            counted["pages"] += each.pages
    return counted
