"""Expressions over the columns of documents, in the SQL of DuckDB: `topic = 'science' and characters < 100000`.

DuckDB parses an expression, and evaluates it on tables that it is handed (`gristmill.storage.isolated_duckdb`); it has
no access to anything else. Of its syntax, expressions have columns, constants, operators, `case`, casts, and functions
whose result depends only on their arguments. So the same documents always give the same result.

A value that cannot be computed is null, so one document never ends a run: NaN, a division by zero, a text that is cast
to a number and is not one. As in SQL, a comparison with null is null, `null and false` is false, `null or true` is
true.
"""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import orjson
import pyarrow as pa
import wrapt

from gristmill.storage import parquet
from gristmill.tasks.documents.selection import gather

if TYPE_CHECKING:
    import duckdb

    from gristmill.storage import isolated_duckdb
else:
    duckdb = wrapt.lazy_import("duckdb")
    isolated_duckdb = wrapt.lazy_import("gristmill.storage.isolated_duckdb")

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
}

Node = dict[str, Any]  # of the tree that DuckDB's parser gives


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
        return list(dict.fromkeys(node["column_names"][0] for node in _walk(self._node) if _is_column(node)))

    def clauses(self, operator: Literal["and", "or"]) -> list["Expression"]:
        """The parts that `and`, or `or`, joins at the top, in their order."""
        return [_expression(node) for node in _joined(self._node, f"CONJUNCTION_{operator.upper()}")]

    @cached_property
    def _strict(self) -> str:
        """As SQL that fails on a constant which has no meaning, such as `words = 'many'`."""
        return _written(_lenient_casts(self._node))

    @cached_property
    def _lenient(self) -> str:
        """As SQL that is null where a value cannot be computed."""
        return _written(_tried(_lenient_casts(self._node)))


@lru_cache(256)
def parsed(expression: str) -> Expression:
    """Parse an expression. Raises ExpressionError, with the fix, for text that is not one."""
    if len(expression) > MAX_CHARACTERS:
        raise ExpressionError(f"has {len(expression):,} characters; at most {MAX_CHARACTERS:,} are allowed: divide it")
    if any("\ud800" <= character <= "\udfff" for character in expression):
        raise ExpressionError("has half a character; write the character itself")
    prefix = "select "
    try:
        node = _parse(prefix + expression)
        for each in _walk(node):
            _check(each, (prefix + expression).encode())
        return _expression(node)
    except (RecursionError, orjson.JSONDecodeError):  # JSON has a greatest depth as well
        raise ExpressionError("is nested too deeply; divide it") from None


def column(name: str) -> Expression:
    """The expression that is a column's value, whatever its name."""
    return _expression({"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [name]})


def stored(name: str, columns: Sequence[str]) -> str:
    """The column of a file that a name needs: a derived column's source, unless the file has a column of that name."""
    return name if name in columns or name not in DERIVED else DERIVED[name]


def evaluate(expression: Expression, table: pa.Table) -> pa.Array:
    """The value of an expression for each row; numbers are int64, uint64 or float64. Raises ExpressionError for a
    column that the table lacks, and for operations that the columns' types do not have."""
    _types((expression,), tuple(_used(expression, table.schema)))
    [values] = _select([expression._lenient], _used_columns(expression, table))
    return values.cast(_plain_type(values.type))


def truth(expression: Expression, table: pa.Table) -> pa.BooleanArray:
    """`evaluate`, for an expression that is true, false or null on each row. Raises ExpressionError for another."""
    conditions = tuple(map(_expression, _atoms(expression._node)))
    types = _types(conditions, tuple(_used(expression, table.schema)))
    for condition, type in zip(conditions, types, strict=True):
        if not pa.types.is_boolean(type) and not pa.types.is_null(type):
            raise ExpressionError(f"{condition.sql} is a {kind_of(type)}, neither true nor false; compare it")
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
    tree, expression = _tree(query), query.removeprefix("select ")
    if tree["error"]:
        message = f"{tree['error_message']}".splitlines()[0][:200]
        hints = [hint for pattern, hint in _FORMER_SYNTAX.items() if re.search(pattern, expression)]
        for word in sorted({*re.findall("[a-z]+", expression)} & _reserved()):
            quoted = re.sub(rf"\b{word}\b(?!\s*\()", f'"{word}"', expression)
            if quoted != expression and not _tree(f"select {quoted}")["error"]:
                hints.append(f'if {word} is a column, write it in double quotes: "{word}"')
        raise ExpressionError(f"{_short(expression)} is not an expression: {'; '.join([message, *hints])}")
    select = [statement["node"] for statement in tree["statements"]]
    alone = len(select) == 1 and select[0]["type"] == "SELECT_NODE" and len(select[0]["select_list"]) == 1
    if not alone or any(select[0].get(part) for part in _CLAUSES) or select[0]["from_table"]["type"] != "EMPTY":
        raise ExpressionError(
            f"{_short(expression)} is not one expression; write one like language = 'en' and tld = 'is'"
        )
    return select[0]["select_list"][0]


def _tree(query: str) -> Node:
    [(answer,)] = _connection().execute("select json_serialize_sql(?)", [query]).fetchall()
    return orjson.loads(answer)


def _short(expression: str) -> str:
    return repr(expression if len(expression) <= 100 else f"{expression[:100]}...")


_CLAUSES = ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample")


def _expression(node: Node) -> Expression:
    return Expression(_plain_sql(_written(node)), node)


def _written(node: Node) -> str:
    tree = _tree("select 1")
    tree["statements"][0]["node"]["select_list"] = [node]
    [(sql,)] = _connection().execute("select json_deserialize_sql(?)", [orjson.dumps(tree).decode()]).fetchall()
    return sql.removeprefix("SELECT ")


_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]|!?~~\*?|[^'"()~!]+|.""", re.DOTALL)
_OPERATORS = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}


def _plain_sql(sql: str) -> str:
    """SQL without quotes that its names do not need, and without parentheses around the whole."""
    tokens = [_OPERATORS.get(token, token) for token in _TOKENS.findall(sql)]
    tokens = [token[1:-1] if _needs_no_quotes(token) else token for token in tokens]
    depths = list(accumulate((token == "(") - (token == ")") for token in tokens))
    if tokens[0] == "(" and depths.index(0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return "".join(tokens)


def _needs_no_quotes(token: str) -> bool:
    return re.fullmatch('"[a-z_][a-z0-9_]*"', token) is not None and token[1:-1] not in _reserved()


def _walk(node: Any) -> Iterator[Node]:
    """The nodes of a tree in the order of the text."""
    if isinstance(node, list):
        for each in node:
            yield from _walk(each)
    elif isinstance(node, Mapping):
        if node.get("class") not in (None, "TYPE"):
            yield dict(node)
        if node.get("class") != "TYPE":
            yield from _walk([*node.values()])


def _is_column(node: Node) -> bool:
    return node["class"] == "COLUMN_REF"


def _joined(node: Node, operator: str) -> list[Node]:
    if node["type"] == operator:
        return [part for child in node["children"] for part in _joined(child, operator)]
    return [node]


def _is_logic(node: Node) -> bool:
    return node["class"] == "CONJUNCTION" or node["type"] == "OPERATOR_NOT"


def _atoms(node: Node) -> list[Node]:
    """The conditions that `and`, `or` and `not` combine."""
    return [atom for child in node["children"] for atom in _atoms(child)] if _is_logic(node) else [node]


def _tried(node: Node) -> Node:
    if _is_logic(node):
        return node | {"children": [_tried(child) for child in node["children"]]}
    return {"class": "OPERATOR", "type": "OPERATOR_TRY", "alias": "", "children": [node]}


def _lenient_casts(node: Any) -> Any:
    """Casts of columns and of results give null for what cannot be cast. Those of constants are errors."""
    if isinstance(node, list):
        return [_lenient_casts(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    changed = {name: _lenient_casts(value) for name, value in node.items()}
    if node.get("class") == "CAST":
        changed["try_cast"] = node["child"]["class"] != "CONSTANT"
    return changed


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
    if _is_column(node):
        begin, length = node["query_location"], node["query_location_length"]
        text = query[begin : begin + length].decode(errors="replace")
        # In earlier releases "law" was a text: as SQL it would compare columns, or a column with itself.
        if _needs_no_quotes(text):
            name = text[1:-1]
            raise ExpressionError(f"has {text} in double quotes; write '{name}' for the text, {name} for the column")


# DuckDB.

_of_thread = threading.local()


def _connection() -> "duckdb.DuckDBPyConnection":
    if not hasattr(_of_thread, "connection"):
        _of_thread.connection = isolated_duckdb.connect()
    return _of_thread.connection


@lru_cache(1)
def _functions() -> frozenset[str]:
    """Functions of one row whose result depends only on their arguments: not `random()` or `now()`, nor those that read
    settings."""
    rows = _connection().execute(
        "select lower(function_name) from duckdb_functions() where function_type = 'scalar' "
        "group by all having bool_or(stability = 'CONSISTENT')"
    )
    return frozenset(name for (name,) in rows.fetchall()) - _UNSTABLE | _MACROS


@lru_cache(1)
def _reserved() -> frozenset[str]:
    rows = _connection().execute("select keyword_name from duckdb_keywords() where keyword_category <> 'unreserved'")
    return frozenset(name for (name,) in rows.fetchall())


def _used(expression: Expression, schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """The columns that an expression needs, with the types that it sees. Raises ExpressionError for a missing one."""
    for name in dict.fromkeys(stored(name, schema.names) for name in expression.columns):
        if name not in schema.names:
            raise ExpressionError(f"there is no column {name}; there are {', '.join(schema.names)}")
        yield name, _plain_type(schema.field(name).type)


def _used_columns(expression: Expression, table: pa.Table) -> pa.Table:
    # not safe: nanoseconds may be cut, and integers above 2^53 rounded
    arrays = {name: table[name].cast(type, safe=False) for name, type in _used(expression, table.schema)}
    return pa.table({**arrays, _ROW: pa.nulls(len(table), pa.bool_())})


_ROW = "_row"  # a table without columns would have no rows


def _plain_type(type: pa.DataType) -> pa.DataType:
    """Integers have 64 bits, so that arithmetic on them does not overflow early, and times are in UTC."""
    if pa.types.is_dictionary(type):
        return _plain_type(type.value_type)
    if pa.types.is_floating(type) or pa.types.is_decimal(type):
        return pa.float64()
    if pa.types.is_signed_integer(type):
        return pa.int64()
    if pa.types.is_unsigned_integer(type):
        return pa.uint64()
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", "UTC")
    return pa.string() if pa.types.is_null(type) else type


def _select(expressions: Sequence[str], table: pa.Table) -> list[pa.Array]:
    """The values of SQL expressions on each row of a table of plain types."""
    columns = [_column_sql(field) for field in table.schema]
    own = [name for name, source in DERIVED.items() if name not in table.schema.names and source in table.schema.names]
    columns += [f"{DERIVED_SQL[name]} as {name}" for name in own]
    values = [f"({sql}) as value{number}" for number, sql in enumerate(expressions)]
    connection = _connection()
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


@lru_cache(1024)
def _types(expressions: tuple[Expression, ...], columns: tuple[tuple[str, pa.DataType], ...]) -> list[pa.DataType]:
    """The types of expressions on columns of some types. Raises ExpressionError where they have none."""
    row = pa.table({**{name: pa.nulls(1, type) for name, type in columns}, _ROW: pa.nulls(1, pa.bool_())})
    if len({name.lower() for name, _ in columns}) < len(columns):
        names = ", ".join(name for name, _ in columns)
        raise ExpressionError(f"SQL does not distinguish upper and lower case in the names of columns: {names}")
    # on one row without values: constants are computed, and may be wrong
    try:
        return [array.type for array in _select([each._strict for each in expressions], row)]
    except duckdb.Error as error:
        message = f"{error}".splitlines()[0].partition("Error: ")[2]
        raise ExpressionError(f"{' and '.join(each.sql for each in expressions)}: {message}") from None
