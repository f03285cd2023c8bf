"""The page of all columns: of documents, signals, the ledger, edits and tokens."""

from collections.abc import Iterator

import pyarrow as pa

from gristmill.flows.recipe.columns import known_columns
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.storage import schema, token_shards
from gristmill.tasks.documents.measure import field
from gristmill.tasks.documents.step import Signal, Step
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.language_model.annotate import Annotate
from gristmill.tasks.language_model.rewrite import CARRIED
from tests.reference_pages.markdown import code, fence, page, table

LEDGER = {
    "id": "id of the dropped document",
    "step": "step that dropped the document",
    "rule": "rule of the step",
    "value": "value of the signal, if it is a number",
    "threshold": "threshold that the value crossed",
    "detail": "value of the signal, if it is a text; or an error message",
    "representative": "id of the duplicate that was kept",
    "url": "address of a record without a document",
    "file": "file of the source with that record",
    "offset": "position of that record in the file, as in documents",
    "length": "size of that record in the file, in bytes",
}
EDITS = {
    "id": "id of the document",
    "step": "step that cut the span",
    "rule": "rule of the step",
    "first_line": "first line of the span, in the text before the step, from 0",
    "last_line": "last line of the span",
    "start": "first code point of the span, in the text before the step",
    "stop": "code point after the span",
    "removed": "text of the span; null if the step does not store it",
    "replacement": "text in its place",
}
TOKENS = {
    "id": "id of the document",
    "offset": "position of its first token in the shard",
    "length": "number of its tokens",
}


def columns_page() -> str:
    """Documents, signals, ledger, edits and tokens: names, types and meanings."""
    return page(
        "# Columns",
        "This page lists the columns of documents, signals, the ledger, edits and token shards, with their types.",
        "Expressions (`where`, `--where`, `mixture.by`) and `gristmill sql` use these names. List the columns of a "
        "recipe, with their values after a finished run:",
        fence("gristmill recipe columns recipe.yaml", "sh"),
        "## Documents",
        "Every document has these columns. `host`, `tld` and `mime` are derived when an expression names them. Columns "
        "of source files that a recipe keeps have the names that the recipe gives them.",
        table(("column", "type", "kind", "meaning"), _documents()),
        "## Signals",
        "A step adds its signals to the documents that reach it. The step `embedding` adds a column for each head.",
        table(("column", "type", "step", "meaning"), _signals()),
        "## Rewrites",
        "Documents of a source `rewrite` also have these columns. They are null for other documents of the recipe.",
        table(("column", "type", "meaning"), _rewrites()),
        "## Ledger",
        "The ledger has one row for each dropped document. A condition on dropped documents can also name the columns "
        "above, with the values that the step saw.",
        table(("column", "type", "meaning"), _fields(schema.LEDGER, LEDGER)),
        "## Edits",
        "Edits have one row for each span that a step cut out of a text.",
        table(("column", "type", "meaning"), _fields(schema.EDITS, EDITS)),
        "## Tokens",
        "The Parquet file next to a token shard has one row for each document of the shard.",
        table(("column", "type", "meaning"), _fields(token_shards.INDEX, TOKENS)),
    )


def _documents() -> Iterator[tuple[str, ...]]:
    recipe = load({"name": "columns", "sources": [{"name": "web", "warc": ["*"]}], "steps": [{"step": "extract"}]})
    for each in known_columns(recipe):
        yield code(each.name), each.type or "", each.kind or "", each.meaning


def _rewrites() -> Iterator[tuple[str, ...]]:
    for each in CARRIED:
        yield code(each.name), f"{each.type}", each.metadata[b"what"].decode()


def _signals() -> Iterator[tuple[str, ...]]:
    names: dict[str, list[str]] = {}
    rows = {}
    for step, kind in BUILT_IN.items():
        for signal in signals(kind):
            names.setdefault(signal.name, []).append(step)
            rows.setdefault(signal.name, signal)
    for name, signal in rows.items():
        meaning = signal.description.removesuffix(".")
        steps = ", ".join(map(code, names[name]))
        unit = f" ({signal.unit})" if signal.unit else ""
        yield code(name), f"{field(signal).type}", steps, meaning + unit


def signals(kind: type[Step]) -> Iterator[Signal]:
    """The signals of a step. `embedding` has none without heads, `extract` none without PDF documents, and those of
    `annotate` depend on the prompt."""
    if kind is Extract:
        yield from Extract(types=("html", "pdf"), rights=True).signals
    elif kind is Annotate:
        yield from Annotate(model="any", prompt="educational").signals
    else:
        yield from kind.model_construct().signals


def _fields(columns: pa.Schema, meanings: dict[str, str]) -> Iterator[tuple[str, ...]]:
    for each in columns:
        yield code(each.name), f"{each.type}", meanings[each.name]
