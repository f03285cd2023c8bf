"""The trees of SQL expressions that DuckDB's parser gives: read, walked, rewritten, and written as SQL again."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import orjson
import wrapt

if TYPE_CHECKING:
    import duckdb

    from gristmill.tasks.documents import isolated_duckdb
else:
    duckdb = wrapt.lazy_import("duckdb")
    isolated_duckdb = wrapt.lazy_import("gristmill.tasks.documents.isolated_duckdb")

Node = dict[str, Any]
# What is raised for a tree that is too deep, by Python or for its JSON.
TOO_DEEP = (RecursionError, orjson.JSONDecodeError)

_of_thread = threading.local()


def connection() -> "duckdb.DuckDBPyConnection":
    """The isolated connection of this thread."""
    if not hasattr(_of_thread, "connection"):
        _of_thread.connection = isolated_duckdb.connect()
    return _of_thread.connection


@lru_cache(1)
def reserved() -> frozenset[str]:
    """Words that are names only in double quotes."""
    rows = connection().execute("select keyword_name from duckdb_keywords() where keyword_category <> 'unreserved'")
    return frozenset(name for (name,) in rows.fetchall())


def parse(query: str) -> Node:
    """DuckDB's tree of a query: `error`, and `statements` or `error_message`."""
    [(answer,)] = connection().execute("select json_serialize_sql(?)", [query]).fetchall()
    return orjson.loads(answer)


def write(node: Node) -> str:
    """The SQL of an expression, as DuckDB writes it. Raises RecursionError for more than 256 levels of JSON."""
    tree = parse("select 1")
    tree["statements"][0]["node"]["select_list"] = [node]
    try:
        [(sql,)] = connection().execute("select json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
    except duckdb.SerializationException as error:
        raise RecursionError(f"{error}") from None
    return sql.removeprefix("SELECT ")


_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]|!?~~\*?|[^'"()~!]+|.""", re.DOTALL)
_OPERATORS = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}


def plain(sql: str) -> str:
    """SQL without quotes that its names do not need, and without parentheses around the whole."""
    tokens = [_OPERATORS.get(token, token) for token in _TOKENS.findall(sql)]
    tokens = [token[1:-1] if needs_no_quotes(token) else token for token in tokens]
    depths = list(accumulate((token == "(") - (token == ")") for token in tokens))
    if tokens[0] == "(" and depths.index(0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return "".join(tokens)


def needs_no_quotes(name: str) -> bool:
    """Whether a name in double quotes means the same without them."""
    return re.fullmatch('"[a-z_][a-z0-9_]*"', name) is not None and name[1:-1] not in reserved()


def walk(node: Any) -> Iterator[Node]:
    """The nodes of a tree in the order of the text."""
    if isinstance(node, list):
        for each in node:
            yield from walk(each)
    elif isinstance(node, Mapping) and node.get("class") != "TYPE":
        if "class" in node:
            yield dict(node)
        yield from walk([*node.values()])


def joined(node: Node, operator: str) -> list[Node]:
    """The parts that an operator (`CONJUNCTION_AND`) joins at the top."""
    if node["type"] == operator:
        return [part for child in node["children"] for part in joined(child, operator)]
    return [node]


def conditions(node: Node) -> list[Node]:
    """The parts that `and`, `or` and `not` combine."""
    if node["class"] == "CONJUNCTION" or node["type"] == "OPERATOR_NOT":
        return [part for child in node["children"] for part in conditions(child)]
    return [node]


def operands(node: Node) -> list[Node]:
    """What a node compares, or asks whether it is null; [] for a node of another kind."""
    if node["class"] == "COMPARISON":
        return [node["left"], node["right"]]
    if node["class"] == "BETWEEN":
        return [node["input"], node["lower"], node["upper"]]
    if node["type"] in ("COMPARE_IN", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE"):
        return node["children"]
    return []


def key(node: Node) -> str:
    """What identifies a node of a tree: its content and its place in the text."""
    return json.dumps(node)


def _rebuilt(node: Any, change: Callable[[Node, Node], Node]) -> Any:
    """A tree with `change(node, rebuilt)` instead of each node, from the leaves up."""
    if isinstance(node, list):
        return [_rebuilt(each, change) for each in node]
    if not isinstance(node, Mapping):
        return node
    rebuilt = {name: _rebuilt(value, change) for name, value in node.items()}
    return change(dict(node), rebuilt) if node.get("class") not in (None, "TYPE") else rebuilt


def strict(node: Node) -> Node:
    """Casts of columns and of results give null for what cannot be cast; casts of constants are errors."""
    return _rebuilt(node, lambda old, new: _with_try_cast(new))


def lenient(node: Node, floats: frozenset[str]) -> Node:
    """Every part that cannot be computed gives null, and so does NaN. `floats`: keys of operands that are floats."""

    def change(old: Node, new: Node) -> Node:
        new = _with_try_cast(new)
        if old["class"] == "FUNCTION" or old["type"] == "ARRAY_EXTRACT":
            new = {"class": "OPERATOR", "type": "OPERATOR_TRY", "alias": "", "children": [new]}
        return _without_nan(new) if key(old) in floats else new

    return _rebuilt(node, change)


def _with_try_cast(node: Node) -> Node:
    return node | {"try_cast": node["child"]["class"] != "CONSTANT"} if node["class"] == "CAST" else node


def _without_nan(node: Node) -> Node:
    # names its operand once: a `case` would write nested operands 2^depth times
    [template] = parse("select list_filter([x], lambda e: not isnan(e))[1]")["statements"][0]["node"]["select_list"]
    return _rebuilt(template, lambda old, new: node if old.get("column_names") == ["x"] else new)
