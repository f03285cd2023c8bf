"""What a row of the table is, and rows that are made of recipes."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_args

from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.flows.stages.corpus import Corpus, NothingLeftError
from gristmill.tasks.documents.step import DocumentStep
from tests.golden.run import Golden

Make = Callable[[Golden], Any]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """`covers`: the steps and stages that it is there for; `settings`: what tells it from other rows of these; `make`
    asks for the stages; `slow`: not in the default test run; `floats`: stages that are compared by numbers, within a
    tolerance, since a library of matrices rounds them."""

    name: str
    covers: tuple[str, ...]
    make: Make
    settings: str = ""
    slow: bool = False
    floats: tuple[str, ...] = ()


def placed(given: Any, golden: Golden) -> Any:
    """Settings with the folder of the fixture in their addresses."""
    if isinstance(given, dict):
        return {key: placed(value, golden) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [placed(each, golden) for each in given]
    return given.replace("{fixture}", str(golden.fixture)) if isinstance(given, str) else given


def lines(name: str, *files: str, **more: Any) -> Settings:
    """A source of lines of JSON, whose files are named without their ending."""
    paths = [f"{{fixture}}/{file or name}.jsonl" for file in (files or (name,))]
    return {"name": name, "jsonl": paths, "url_column": "url", **more}


EDGES = lines("edges", "edges-*")
COPIES = lines("copies", "copies-*", "empty", id_column="id", date_column="date", columns=["score", "nested"])
EVERY = lines("every", url_column=None)
BOOKS = lines("books", date_column="date")
WEB: Settings = {
    "name": "web",
    "parquet": ["{fixture}/web.parquet"],
    "text_column": "body",
    "url_column": "address",
    "date_column": "day",
    "columns": {"grade": "grade", "sort": "kind", "tags": "tags", "count": "count", "flag": "flag", "said": "said"},
    "range_bytes": 6000,
}
PERSONAL = lines("personal", columns=["title"])
ADDRESSES = lines("addresses")
GROUPS = lines("groups", columns=["topic_of"])
HOLDING = lines("holding")
EVALUATED = lines("evaluated")


LANGUAGES = [
    "de",
    "fr",
    "es",
    "pl",
    "cs",
    "tr",
    "vi",
    "ru",
    "uk",
    "el",
    "ar",
    "he",
    "fa",
    "hi",
    "bn",
    "ta",
    "th",
    "zh",
    "ja",
    "ko",
    "am",
    "ka",
]
ANY: Settings = {"step": "language", "keep": ["en", *LANGUAGES, "unknown"], "min_score": 0.0, "unknown_below": 0}
SEEN = ("documents", "rules")


def recipe(sources: Iterable[Settings], steps: Iterable[Settings], **rest: Any) -> Settings:
    return {"name": "golden", "sources": [*sources], "steps": [*steps], **rest}


def curated(golden: Golden, given: Settings) -> Corpus | None:
    """The corpus that a recipe gives, which may be without documents."""
    try:
        return golden.curated(placed(given, golden))[1]
    except NothingLeftError:
        return None


def row(
    name: str,
    sources: Iterable[Settings],
    steps: Iterable[Settings],
    covers: Iterable[str] = (),
    slow: bool = False,
    floats: tuple[str, ...] = (),
    **rest: Any,
) -> Row:
    """A row of a recipe, which covers its steps and the stages named."""
    given = recipe(sources, steps, **rest)
    own = [step["step"] for step in given["steps"] if step["step"] in BUILT_IN or step["step"].startswith("where")]
    names = ["where" if each.startswith("where") else each for each in own]
    shown = json.dumps(given, sort_keys=True)
    return Row(
        name, tuple(dict.fromkeys((*names, *covers))), lambda golden: curated(golden, given), shown, slow, floats
    )


def alone(step: str, name: str, others: Settings) -> Settings:
    """A step with one threshold at its default, and no other that binds."""
    kind = BUILT_IN[step]
    assert issubclass(kind, DocumentStep), step
    free: Settings = {}
    for field, info in kind.model_fields.items():
        if field in (name, "step", *kind.signal_fields) or info.default is None:
            continue
        if type(None) in get_args(info.annotation):
            free[field] = None
        elif isinstance(info.default, bool):
            free[field] = field in ("generated", "vendored", "minified", "data")
    return {"step": step, **free, **others}


def thresholds(step: str) -> list[str]:
    """The thresholds of a step that bind by default."""
    kind = BUILT_IN[step]
    assert issubclass(kind, DocumentStep), step
    fields = kind.model_fields.items()
    return [
        name
        for name, info in fields
        if name not in ("step", *kind.signal_fields)
        and (type(None) in get_args(info.annotation) or isinstance(info.default, bool))
        and info.default is not None
    ]


def each_alone(name: str, sources: list[Settings], before: list[Settings], step: str, **others: Any) -> Row:
    """A row with a stage `rules` for each threshold of a step, which decides by itself."""

    def make(golden: Golden) -> None:
        for threshold in thresholds(step):
            curated(golden, recipe(sources, [*before, alone(step, threshold, others)]))

    return Row(name, (step, "rules"), make, f"{step} {others}")
