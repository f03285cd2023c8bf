"""The step `extract`: from records to documents, the main text of each page by an engine, or the union of several."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
import wrapt
from pydantic import Field, field_validator, model_validator

from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.step import DocumentStep, Problem, Signal, Step, StepError, function_at, imported
from gristmill.tasks.extraction.engines import ENGINES
from gristmill.tasks.guard.parent import Limits
from gristmill.tasks.rights import statements

if TYPE_CHECKING:
    import justext
else:
    justext = wrapt.lazy_import("justext")

_PDF = "PDF 2.0 (ISO 32000-2)"
SIGNALS = (
    Signal("pdf_pages", "int32", "pages", _PDF, "pages that could be read; null where the document is not a PDF"),
    Signal("pdf_scanned", "float32", "share of pages", "own", "pages with an image and fewer than 20 characters"),
    Signal(
        "pdf_garbled",
        "float32",
        "share of pages",
        "own",
        "pages, over 10% of whose characters have no known meaning or order",
    ),
    Signal("pdf_truncated", "bool", "", _PDF, "the file ends without its end mark, as where a crawler has cut it"),
    Signal("pdf_author", "string", "", _PDF, "as the document says itself"),
    Signal("pdf_producer", "string", "", _PDF, "the program that wrote the file"),
    Signal("pdf_language", "string", "", _PDF, "as the document says itself, such as en-GB"),
)


ENGINE_NAMES = tuple(ENGINES)
UNION = "union"
_OF_USERS = re.compile(r"(\w+(?:\.\w+)*):\w+")


def _option(description: str, engine: str = "trafilatura") -> Any:
    """A setting of one engine. It is in no record where it is not set: the stages of other engines stay as they are."""
    return Field(None, description=f"{engine}: {description}", exclude_if=lambda value: value is None)


class Extract(Step):
    """Extract the main text of HTML pages, and of PDF documents if `types` includes them. `text/plain` is kept
    unchanged. Anything else is dropped by content type."""

    # 2: pages are decoded by their bytes, with the column charset_declared; shadow roots and texts that are only data
    # are read; shells of pages are dropped
    # 3: elements mean what their roles say; text in <del>, links past menus, hidden menus and names of icons are left
    # out; code in text areas and lines of verse are kept as such; Markdown escapes signs within text
    # 4: tooltips and grids of controls are left out; <del> in listings stays; lists may be tables by their role;
    # ingredients and steps of recipes that a page declares in JSON-LD are kept where it shows them
    work_version: ClassVar[int] = 4
    work: ClassVar = "gristmill.tasks.extraction.shard"

    step: Literal["extract"] = "extract"
    types: tuple[Literal["html", "text", "pdf"], ...] = Field(
        ("html", "text"),
        min_length=1,
        description="Content types to read; other records are dropped as `content_type`. pdf: documents "
        "with embedded text, read by a separate engine.",
    )
    engine: str = Field(
        "blocks",
        description=f"Extraction engine: {', '.join(ENGINE_NAMES)}, {UNION}, or your own (module:function). blocks: "
        "our own parser and block classifier. plain: all text of the page. union: the first result of `engines` that "
        "passes the document steps directly after extraction, or the first result if none passes.",
        json_schema_extra={"examples": [*ENGINE_NAMES, UNION]},
    )
    engines: tuple[str, ...] = Field(
        ("blocks", "trafilatura", "resiliparse"),
        min_length=2,
        description=f"Engines for {UNION}, in order of preference.",
    )
    format: Literal["plain", "markdown"] = Field(
        "plain",
        description="Output format. markdown marks headings, emphasis, code and tables; only for the "
        "engine blocks, and for PDF.",
    )
    fast: bool | None = _option("disable its two fallback extractors; default: true.")
    favor_precision: bool | None = _option("prefer less text with a larger share of main text; default: false.")
    favor_recall: bool | None = _option("prefer more text with a smaller share of main text; default: false.")
    include_comments: bool | None = _option("include readers' comments; default: false.")
    include_tables: bool | None = _option("include the text of tables; default: true.")
    stop_list: str | None = _option("language of the stop word list; default: English.", "justext")
    max_bytes: int = Field(
        10_000_000, gt=0, description="Maximum payload size (bytes). A larger payload is dropped as `too_large`."
    )
    verify_digests: bool = Field(False, description="Drop records that do not match their own digest.")
    rights: bool = Field(
        False,
        description="Record what pages and their HTTP headers state about machine use, their licenses and copyright "
        "lines, as columns for the step `rights` and for `where`.",
        exclude_if=lambda value: not value,  # the stages of recipes without it stay as they are
    )
    limits: Limits = Field(Limits(), description="Time and memory limits for one page.")

    @field_validator("types")
    @classmethod
    def _once(cls, types: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(types)) < len(types):
            raise ValueError(f"is {', '.join(types)}; list each type once")
        return types

    @field_validator("engine")
    @classmethod
    def _is_engine(cls, engine: str) -> str:
        _check_engine(engine, (*ENGINE_NAMES, UNION))
        return engine

    @field_validator("engines")
    @classmethod
    def _are_engines(cls, engines: tuple[str, ...]) -> tuple[str, ...]:
        for index, engine in enumerate(engines):
            _check_engine(engine, ENGINE_NAMES)
            if engine in engines[:index]:
                raise ValueError(f"has {engine} twice; list each engine once")
        return engines

    @model_validator(mode="after")
    def _format_of_engine(self) -> "Extract":
        if self.format == "markdown" and self.engine != "blocks":
            raise ValueError(f"format: markdown is only available with the engine blocks, not {self.engine}")
        return self

    @model_validator(mode="after")
    def _options_of_engines(self) -> "Extract":
        for owner, known in ENGINES.items():
            for name in known.options:
                if getattr(self, name) is not None and owner not in self.asked:
                    raise ValueError(f"{name} is an option of the engine {owner}, but the engine is {self.engine}")
        if self.favor_precision and self.favor_recall:
            raise ValueError("favor_precision and favor_recall exclude each other; give one of them")
        if self.stop_list is not None and self.stop_list not in (lists := justext.get_stoplists()):
            raise ValueError(f"stop_list is {self.stop_list!r}; give one of {', '.join(sorted(lists))}")
        return self

    def options(self, engine: str) -> dict[str, Any]:
        """The options of an engine that are set."""
        names = ENGINES[engine].options if engine in ENGINES else ()
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def signals(self) -> tuple[Signal, ...]:  # type: ignore[override]  # they depend on the settings
        return (*(SIGNALS if "pdf" in self.types else ()), *(statements.SIGNALS if self.rights else ()))

    @property
    def part_versions(self) -> Mapping[str, int]:
        return {"extract.rights": statements.VERSION} if self.rights else {}

    @property
    def asked(self) -> tuple[str, ...]:
        """The engines that read each page."""
        return self.engines if self.engine == UNION else (self.engine,)

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        own = [getattr(imported(module), "LIBRARIES", ()) for module in self.modules]
        engine_libraries: list[tuple[str, ...]] = [ENGINES[name].libraries for name in self.asked if name in ENGINES]
        if "pdf" in self.types:
            engine_libraries.append(("pypdfium2",))
        if self.rights:
            engine_libraries.append(statements.LIBRARIES)
        return ("resiliparse", *dict.fromkeys(name for names in (*engine_libraries, *own) for name in names))

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(match[1] for engine in self.asked if (match := _OF_USERS.fullmatch(engine)))

    def problems(self, deep: bool) -> Iterator[Problem]:
        for engine in self.asked if deep else ():
            if ":" in engine:
                try:
                    function_at(engine)
                except StepError as error:
                    yield ("engines" if self.engine == UNION else "engine",), str(error)


def _check_engine(engine: str, choices: tuple[str, ...]) -> None:
    if engine not in choices and not _OF_USERS.fullmatch(engine):
        raise ValueError(f"is {engine!r}; give one of {', '.join(choices)}, or your own as module:function")


OTHERS = "others"  # the key of a row that has the further texts of its page


def united(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the engines made of one page, in their order, as what the first made of it that found a text; `others` are
    the further texts, each once, as (engine, text). Of a page without any text it is the first engine's drop."""
    by_text: dict[str, Mapping[str, Any]] = {}
    for each in results:
        if "rule" not in each:
            by_text.setdefault(each["text"], each)
    if not by_text:
        return dict(results[0])
    first, *others = by_text.values()
    return {**first, OTHERS: [(each["engine"], each["text"]) for each in others]}


def chosen(
    rows: Sequence[dict], columns: pa.Schema, normalized: Callable[[pa.Table], pa.Table], steps: Sequence[DocumentStep]
) -> list[dict]:
    """The rows of a batch of documents, each with the first of its texts that `steps` keep, and that text's engine.

    rows: those of documents, whose columns are `columns`, with the key `others`, which is taken out. normalized: what
    becomes of the documents' texts before the steps see them; a document may be left out. Each turn asks about one more
    text of the pages that have none yet; holds these once more, with the signals of the steps.
    """
    further = [row.pop(OTHERS, []) for row in rows]
    answer = list(rows)
    pending = [(index, row) for index, row in enumerate(rows) if further[index]]
    turn = 0
    while pending:
        kept = _kept(pa.Table.from_pylist([row for _, row in pending], schema=columns), normalized, steps)
        for index, row in pending:
            if row["id"] in kept:
                answer[index] = row
        pending = [
            (index, row | {"engine": engine, "text": text, "characters": len(text)})
            for index, row in pending
            if row["id"] not in kept and turn < len(further[index])
            for engine, text in [further[index][turn]]
        ]
        turn += 1
    return answer


def _kept(
    documents: pa.Table, normalized: Callable[[pa.Table], pa.Table], steps: Sequence[DocumentStep]
) -> frozenset[str]:
    """The ids of the documents that the steps keep."""
    signals = measured(normalized(documents), steps).table
    dropped = decide(signals, [(step.step, step.decisions()) for step in steps])
    return frozenset(signals["id"].to_pylist()).difference(*(rows["id"].to_pylist() for _, rows in dropped))
