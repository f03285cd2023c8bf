"""Expressions over columns, computed by Arrow: three-valued as in SQL, a null for what is not known.

Arithmetic is in float64 and so never overflows; what is divided by zero, not a number, or cannot be cast is null.
"""

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.tasks.documents.expression import ExpressionError, parsed

_COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_ARITHMETIC = {ast.Add: pc.add, ast.Sub: pc.subtract, ast.Mult: pc.multiply}
_TEXT = {"lower": pc.utf8_lower, "upper": pc.utf8_upper, "trim": lambda text: pc.utf8_trim(text, " ")}
_FIND = {"contains": pc.match_substring, "startswith": pc.starts_with, "endswith": pc.ends_with}
_TIME = {"year": pc.year, "month": pc.month, "day": pc.day}
_INTEGER = r"^\s*[+-]?[0-9]{1,18}\s*$"
_NUMBER = r"^\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_HOST = r"^[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/?#@]*@)?(?P<host>[^/:?#]+)"
_DAY = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z?)?$"


def truth(text: str, table: pa.Table) -> pa.Array:
    """Whether an expression holds for each row of a table: bool, null where that is not known.

    Holds the columns that it reads, and what is computed of them. Raises ExpressionError for types that do not go
    together; LookupError for a column that is not there.
    """
    try:
        found = _value(parsed(text), table)
        _need(found, "bool", text)
    except pa.ArrowException as error:
        raise ExpressionError(f"`{text}` cannot be computed: {str(error).splitlines()[0]}") from error
    return pa.repeat(found, len(table)) if isinstance(found, pa.Scalar) else found


def kind(value: Any) -> str:
    """number, text, bool, time or list: values of one kind can be compared."""
    of = value.type
    if pa.types.is_boolean(of):
        return "bool"
    if pa.types.is_integer(of) or pa.types.is_floating(of):
        return "number"
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return "text"
    if pa.types.is_timestamp(of) or pa.types.is_date(of):
        return "time"
    return "list" if pa.types.is_list(of) or pa.types.is_large_list(of) else str(of)


def _need(value: Any, wanted: str, text: str) -> None:
    if kind(value) != wanted:
        raise ExpressionError(f"`{text}` is of the kind {kind(value)}, and {wanted} is needed here")


def _value(node: ast.expr, table: pa.Table) -> Any:
    if isinstance(node, ast.Constant):
        if node.value is None:
            raise ExpressionError("None cannot be compared; write `column is None` or `column is not None`")
        return pa.scalar(node.value)
    if isinstance(node, ast.Name):
        return _column(node.id, table)
    if isinstance(node, ast.BoolOp):
        return _joined(node, table)
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, table)
        _need(value, "bool" if isinstance(node.op, ast.Not) else "number", ast.unparse(node.operand))
        return pc.invert(value) if isinstance(node.op, ast.Not) else pc.negate(value)
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, table)
    if isinstance(node, ast.Compare):
        return _compared(node, table)
    if isinstance(node, ast.Call):
        return _called(node, table)
    raise ExpressionError(f"`{ast.unparse(node)}` stands where a value is needed")


def _column(name: str, table: pa.Table) -> Any:
    if name not in table.column_names:
        raise LookupError(f"the documents have no column {name}")
    values = table[name].combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return values


def _joined(node: ast.BoolOp, table: pa.Table) -> Any:
    join = pc.and_kleene if isinstance(node.op, ast.And) else pc.or_kleene
    found = None
    for part in node.values:
        value = _value(part, table)
        _need(value, "bool", ast.unparse(part))
        found = value if found is None else join(found, value)
    return found


def _arithmetic(node: ast.BinOp, table: pa.Table) -> Any:
    sides = []
    for part in (node.left, node.right):
        value = _value(part, table)
        _need(value, "number", ast.unparse(part))
        sides.append(pc.cast(value, pa.float64(), safe=False))
    left, right = sides
    if isinstance(node.op, ast.Div):
        right = pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right)
        return pc.divide(left, right)
    return _ARITHMETIC[type(node.op)](left, right)


def _compared(node: ast.Compare, table: pa.Table) -> Any:
    found, left = None, node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        value = _one(left, operator, right, table)
        found = value if found is None else pc.and_kleene(found, value)
        left = right
    return found


def _one(left: ast.expr, operator: ast.cmpop, right: ast.expr, table: pa.Table) -> Any:
    if isinstance(operator, (ast.Is, ast.IsNot)):
        if not isinstance(right, ast.Constant) or right.value is not None:
            raise ExpressionError(f"`is` asks for None alone, not for `{ast.unparse(right)}`; write ==")
        test = pc.is_null if isinstance(operator, ast.Is) else pc.is_valid
        return test(_value(left, table))
    value = _value(left, table)
    if isinstance(operator, (ast.In, ast.NotIn)):
        found = _member(value, right, table)
        return pc.invert(found) if isinstance(operator, ast.NotIn) else found
    other = _value(right, table)
    _same(value, other, left, right)
    return _COMPARE[type(operator)](value, other)


def _same(value: Any, other: Any, left: ast.expr, right: ast.expr) -> None:
    if kind(value) != kind(other) or kind(value) == "list":
        raise ExpressionError(
            f"`{ast.unparse(left)}` is of the kind {kind(value)} and `{ast.unparse(right)}` of the kind {kind(other)}; "
            "cast one by str(), int(), float() or timestamp()"
        )


def _member(value: Any, right: ast.expr, table: pa.Table) -> Any:
    if isinstance(right, (ast.Tuple, ast.List)):
        found = pa.scalar(False)
        for each in right.elts:
            other = _value(each, table)
            _same(value, other, right, each)
            found = pc.or_kleene(found, pc.equal(value, other))
        return found
    lists = _value(right, table)
    _need(lists, "list", ast.unparse(right))
    if not isinstance(value, pa.Scalar):
        raise ExpressionError(f"`in {ast.unparse(right)}` needs a constant before it")
    hits = np.zeros(len(lists), bool)
    equal = pc.fill_null(pc.equal(pc.list_flatten(lists), value), False)
    hits[np.asarray(pc.list_parent_indices(lists).filter(equal), np.int64)] = True
    return pc.if_else(pc.is_valid(lists), pa.array(hits), pa.scalar(None, pa.bool_()))


def _called(node: ast.Call, table: pa.Table) -> Any:
    assert isinstance(node.func, ast.Name), "checked when it was read"
    name = node.func.id
    if name == "col":
        return _column(str(getattr(node.args[0], "value", "")), table)
    values = [_value(each, table) for each in node.args]
    first = values[0]
    if name == "coalesce":
        for each, value in zip(node.args[1:], values[1:], strict=True):
            _same(first, value, node.args[0], each)
        return pc.coalesce(*values)
    if name in ("int", "float", "str", "bool", "timestamp"):
        return _cast(name, first, node)
    if name == "len":
        return pc.list_value_length(first) if kind(first) == "list" else pc.utf8_length(first)
    if name in _TIME:
        _need(first, "time", ast.unparse(node.args[0]))
        return _TIME[name](first)
    if name == "abs":
        _need(first, "number", ast.unparse(node.args[0]))
        return pc.abs(first)
    for value, each in zip(values, node.args, strict=True):
        _need(value, "text", ast.unparse(each))
    return _of_text(name, values)


def _of_text(name: str, values: list[Any]) -> Any:
    if name in _TEXT:
        return _TEXT[name](values[0])
    if name in ("host", "tld"):
        host = pc.utf8_lower(pc.struct_field(pc.extract_regex(values[0], _HOST), "host"))
        if name == "host":
            return host
        return pc.struct_field(pc.extract_regex(host, r"(?P<tld>[^.]+)$"), "tld")
    if not isinstance(values[1], pa.Scalar):
        raise ExpressionError(f"{name} needs a constant text as its second argument")
    if name == "matches":
        return pc.match_substring_regex(values[0], values[1].as_py())
    return _FIND[name](values[0], values[1].as_py())


def _cast(name: str, value: Any, node: ast.Call) -> Any:
    of = kind(value)
    if name == "str":
        return pc.cast(value, pa.string())
    if of == "text" and name in ("int", "float"):
        pattern, to = (_INTEGER, pa.int64()) if name == "int" else (_NUMBER, pa.float64())
        fits = pc.match_substring_regex(value, pattern)
        plain = pc.replace_substring_regex(pc.utf8_trim_whitespace(value), r"^\+", "")
        return pc.cast(pc.if_else(fits, plain, pa.scalar(None, plain.type)), to)
    if of == "text" and name == "timestamp":
        fits = pc.match_substring_regex(value, _DAY)
        days = pc.utf8_slice_codeunits(pc.if_else(fits, value, pa.scalar(None, value.type)), 0, 19)
        found = pc.strptime(_whole(days), format="%Y-%m-%dT%H:%M:%S", unit="s", error_is_null=True)
        # it reads February 30 as a day of March
        is_that = pc.equal(pc.day(found), pc.cast(pc.utf8_slice_codeunits(days, 8, 10), pa.int64()))
        return pc.if_else(is_that, found, pa.scalar(None, found.type))
    if of == "time" and name == "timestamp":
        return pc.cast(value, pa.timestamp("s"), safe=False)
    if of in ("number", "bool") and name in ("int", "float"):
        if name == "int" and pa.types.is_floating(value.type):
            value = pc.if_else(pc.less(pc.abs(value), 2.0**63), pc.trunc(value), pa.scalar(None, value.type))
        return pc.cast(value, pa.int64() if name == "int" else pa.float64(), safe=False)
    if of in ("number", "bool") and name == "bool":
        return pc.cast(value, pa.bool_())
    raise ExpressionError(f"`{ast.unparse(node)}`: {name} cannot be made of the kind {of}")


def _whole(days: Any) -> Any:
    """Days and times as ISO 8601 has them, a day as its midnight."""
    short = pc.equal(pc.utf8_length(days), 10)
    return pc.if_else(short, pc.binary_join_element_wise(days, "T00:00:00", ""), pc.replace_substring(days, " ", "T"))
