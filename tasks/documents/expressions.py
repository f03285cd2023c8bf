"""Expressions over the columns of documents, in the SQL of DuckDB: `topic = 'science' and characters < 100000`.

DuckDB parses an expression, and evaluates it on tables that it is handed (`isolated_duckdb`); it has no access to
anything else. Of its syntax, expressions have columns, constants, operators, `case`, casts, and functions whose result
depends only on their arguments. So the same documents always give the same result.

A value that cannot be computed is null, so one document never ends a run: NaN, a division by zero, a text that is cast
to a number and is not one. As in SQL, a comparison with null is null, `null and false` is false, `null or true` is
true.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
import wrapt

from gristmill.storage import parquet
from gristmill.tasks.documents import sql_tree
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.sql_tree import Node

if TYPE_CHECKING:
    import duckdb

    from gristmill.tasks.documents import isolated_duckdb
else:
    duckdb = wrapt.lazy_import("duckdb")
    isolated_duckdb = wrapt.lazy_import("gristmill.tasks.documents.isolated_duckdb")

# A recipe may come from anywhere: a longer expression is refused before it is parsed.
MAX_CHARACTERS = 4000

_HOST = r"nullif(lower(regexp_extract(url, '^[A-Za-z][A-Za-z0-9+.\-]*://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]+)', 1)), '')"
# Columns that files do not have: the column that each is computed from, and how. An address in numbers has no `tld`.
DERIVED = {"host": "url", "tld": "url", "mime": "content_type"}
DERIVED_SQL = {
    "host": _HOST,
    "tld": rf"nullif(regexp_extract({_HOST}, '\.([^.0-9][^.]*)\.?$', 1), '')",
    "mime": r"nullif(lower(regexp_extract(content_type, '^\s*([^;\s]+)', 1)), '')",
}

_CLASSES = {"CONSTANT", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "OPERATOR", "FUNCTION", "CASE", "CAST", "BETWEEN"}
# `age` of one argument depends on today; results of the others differ between releases of DuckDB.
_UNSTABLE = {"age", "hash", "version"}
_MACROS = {
    "nullif", "if", "split_part", "fdiv", "array_to_string", "days_in_month", "list_avg", "list_count", "list_first",
    "list_last", "list_max", "list_median", "list_min", "list_reverse", "list_sum",
}  # fmt: skip
# What recipes of earlier releases wrote, in Python's syntax, and the SQL for it.
_FORMER_SYNTAX = {
    r"\bis\s+(not\s+)?None\b": "write `is null` or `is not null`",
    r"\bif\b.+\belse\b": "write `case when test then a else b end`",
    r"\bint\s*\(": "write `trunc(x)::bigint` for a number, `x::bigint` for a text",
    r"\bfloat\s*\(": "write `x::double`",
    r"\btime\s*\(": "write `x::timestamptz`",
}
_FORMER_FUNCTIONS = {
    "matches": "regexp_matches(x, 'pattern')",
    "string": "x::varchar",
    "host": "host, which is a column",
    "tld": "tld, which is a column",
    "mime": "mime, which is a column",
}


class ExpressionError(ValueError):
    """An expression that cannot be parsed, or has no meaning on these columns."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression. `sql`: as DuckDB writes it, without parentheses around the whole."""

    sql: str
    _node: Node = field(compare=False, repr=False)

    @cached_property
    def columns(self) -> list[str]:
        """The columns that it names, each once, in their order."""
        nodes = (node for node in sql_tree.walk(self._node) if node["class"] == "COLUMN_REF")
        return list(dict.fromkeys(node["column_names"][0] for node in nodes))

    def clauses(self, operator: Literal["and", "or"]) -> list["Expression"]:
        """The parts that `and`, or `or`, joins at the top, in their order."""
        return [_expression(node) for node in sql_tree.joined(self._node, f"CONJUNCTION_{operator.upper()}")]


@lru_cache(256)
def parsed(expression: str) -> Expression:
    """Parse an expression. Raises ExpressionError, with the fix, for text that is not one."""
    if len(expression) > MAX_CHARACTERS:
        raise ExpressionError(f"has {len(expression):,} characters; at most {MAX_CHARACTERS:,} are allowed: split it")
    if any("\ud800" <= character <= "\udfff" for character in expression):
        raise ExpressionError("has half a surrogate pair; write the character itself")
    prefix = "select "
    try:
        node = _parse(prefix + expression)
        for each in sql_tree.walk(node):
            _check(each, (prefix + expression).encode())
        return _expression(node)
    except sql_tree.TOO_DEEP:
        raise ExpressionError("is nested too deeply; split it") from None


def column(name: str) -> Expression:
    """The expression that is a column's value, without its name."""
    return _expression({"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [name]})


def stored(name: str, columns: Sequence[str]) -> str:
    """The column of a file that a name needs: a derived column's source, unless the file has a column of that name."""
    return name if name in columns or name not in DERIVED else DERIVED[name]


def evaluate(expression: Expression, table: pa.Table) -> pa.Array:
    """The value of an expression for each row; numbers are int64, uint64 or float64. Raises ExpressionError for a
    column that the table lacks, and for operations that the columns' types do not have."""
    columns = tuple(_used(expression, table.schema))
    try:
        sql = _compiled(expression, columns)
    except sql_tree.TOO_DEEP:
        raise ExpressionError("is nested too deeply; split it") from None
    [values] = _select([sql], _used_columns(expression, table))
    if pa.types.is_decimal(values.type) or pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        return pc.if_else(pc.is_nan(values), None, values)
    return values.cast(_plain_type(values.type))


def truth(expression: Expression, table: pa.Table) -> pa.BooleanArray:
    """`evaluate`, for an expression that is true, false or null on each row. Raises ExpressionError for another."""
    conditions = sql_tree.conditions(expression._node)
    types = _types(expression, conditions, tuple(_used(expression, table.schema)))
    for condition, type in zip(conditions, types, strict=True):
        if type not in ("BOOLEAN", _NULL):
            what = f"of type {type}, neither true nor false; compare it"
            raise ExpressionError(f"{sql_tree.plain(sql_tree.write(condition))} is {what}")
    return evaluate(expression, table).cast(pa.bool_())


def matching(parts: tuple[str, ...], kept: str, expression: str) -> pa.Table:
    """`id` and the stored columns that an expression names, of the documents of the selection `kept` for which it is
    true, in their order.

    Holds these columns of one shard. Raises ExpressionError for an expression that has no meaning on them, LookupError
    for a column that is in no part, or a document that is not in one.
    """
    columns = list(dict.fromkeys(name for part in parts for name in parquet.columns(part)))
    tree = parsed(expression)
    table = gather(parts, kept, list(dict.fromkeys(stored(name, columns) for name in tree.columns)))
    return table.filter(truth(tree, table))


def kind_of(type: pa.DataType) -> str:
    """What a column of a type is to an expression: text, number, boolean, time, list, or Arrow's name of another."""
    if pa.types.is_dictionary(type):
        return kind_of(type.value_type)
    types = pa.types
    for name, tests in (
        ("text", (types.is_string, types.is_large_string, types.is_null)),
        ("boolean", (types.is_boolean,)),
        ("number", (types.is_integer, types.is_floating, types.is_decimal)),
        ("time", (types.is_timestamp, types.is_date)),
        ("list", (types.is_list, types.is_large_list, types.is_fixed_size_list)),
    ):
        if any(test(type) for test in tests):
            return name
    return str(type)


# The tree.


def _parse(query: str) -> Node:
    tree, expression = sql_tree.parse(query), query.removeprefix("select ")
    if tree["error"]:
        message = f"{tree['error_message']}".splitlines()[0][:200]
        hints = [hint for pattern, hint in _FORMER_SYNTAX.items() if re.search(pattern, expression)]
        for word in sorted({*re.findall("[a-z]+", expression)} & sql_tree.reserved()):
            quoted = re.sub(rf"\b{word}\b(?!\s*\()", f'"{word}"', expression)
            if quoted != expression and not sql_tree.parse(f"select {quoted}")["error"]:
                hints.append(f'if {word} is a column, write it in double quotes: "{word}"')
        raise ExpressionError(f"{_short(expression)} is not an expression: {'; '.join([message, *hints])}")
    select = [statement["node"] for statement in tree["statements"]]
    alone = len(select) == 1 and select[0]["type"] == "SELECT_NODE" and len(select[0]["select_list"]) == 1
    if not alone or any(select[0].get(part) for part in _CLAUSES) or select[0]["from_table"]["type"] != "EMPTY":
        raise ExpressionError(
            f"{_short(expression)} is not one expression; write one like language = 'en' and tld = 'is'"
        )
    return select[0]["select_list"][0]


def _short(expression: str) -> str:
    return repr(expression if len(expression) <= 100 else f"{expression[:100]}...")


_CLAUSES = ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample")


def _expression(node: Node) -> Expression:
    return Expression(sql_tree.plain(sql_tree.write(node)), node)


def _check(node: Node, query: bytes) -> None:
    if node["class"] not in _CLASSES:
        what = node["class"].lower().replace("_", " ")
        raise ExpressionError(
            f"has a {what}; only columns, constants, comparisons, and, or, not, in, between, case, casts, arithmetic "
            "and functions are allowed"
        )
    if node["class"] == "FUNCTION" and (name := node["function_name"].lower()) not in _functions():
        fix = f"write {_FORMER_FUNCTIONS[name]}" if name in _FORMER_FUNCTIONS else "see DuckDB's functions of one row"
        raise ExpressionError(f"the function {name} is unknown or not allowed in an expression; {fix}")
    if node["class"] == "COLUMN_REF":
        if node["column_names"] == ["None"]:
            raise ExpressionError("has None; write `x is null` for a missing value")
        begin, length = node["query_location"], node["query_location_length"]
        text = query[begin : begin + length].decode(errors="replace")
        # In earlier releases "law" was a text: as SQL it would compare columns, or a column with itself.
        if sql_tree.needs_no_quotes(text):
            name = text[1:-1]
            raise ExpressionError(f"has {text} in double quotes; write '{name}' for the text, {name} for the column")


# DuckDB.


@lru_cache(1)
def _functions() -> frozenset[str]:
    """Functions of one row whose result depends only on their arguments: not `random()` or `now()`, nor those that read
    settings."""
    rows = sql_tree.connection().execute(
        "select lower(function_name) from duckdb_functions() where function_type = 'scalar' "
        "group by all having bool_or(stability = 'CONSISTENT')"
    )
    return frozenset(name for (name,) in rows.fetchall()) - _UNSTABLE | _MACROS


def _used(expression: Expression, schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """The columns that an expression needs, with the types that it sees. Raises ExpressionError for a missing one."""
    for name in dict.fromkeys(stored(name, schema.names) for name in expression.columns):
        if name not in schema.names:
            raise ExpressionError(f"there is no column {name}; there are {', '.join(schema.names)}")
        yield name, _plain_type(schema.field(name).type)


def _used_columns(expression: Expression, table: pa.Table) -> pa.Table:
    arrays = {name: _cast(table[name], type) for name, type in _used(expression, table.schema)}
    return pa.table({**arrays, _ROW: pa.nulls(len(table), pa.bool_())})


def _cast(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    try:
        return column.cast(type)
    except pa.ArrowInvalid:  # microseconds of 64 bits do not hold a time of the column
        bound = ((1 << 63) - 1) // (1_000 if column.type.unit == "ms" else 1_000_000)
        ticks = column.cast(pa.int64())
        fits = pc.and_(pc.less_equal(ticks, bound), pc.greater_equal(ticks, -bound))
        return pc.if_else(fits, column, None).cast(type)


_ROW = "_row"  # a table without columns would have no rows


def _plain_type(type: pa.DataType) -> pa.DataType:
    """Integers have 64 bits, so that arithmetic on them does not overflow early, and times are in UTC."""
    if pa.types.is_dictionary(type):
        return _plain_type(type.value_type)
    if pa.types.is_floating(type) or pa.types.is_decimal256(type):
        return pa.float64()
    if pa.types.is_signed_integer(type):
        return pa.int64()
    if pa.types.is_unsigned_integer(type):
        return pa.uint64()
    if pa.types.is_timestamp(type):
        return pa.timestamp("ns" if type.unit == "ns" else "us", "UTC")
    return pa.string() if pa.types.is_null(type) else type


def _select(expressions: Sequence[str], table: pa.Table) -> list[pa.Array]:
    """The values of SQL expressions on each row of a table of plain types."""
    columns = [_column_sql(field) for field in table.schema]
    own = [name for name, source in DERIVED.items() if name not in table.schema.names and source in table.schema.names]
    columns += [f"{DERIVED_SQL[name]} as {name}" for name in own]
    values = [f"({sql}) as value{number}" for number, sql in enumerate(expressions)]
    connection = sql_tree.connection()
    connection.register("documents", table)
    try:
        query = f"select {', '.join(values)} from (select {', '.join(columns)} from documents)"
        result = connection.sql(query).to_arrow_table()
    finally:
        connection.unregister("documents")
    return [column.combine_chunks() for column in result.columns]


def _column_sql(field: pa.Field) -> str:
    quoted = '"' + field.name.replace('"', '""') + '"'
    if pa.types.is_floating(field.type):
        return f"case when not isnan({quoted}) then {quoted} end as {quoted}"
    return quoted


_NULL = '"NULL"'  # DuckDB's type of `null`


@lru_cache(1024)
def _compiled(expression: Expression, columns: tuple[tuple[str, pa.DataType], ...]) -> str:
    """The SQL that evaluates an expression on columns of some types. Raises ExpressionError where it has no meaning."""
    compared = [sql_tree.operands(node) for node in sql_tree.walk(expression._node)]
    nodes = [node for group in compared for node in group]
    types = iter(_types(expression, nodes, columns))
    floats, casts = set[str](), []
    for group in compared:
        group_types = [next(types) for _ in group]
        texts = [node for node in group if node.get("literal", {}).get("kind") == "STRING"]
        for node, type in zip(group, group_types, strict=True):
            if type in ("FLOAT", "DOUBLE") and node["class"] not in ("COLUMN_REF", "CONSTANT"):
                floats.add(sql_tree.key(node))
            if type not in ("VARCHAR", "STRING_LITERAL", _NULL) and "[" not in type:
                casts += [f"cast({sql_tree.write(text)} as {type})" for text in texts]
    if casts:  # a text that is compared with numbers must be one
        _on_a_row(expression, casts, columns)
    return sql_tree.write(sql_tree.lenient(expression._node, frozenset(floats)))


def _types(expression: Expression, nodes: Sequence[Node], columns: tuple[tuple[str, pa.DataType], ...]) -> list[str]:
    """DuckDB's types of parts of an expression. Raises ExpressionError where the whole has no meaning."""
    typed = [f"typeof({sql_tree.write(sql_tree.strict(node))})" for node in nodes]
    whole, *types = _on_a_row(expression, [sql_tree.write(sql_tree.strict(expression._node)), *typed], columns)
    return [type[0].as_py() for type in types]


def _on_a_row(
    expression: Expression, sql: Sequence[str], columns: tuple[tuple[str, pa.DataType], ...]
) -> list[pa.Array]:
    """Values on one row without values, where constants are computed, and may be wrong. Raises ExpressionError."""
    if len({name.lower() for name, _ in columns}) < len(columns):
        names = ", ".join(name for name, _ in columns)
        raise ExpressionError(f"SQL ignores case in column names, so these are equal: {names}")
    row = pa.table({**{name: pa.nulls(1, type) for name, type in columns}, _ROW: pa.nulls(1, pa.bool_())})
    try:
        return _select(sql, row)
    except duckdb.Error as error:
        message = f"{error}".splitlines()[0].partition("Error: ")[2]
        of_time = re.search(r"'(year|quarter|month|week|day|hour|minute|second)\(VARCHAR\)'", message)
        hint = "; cast text to a time: date::timestamptz" if of_time else ""
        raise ExpressionError(f"{expression.sql}: {message}{hint}") from None
