"""SQL over a finished run: `gristmill sql`."""

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
import wrapt

from gristmill.flows.cli.app import FinishedRecipe
from gristmill.flows.cli.terminal import console, print_cells, print_texts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.tables import Column
from gristmill.storage import files
from gristmill.storage.printable import one_line, printable, printable_json

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gristmill.flows.reports import finished
    from gristmill.flows.reports.run import Run
else:
    duckdb = wrapt.lazy_import("duckdb")
    pa = wrapt.lazy_import("pyarrow")
    pq = wrapt.lazy_import("pyarrow.parquet")
    finished = wrapt.lazy_import("gristmill.flows.reports.finished")

MAX_ROWS = 50  # printed of a table
MAX_CHARACTERS = 200  # printed of a value
BATCH = 10_000  # rows held while a result is written


def sql(
    recipe: FinishedRecipe,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SELECT statement; default: prompt")] = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV output with a header")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output, one object per row")] = False,
    parquet: Annotated[str, typer.Option(metavar="FILE", help="Parquet file for all rows")] = "",
) -> None:
    """Tables: documents, extracted, ledger, edits, clusters, sources, tokens, training, funnel. Queries read only this
    run and cannot write.

    Guide: docs/guides/sql.md

    Examples:
        gristmill sql recipe.yaml "describe documents"
        gristmill sql recipe.yaml "select source, count(*) from documents group by 1"
    """
    if sum(map(bool, (as_csv, as_json, parquet))) > 1:
        raise ValueError("--csv, --json and --parquet exclude each other. Choose one of them")
    report = finished.finished(recipe, MachineSettings())
    if query or not sys.stdin.isatty():
        result = report.sql(query or sys.stdin.read())
        try:
            if as_csv:
                _print_csv(result)
            elif as_json:
                _print_json(result)
            elif parquet:
                _write_parquet(result, parquet)
            else:
                _print_table(result)
        # DuckDB computes a value when its row is read, and Parquet has no intervals
        except (duckdb.Error, pa.ArrowException) as error:
            raise ValueError(f"{error}".splitlines()[0]) from None
    elif as_csv or as_json or parquet:
        raise ValueError("--csv, --json and --parquet need a query. Add a query after the recipe")
    else:
        _prompt(report)


def _rows(result: "duckdb.DuckDBPyRelation") -> Iterator[tuple[Any, ...]]:
    """Rows of values of JSON's types, and times."""
    for batch in result.to_arrow_reader(BATCH):
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    values = column.to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    if pa.types.is_binary(column.type):
        return [None if value is None else value.hex() for value in values]
    return values


def _print_json(result: "duckdb.DuckDBPyRelation") -> None:
    if repeated := [name for name, count in Counter(result.columns).items() if count > 1]:
        raise ValueError(f"two columns have the same name: {repeated[0]}. Rename one of them with `as`")
    for row in _rows(result):
        typer.echo(_json(dict(zip(result.columns, row, strict=True))))


def _json(value: Any) -> str:
    return printable_json(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode())


def _print_csv(result: "duckdb.DuckDBPyRelation") -> None:
    writer = csv.writer(sys.stdout)  # lines end with \r\n (RFC 4180), so that both are quoted in values
    # a file gets the values unchanged; a terminal would execute control characters in them
    written = printable if sys.stdout.isatty() else str
    writer.writerow([written(name) for name in result.columns])
    for row in _rows(result):
        nested = (_json(value) if isinstance(value, list | dict) else value for value in row)
        writer.writerow([written(value) if isinstance(value, str) else value for value in nested])


def _write_parquet(result: "duckdb.DuckDBPyRelation", path: str) -> None:
    reader = result.to_arrow_reader(BATCH)
    rows = 0
    with files.create(path) as file, pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    print_texts([f"wrote {rows:,} rows to {path}"])


def _print_table(result: "duckdb.DuckDBPyRelation") -> None:
    rows = result.limit(MAX_ROWS + 1).fetchall()
    numbers = [str(type) in _NUMBERS or str(type).startswith("DECIMAL") for type in result.types]
    columns = [Column(one_line(name), is_number, "") for name, is_number in zip(result.columns, numbers, strict=True)]
    print_cells(columns, [[*map(_cell, row)] for row in rows[:MAX_ROWS]], "", console())
    if len(rows) > MAX_ROWS:
        print_texts([f"first {MAX_ROWS} rows. To print all rows, add --csv or --json; to write them, --parquet FILE"])


_NUMBERS = {
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT",
    "DOUBLE",
}  # fmt: skip


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:,}" if type(value) is int else f"{value}"
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."


def _prompt(report: "Run") -> None:
    """Read queries from a terminal until Ctrl-D. A query ends with a semicolon."""
    with suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - gives `input` a history, where Python has it

    print_texts(["SQL prompt. End a query with ;. List tables: .tables, columns: .columns TABLE. Quit: Ctrl-D"])
    lines: list[str] = []
    while True:
        try:
            line = input("sql> " if not lines else "...> ")
        except EOFError:
            print_texts([""])
            return
        except KeyboardInterrupt:
            print_texts([""])
            lines = []
            continue
        lines.append(line)
        text = "\n".join(lines).strip()
        if text and not text.startswith(".") and not text.endswith(";"):
            continue
        lines = []
        try:
            if text.startswith("."):
                _describe(report, text[1:].split())
            elif text:
                _print_table(report.sql(text))
        except (ValueError, LookupError, duckdb.Error) as error:
            print_texts([f"{error}".splitlines()[0]])
        except KeyboardInterrupt:
            print_texts(["query stopped"])


def _describe(report: "Run", words: list[str]) -> None:
    tables = report.tables
    if words[:1] == ["columns"] and len(words) == 2:
        if words[1] not in tables:
            raise LookupError(f"unknown table: {words[1]}. Choose one of {', '.join(tables)}")
        _print_table(
            report.sql(
                "select column_name as column, data_type as type, comment from duckdb_columns() "
                f"where table_name = '{words[1]}' order by column_index"
            )
        )
    elif words == ["tables"]:
        print_texts(f"{view.name}: {view.description}" for view in tables.values())
    else:
        raise LookupError("unknown command. Type .tables, .columns TABLE, or a query that ends with ;")
