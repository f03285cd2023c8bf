"""SQL over a finished run, with DuckDB: `documents`, `extracted`, `ledger` and others are tables.

A query reads the home through `Rows`, by the columns that it needs, and can read nothing else
(`gristmill.tasks.documents.isolated_duckdb`). It cannot write.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import wrapt

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.columns import known_columns
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.funnel import FunnelRow
from gristmill.flows.reports.run import rows
from gristmill.flows.reports.run.rows import Rows
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.heldout import Data
from gristmill.flows.stages.model import Trained, local_files
from gristmill.samples.order import batch_number, schedule_of
from gristmill.storage import checked_json, files, layout
from gristmill.storage.schema import own_of
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.tasks.documents.expressions import DERIVED, DERIVED_SQL
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.url.canonical import canonical_host, registered_domain
from gristmill.training.config import TrainingConfig
from gristmill.training.start import offset_of
from gristmill.training.step.guard import EVENTS, read_events, windows_left_out

if TYPE_CHECKING:
    import duckdb
    from duckdb import func as functions

    from gristmill.tasks.documents import isolated_duckdb
else:
    duckdb = wrapt.lazy_import("duckdb")
    functions = wrapt.lazy_import("duckdb.func")
    isolated_duckdb = wrapt.lazy_import("gristmill.tasks.documents.isolated_duckdb")


class QueryError(ValueError):
    """A query that cannot be parsed, names what is not there, or does more than read."""


@dataclass(frozen=True)
class View:
    """A table of queries. `rows`: read when a query needs them; `comments`: of columns, by name."""

    name: str
    description: str
    rows: Rows | pa.Table
    comments: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The type of each column."""
        return {column.name: column.type for column in self.rows.schema}


def views(
    recipe: Recipe,
    corpus: Corpus,
    data: Data | None,
    stages: Sequence[StageResult],
    funnel: Sequence[FunnelRow],
    trained: Trained | None = None,
    settings: MachineSettings | None = None,
) -> dict[str, View]:
    """The tables that a run has, by name. A run without near-duplicates has no `clusters`, one without token shards no
    `tokens`, one without a finished training no `training`. `stages`: those that the documents went through; `funnel`:
    its rows; `settings`: of the machine, with which files of a training are read."""
    documents = rows.documents(recipe, corpus)
    own = pa.schema([documents.schema.field(name) for name in own_of(documents.schema)])
    known = {column.name: column.meaning for column in known_columns(recipe, "", own)}
    kept = {"kept": "whether the document is curated"}
    made = [
        View("documents", "curated documents, with their texts and all measured signals", documents, known),
        View(
            "extracted",
            "all extracted documents, kept or not, with all measured signals and without texts",
            rows.extracted(recipe, corpus),
            known | kept,
        ),
        View("ledger", "dropped records and documents, with rule and reason", rows.ledger(stages), _STAGE),
        View("edits", "spans that steps cut out of texts", rows.edits(stages), _STAGE),
        View("sources", "input of each source", _sources(corpus)),
        View("funnel", "documents before and after each step", _funnel(funnel), {"kept": "share of the documents"}),
    ]
    if any(stage.name == "near_duplicates" for stage in corpus.stages):
        made.append(View("clusters", "documents of clusters of near-duplicates", rows.clusters(recipe, corpus)))
    if data is not None:
        made.append(View("tokens", "tokens of each document that training may see", rows.tokens(data)))
    if data is not None and trained is not None and settings is not None:
        made.append(View("training", "what training read of each source", training_rows(settings, data, trained)))
    return {view.name: view for view in made}


_STAGE = {"stage": "name and key of the stage"}
_ABSENT = {
    "clusters": "the recipe has no step `minhash`",
    "tokens": "the recipe has no finished token shards: run `gristmill run RECIPE --tokens-only`",
    "training": "the recipe has no finished training: run `gristmill run RECIPE`",
}


def query(tables: Mapping[str, View], sql: str) -> "duckdb.DuckDBPyRelation":
    """The result of a query over the tables of a run, which is computed when it is read: `.df()`, `.pl()`,
    `.to_arrow_table()`, `.fetchall()`. Times are in UTC.

    Functions beside DuckDB's: `host(url)`, `domain(url)`, `tld(url)`, `mime(content_type)`. Raises QueryError for a
    query that is not one SELECT, or cannot be planned.
    """
    connection = isolated_duckdb.connect()
    _check_statements(connection, sql)
    for name, source in DERIVED.items():
        connection.execute(f"create macro {name}({source}) as {DERIVED_SQL[name]}")
    connection.create_function(  # what is no host has no domain, so it returns null, too
        "_domain", _domains, ["VARCHAR"], "VARCHAR", type=functions.ARROW, null_handling=functions.SPECIAL
    )
    connection.execute("create macro domain(url) as _domain(host(url))")
    streams = {view.name: _Stream(view) for view in tables.values()}
    for name, stream in streams.items():
        _register(connection, name, stream)
    try:
        [(_, plan)] = connection.execute(f"explain (format json) {sql}").fetchall()
        scanned = {name for node in orjson.loads(plan) for name in _scanned(node)}
        if scanned and _EVERY not in scanned:
            for stream in streams.values():
                stream.read_only(scanned)
        return connection.sql(sql)
    except duckdb.Error as error:
        message = f"{error}".splitlines()[0]
        absent = [why for name, why in _ABSENT.items() if f"name {name} does not exist" in message]
        if "does not exist" in message and "Table" in message:
            absent = [*absent, f"the tables are {', '.join(tables)}"]
        raise QueryError("; ".join([message, *absent])) from None


def _check_statements(connection: "duckdb.DuckDBPyConnection", sql: str) -> None:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(f"{error}".splitlines()[0]) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryError("only one SELECT is allowed, and no statement that writes, attaches or sets")


def _domains(hosts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The domain that was registered under a public suffix, of each host; the host for an IP address and a single
    label, null for what is no host."""
    coded = hosts.combine_chunks().dictionary_encode()
    plain = map(canonical_host, coded.dictionary.to_pylist())  # nulls are in no dictionary
    found = [registered_domain(host, False) or host or None for host in plain]
    return pa.chunked_array([pa.array(found, pa.string()).take(coded.indices)])


_EVERY = ""


def _scanned(node: Mapping[str, Any]) -> Iterator[str]:
    """The columns that a plan reads of our tables. _EVERY for a scan that does not name them, as another release of
    DuckDB may print it: a column that is read by mistake costs time, one that is left out would be null."""
    if "SCAN" in node["name"] and not node["children"] and node["name"] not in _OWN_SCANS:
        names = node["extra_info"].get("Projections", _EVERY)
        yield from [names] if isinstance(names, str) else names
    for child in node["children"]:
        yield from _scanned(child)


# Scans of what a query has made itself.
_OWN_SCANS = {
    "CTE_SCAN", "REC_CTE_SCAN", "DELIM_SCAN", "DUMMY_SCAN", "COLUMN_DATA_SCAN", "CHUNK_SCAN", "EXPRESSION_SCAN",
}  # fmt: skip


def _comments(view: View) -> dict[str, str]:
    fields = {f.name: f.metadata[b"what"].decode() for f in view.rows.schema if b"what" in (f.metadata or {})}
    return {name: text for name, text in {**fields, **view.comments}.items() if name in view.columns}


def _register(connection: "duckdb.DuckDBPyConnection", name: str, stream: "_Stream") -> None:
    connection.register(f"_{name}", stream)
    connection.execute(f"create view {name} as select * from _{name}")
    for column, comment in _comments(stream.view).items():
        text = comment.replace("'", "''")
        connection.execute(f"comment on column {name}.{_quoted(column)} is '{text}'")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Stream:
    """The rows of a view, which DuckDB asks for each time that it reads them. After `read_only` the columns that a plan
    does not scan are null, and DuckDB does not look at them."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._read = [*view.columns]
        spellings = Counter(name.lower() for name in view.columns)
        self._ambiguous = [name for name in view.columns if spellings[name.lower()] > 1]
        # a second column of a name, in another case, must have one of its own
        names = [f"{name}_{i}" if name in self._ambiguous[1:] else name for i, name in enumerate(view.columns)]
        types = map(_supported, view.columns.values())
        self._schema = pa.schema([*zip(names, types, strict=True)])

    def read_only(self, scanned: Collection[str]) -> None:
        """Read the columns that a plan scans, as `column`, or `column.field` of a struct. Raises QueryError for one
        whose name another has in another case."""
        self._read = [
            name
            for name in self.view.columns
            if name in scanned or any(each.startswith(f"{name}.") for each in scanned)
        ]
        if {*self._read} & {*self._ambiguous}:
            raise QueryError(
                f"{self.view.name} has the columns {', '.join(self._ambiguous)}, whose names are equal in "
                "SQL: rename one of them in the source's `columns`"
            )

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        batches = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return batches.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows, names = self.view.rows, self._read or [*self.view.columns][:1]
        for batch in rows.select(names).to_batches() if isinstance(rows, pa.Table) else rows.reader(names):
            arrays = [
                batch[name].cast(field.type) if name in names else pa.nulls(len(batch), field.type)
                for name, field in zip(self.view.columns, self._schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _supported(type: pa.DataType) -> pa.DataType:
    """DuckDB has no floats of 16 bits."""
    return pa.float32() if pa.types.is_float16(type) else type


def _sources(corpus: Corpus) -> pa.Table:
    counts = corpus.extracted.result["sources"]
    shards = Counter(corpus.sources)
    names = [name for name, value in next(iter(counts.values()), {}).items() if isinstance(value, int)]
    columns: dict[str, pa.Array] = {"source": pa.array(list(counts), pa.string())}
    columns["shards"] = pa.array([shards[name] for name in counts], pa.int64())
    columns |= {name: pa.array([count[name] for count in counts.values()], pa.int64()) for name in names}
    return pa.table(columns)


_FUNNEL: Mapping[str, tuple[pa.DataType, Callable]] = {
    "step": (pa.string(), lambda row: row.name),
    "documents_in": (pa.int64(), lambda row: row.documents_in),
    "documents_out": (pa.int64(), lambda row: row.documents_out),
    "kept": (pa.float64(), lambda row: row.kept),
    "characters_in": (pa.int64(), lambda row: row.characters_in),
    "characters_out": (pa.int64(), lambda row: row.characters_out),
    "reasons": (pa.map_(pa.string(), pa.int64()), lambda row: [*row.reasons.items()]),
}


def _funnel(steps: Sequence[FunnelRow]) -> pa.Table:
    columns = {name: pa.array([value(row) for row in steps], type) for name, (type, value) in _FUNNEL.items()}
    return pa.table({"position": pa.array(range(1, len(steps) + 1), pa.int64()), **columns})


_TRAINING = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False, metadata={"what": "or the group of the mixture"}),
        pa.field("tokens", pa.int64(), nullable=False, metadata={"what": "that the source has for training"}),
        pa.field("share", pa.float64(), nullable=False, metadata={"what": "of what was read, in [0, 1]"}),
        pa.field("samples", pa.int64(), nullable=False, metadata={"what": "sequences that the weights learned from"}),
        pa.field("tokens_read", pa.int64(), nullable=False, metadata={"what": "tokens of these sequences"}),
        pa.field("epochs", pa.float64(), nullable=False, metadata={"what": "how often the source was read"}),
        pa.field("first_step", pa.int64(), metadata={"what": "first step, from 1, that read the source"}),
        pa.field("last_step", pa.int64(), metadata={"what": "last step that read the source"}),
    ]
)


def training_rows(settings: MachineSettings, data: Data, trained: Trained) -> Rows:
    """A row for each source of the mixture."""

    def read(_: int, names: Sequence[str]) -> Iterator[pa.Table]:
        yield pa.Table.from_pylist(_read_by_source(settings, data, trained), _TRAINING).select(names)

    path = files.join(data.mixture.folder, "mixture.json")
    key = layout.digest_of(["training", data.mixture.contents, trained.model.contents])
    return Rows(_TRAINING, (path,), read, key)


def _read_by_source(settings: MachineSettings, data: Data, trained: Trained) -> list[dict[str, Any]]:
    """The rows of `_TRAINING`, in the mixture's order: what the final weights learned from. It is not recorded, but
    follows from shares, steps and the guard's events.

    Batches that the guard left out do not count. For a branch that continues in the data of its trunk, what the trunk
    read of them counts, too.
    """
    record = trained.model.manifest["record"]
    training, seq_len = TrainingConfig.model_validate(record["training"]), record["model"]["seq_len"]
    manifest = TrainingManifest.model_validate(checked_json.read(files.join(data.mixture.folder, "mixture.json")))
    window = seq_len
    if training.objective != "causal":
        from gristmill.training.objectives import Objective  # here, since it imports torch

        window = Objective(training, seq_len, manifest).tokens - 1
    if manifest.row_length is None:
        windows = [(source.tokens - 1) // window for source in manifest.sources]
    else:
        windows = [sum(entry.rows for entry in source.rows) for source in manifest.sources]
    mean = [source.tokens / max(1, count) for source, count in zip(manifest.sources, windows, strict=True)]
    schedule = schedule_of(manifest, seq_len, mean)
    plan = training.batches(seq_len)
    trunk = record.get("trunk")
    offset = 0 if trunk is None else offset_of(plan, trunk["step"], trunk["samples"])
    there = [name for name in (EVENTS,) if files.exists(files.join(trained.model.folder, name))]
    left_out = windows_left_out(read_events(local_files(settings, trained.model, there) / EVENTS))

    def drawn(batch: int) -> list[int]:
        """Samples of each source in the batches before this one."""
        return schedule.counts(max(0, plan.first(batch) - offset))

    def learned(steps: int) -> list[int]:
        """Samples of each source in the batches of the first steps."""
        end = batch_number(steps - 1, left_out) + 1 if steps else 0
        samples = drawn(end)
        for first, stop in _merged(left_out, end):
            samples = [n - (b - a) for n, a, b in zip(samples, drawn(first), drawn(stop), strict=True)]
        return samples

    table = []
    counts = learned(training.steps)
    for number, (source, samples, in_epoch) in enumerate(zip(manifest.sources, counts, windows, strict=True)):
        first, last = (
            bisect_left(range(training.steps + 1), least, key=lambda steps: learned(steps)[number]) if samples else None
            for least in (1, samples)
        )
        table.append(
            {
                "source": source.name,
                "tokens": source.tokens,
                "share": samples / sum(counts) if samples else 0.0,
                "samples": samples,
                "tokens_read": samples * seq_len,
                "epochs": samples / in_epoch if in_epoch else 0.0,
                "first_step": first,
                "last_step": last,
            }
        )
    return table


def _merged(windows: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Ranges of batches before `end`, without overlaps."""
    merged: list[tuple[int, int]] = []
    for first, stop in sorted(windows):
        first, stop = max(first, merged[-1][1] if merged else 0), min(stop, end)
        if first < stop:
            merged.append((first, stop))
    return merged
