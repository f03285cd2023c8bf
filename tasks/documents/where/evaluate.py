"""Expressions over a table, by Arrow's functions on whole columns.

What is missing stays so, as in SQL: a comparison with null is null, `null and false` is false, `null or true` is true.
A number that is NaN counts as missing. Arithmetic is in float64, and what is divided by 0 is missing. Texts are
compared by code points.
"""

import ast
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import parquet
from gristmill.tasks.documents.instants import instant
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.where.syntax import DERIVED, FUNCTIONS, ExpressionError, columns, parsed, spelled, stored

_TIME = pa.timestamp("us", "UTC")
_HOST = r"^[A-Za-z][A-Za-z0-9+.\-]*://(?:[^/?#@]*@)?(?P<found>\[[^\]]*\]|[^/?#:]+)"
_TLD = r"\.(?P<found>[^.0-9][^.]*)\.?$"  # of an address in numbers there is none
_MIME = r"^\s*(?P<found>[^;\s]+)"
# As crawls write them; days that only some months have are looked at one by one.
_USUAL = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"
_WHOLE = r"^\s*[+-]?[0-9]{1,18}\s*$"
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"
_COMPARED: dict[type[ast.cmpop], Callable] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_ARITHMETIC: dict[type[ast.operator], Callable] = {ast.Add: pc.add, ast.Sub: pc.subtract, ast.Mult: pc.multiply}


def evaluate(tree: ast.expr, table: pa.Table) -> pa.Array:
    """The values of a checked tree (`syntax.parsed`) on each row. Raises ExpressionError for a column that is not
    there and for values that have no meaning together."""
    return _Evaluation(table).of(tree)


def truth(tree: ast.expr, table: pa.Table) -> pa.BooleanArray:
    """As `evaluate`, for an expression that is true, false or null on each row; ExpressionError for another."""
    return _boolean(evaluate(tree, table), tree)


def kind_of(kind: pa.DataType) -> str:
    """What a column of a type is to an expression: text, number, boolean, time, list, or Arrow's name of another."""
    return _kind(_plain(pa.array([], kind)).type)


class _Evaluation:
    def __init__(self, table: pa.Table) -> None:
        self._table, self._columns = table, dict[str, pa.Array]()

    def of(self, node: ast.expr) -> pa.Array:
        try:
            return self._of(node)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise ExpressionError(f"{spelled(node)}: {' '.join(str(error).split())[:200]}") from error

    def _of(self, node: ast.expr) -> pa.Array:
        match node:
            case ast.Name(id=name):
                return self._column(name)
            case ast.Constant(value=value):
                return self._repeated(value)
            case ast.BoolOp(values=values):
                combine = pc.and_kleene if isinstance(node.op, ast.And) else pc.or_kleene
                result = _boolean(self.of(values[0]), values[0])
                for each in values[1:]:
                    result = combine(result, _boolean(self.of(each), each))
                return result
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return pc.invert(_boolean(self.of(inner), inner))
            case ast.UnaryOp(operand=inner):
                return pc.negate(_number(self.of(inner), inner))
            case ast.BinOp(left=left, right=right):
                one, other = _number(self.of(left), left), _number(self.of(right), right)
                if isinstance(node.op, ast.Div):
                    return pc.divide(one, pc.if_else(pc.equal(other, 0.0), _null(pa.float64()), other))
                return _ARITHMETIC[type(node.op)](one, other)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                result, before = None, left
                for op, right in zip(ops, rights, strict=True):
                    one = self._compared(before, op, right, node)
                    result, before = one if result is None else pc.and_kleene(result, one), right
                assert result is not None, "a comparison has two sides"
                return result
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._choose(test, body, other, node)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(name, arguments, node)
        raise ExpressionError(f"{spelled(node)} stands where a value is needed")

    def _column(self, name: str) -> pa.Array:
        if name not in self._columns:
            names = self._table.column_names
            if name in names:
                self._columns[name] = _plain(self._table[name].combine_chunks())
            elif name in DERIVED and DERIVED[name] in names:
                self._columns[name] = _DERIVED[name](self._column(DERIVED[name]))
            else:
                raise ExpressionError(f"there is no column {name}; there are {', '.join(names)}")
        return self._columns[name]

    def _repeated(self, value: object) -> pa.Array:
        kind = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}.get(type(value))
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ExpressionError(f"{value} is no number of 64 bits")
        return pa.repeat(pa.scalar(value, kind), len(self._table))

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, whole: ast.expr) -> pa.Array:
        if isinstance(op, ast.Is | ast.IsNot):
            missing = pc.is_null(self.of(left))
            return missing if isinstance(op, ast.Is) else pc.invert(missing)
        if isinstance(op, ast.In | ast.NotIn):
            result = self._contains(left, right, whole)
            return result if isinstance(op, ast.In) else pc.invert(result)
        one, other = self.of(left), self.of(right)
        one, other = _as_time(one, other.type, left), _as_time(other, one.type, right)
        kinds = {_kind(one.type), _kind(other.type)}
        if len(kinds) > 1:
            sides = " with ".join(
                f"{spelled(side)}, a {_kind(each.type)}," for side, each in ((left, one), (right, other))
            )
            raise ExpressionError(
                f"{spelled(whole)} compares {sides} which is never equal; use string(), float() or time()"
            )
        if kinds <= {"boolean", "list"} and not isinstance(op, ast.Eq | ast.NotEq):
            raise ExpressionError(f"{spelled(whole)}: a {kinds.pop()} has no order")
        if kinds == {"list"}:
            raise ExpressionError(f"{spelled(whole)}: ask whether a value is in a list, as 'a' in {spelled(left)}")
        if kinds == {"number"}:
            one, other = _alike(one, other)
        return _COMPARED[type(op)](one, other)

    def _contains(self, left: ast.expr, right: ast.expr, whole: ast.expr) -> pa.Array:
        """Whether a value is one of constants, or in a column of lists, or a part of a text."""
        if isinstance(right, ast.Tuple | ast.List):
            one = self.of(left)
            values = [_constant(each) for each in right.elts]
            result = pa.repeat(pa.scalar(False), len(one))
            if not values:
                return pc.if_else(pc.is_null(one), _null(pa.bool_()), result)
            if len({_kind(pa.scalar(value).type) for value in values}) > 1:
                raise ExpressionError(f"{spelled(right)} has values of several kinds; divide it")
            if pa.types.is_timestamp(one.type):
                among = _as_time(pa.array(values), one.type, right)
            else:
                among = pa.array(values)
            if _kind(one.type) != _kind(among.type):
                raise ExpressionError(
                    f"{spelled(whole)}: {spelled(left)} is a {_kind(one.type)}, and the list has others"
                )
            if _kind(one.type) == "number":
                one, among = _alike(one, among)
            return pc.if_else(pc.is_null(one), _null(pa.bool_()), pc.is_in(one, among.cast(one.type)))
        many = self.of(right)
        if not isinstance(left, ast.Constant):
            raise ExpressionError(f"{spelled(whole)}: what is sought in {spelled(right)} is a constant")
        if _kind(many.type) == "text" and isinstance(left.value, str):
            return pc.match_substring(many, left.value)
        if _kind(many.type) != "list":
            raise ExpressionError(f"{spelled(whole)}: {spelled(right)} is no list and no text")
        inner = many.flatten()
        if _kind(inner.type) != _kind(pa.scalar(left.value).type):
            raise ExpressionError(f"{spelled(whole)}: the list holds values of another kind")
        hits = pc.list_parent_indices(many).filter(pc.fill_null(pc.equal(inner, pa.scalar(left.value)), False))
        rows = pa.array(np.arange(len(many)), hits.type)
        return pc.if_else(pc.is_null(many), _null(pa.bool_()), pc.is_in(rows, hits))

    def _choose(self, test: ast.expr, body: ast.expr, other: ast.expr, whole: ast.expr) -> pa.Array:
        """`body` where the condition is true, else `other`: also where it is neither true nor false."""
        condition = pc.fill_null(_boolean(self.of(test), test), False)
        yes, no = self.of(body), self.of(other)
        if pa.types.is_null(yes.type) or pa.types.is_null(no.type):
            kind = no.type if pa.types.is_null(yes.type) else yes.type
            return pc.if_else(condition, yes.cast(kind), no.cast(kind))
        if _kind(yes.type) != _kind(no.type):
            raise ExpressionError(
                f"{spelled(whole)} is a {_kind(yes.type)} or a {_kind(no.type)}; let both be of a kind"
            )
        if _kind(yes.type) == "number":
            yes, no = _alike(yes, no)
        return pc.if_else(condition, yes, no.cast(yes.type))

    def _call(self, name: str, arguments: list[ast.expr], node: ast.expr) -> pa.Array:
        if name == "coalesce":
            values = [self.of(each) for each in arguments]
            if len({_kind(each.type) for each in values}) > 1:
                raise ExpressionError(f"{spelled(node)} has values of several kinds")
            return pc.coalesce(*values)
        first = self.of(arguments[0])
        if len(arguments) == 1:
            return _FUNCTIONS[name](first, node)
        pattern = _constant(arguments[1])
        if not isinstance(pattern, str):
            raise ExpressionError(f"{spelled(node)}: the second argument is a text in quotes")
        return _PATTERNS[name](_text(first, node), pattern)


def _kind(kind: pa.DataType) -> str:
    for name, asks in (
        ("text", (pa.types.is_string, pa.types.is_large_string)),
        ("boolean", (pa.types.is_boolean,)),
        ("number", (pa.types.is_integer, pa.types.is_floating)),
        ("time", (pa.types.is_timestamp,)),
        ("list", (pa.types.is_list, pa.types.is_large_list)),
    ):
        if any(ask(kind) for ask in asks):
            return name
    return str(kind)


def _plain(column: pa.Array) -> pa.Array:
    """A column as expressions see it: NaN as missing, dates as times, dictionaries and small floats spelled out."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind) or pa.types.is_float32(kind):
        column, kind = column.cast(pa.float64()), pa.float64()
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind != _TIME):
        zoned = column if pa.types.is_timestamp(kind) and kind.tz else column.cast(pa.timestamp("us"))
        return zoned.cast(pa.timestamp("us", kind.tz)).cast(_TIME) if zoned is column else zoned.cast(_TIME)
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(column), _null(kind), column)
    return column.cast(pa.string()) if kind == pa.null() else column


def _boolean(values: pa.Array, node: ast.expr) -> pa.Array:
    if values.type != pa.bool_():
        raise ExpressionError(f"{spelled(node)} is a {_kind(values.type)}, neither true nor false; compare it")
    return values


def _number(values: pa.Array, node: ast.expr) -> pa.Array:
    if _kind(values.type) != "number":
        raise ExpressionError(f"{spelled(node)} is a {_kind(values.type)}, not a number; use float() or length()")
    return values.cast(pa.float64(), safe=False)


def _alike(one: pa.Array, other: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Numbers of one type: int64, or float64, to which Arrow by itself casts no integer above 2^53 but raises for it,
    so that a single document would end a run."""
    signed = all(pa.types.is_signed_integer(each.type) for each in (one, other))
    kind = pa.int64() if signed else pa.float64()
    return one.cast(kind, safe=False), other.cast(kind, safe=False)


def _text(values: pa.Array, node: ast.expr) -> pa.Array:
    if _kind(values.type) != "text":
        raise ExpressionError(f"{spelled(node)}: that is a {_kind(values.type)}, not a text; use string()")
    return values


def _null(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, kind)


def _constant(node: ast.expr) -> object:
    if isinstance(node, ast.UnaryOp):
        value = _constant(node.operand)
        assert isinstance(value, int | float), "the tree is checked"
        return -value
    return node.value if isinstance(node, ast.Constant) else None


def _as_time(values: pa.Array, other: pa.DataType, node: ast.expr) -> pa.Array:
    """Texts that are compared with times as times; a constant that is none is an error."""
    if _kind(values.type) != "text" or not pa.types.is_timestamp(other):
        return values
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and instant(node.value) is None:
        raise ExpressionError(f"{spelled(node)} is no time; write it as '2024-05-01' or '2024-05-01T12:00:00Z'")
    return _time(values)


def _time(texts: pa.Array) -> pa.Array:
    """Times of ISO 8601; null for what is none."""
    usual = pc.fill_null(pc.match_substring_regex(texts, _USUAL), False)
    coded = pc.if_else(usual, _null(texts.type), texts).dictionary_encode()  # each different text is read once
    times = pa.array([instant(text) for text in coded.dictionary.to_pylist()], pa.int64()).cast(_TIME)
    return pc.if_else(usual, pc.if_else(usual, texts, _null(texts.type)).cast(_TIME), times.take(coded.indices))


def _extract(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.struct_field(pc.extract_regex(texts, pattern), "found")


def _match(texts: pa.Array, pattern: str) -> pa.Array:
    pc.match_substring_regex(pa.array([""]), pattern)  # a pattern that is none is found without a text, too
    return pc.match_substring_regex(texts, pattern)


def _times(values: pa.Array, node: ast.expr) -> pa.Array:
    return values if pa.types.is_timestamp(values.type) else _time(_text(values, node))


def _whole(values: pa.Array, node: ast.expr) -> pa.Array:
    """Towards 0; null for a text that is no whole number, and for what 64 bits do not hold."""
    if _kind(values.type) == "text":
        fits = pc.match_substring_regex(values, _WHOLE)
        return pc.utf8_ltrim(pc.if_else(fits, pc.utf8_trim_whitespace(values), _null(values.type)), "+").cast(
            pa.int64()
        )
    if values.type == pa.uint64():
        values = pc.if_else(pc.less(values, pa.scalar(1 << 63, pa.uint64())), values, _null(pa.uint64()))
    if values.type == pa.bool_() or pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    towards = pc.trunc(_number(values, node))
    return pc.if_else(pc.less(pc.abs(towards), float(1 << 63)), towards, _null(pa.float64())).cast(pa.int64())


def _real(values: pa.Array, node: ast.expr) -> pa.Array:
    if _kind(values.type) == "text":
        fits = pc.match_substring_regex(values, _NUMBER)
        plain = pc.utf8_ltrim(pc.if_else(fits, pc.utf8_trim_whitespace(values), _null(values.type)), "+")
        return plain.cast(pa.float64())
    return values.cast(pa.float64()) if values.type == pa.bool_() else _number(values, node)


def _length(values: pa.Array, node: ast.expr) -> pa.Array:
    if _kind(values.type) == "list":
        return pc.list_value_length(values).cast(pa.int64())
    return pc.utf8_length(_text(values, node)).cast(pa.int64())


_FUNCTIONS: dict[str, Callable[[pa.Array, ast.expr], pa.Array]] = {
    "lower": lambda values, node: pc.utf8_lower(_text(values, node)),
    "upper": lambda values, node: pc.utf8_upper(_text(values, node)),
    "length": _length,
    "abs": lambda values, node: pc.abs(_number(values, node)),
    "floor": lambda values, node: pc.floor(_number(values, node)),
    "ceil": lambda values, node: pc.ceil(_number(values, node)),
    "int": _whole,
    "float": _real,
    "string": lambda values, node: values.cast(pa.string()),
    "time": _times,
    "year": lambda values, node: pc.year(_times(values, node)),
    "month": lambda values, node: pc.month(_times(values, node)),
    "day": lambda values, node: pc.day(_times(values, node)),
}
_PATTERNS: dict[str, Callable[[pa.Array, str], pa.Array]] = {
    "starts_with": lambda values, pattern: pc.starts_with(values, pattern),
    "ends_with": lambda values, pattern: pc.ends_with(values, pattern),
    "matches": lambda values, pattern: _match(values, pattern),
}
_DERIVED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "host": lambda urls: pc.utf8_lower(_extract(urls, _HOST)),
    "tld": lambda urls: _extract(pc.utf8_lower(_extract(urls, _HOST)), _TLD),
    "mime": lambda kinds: pc.utf8_lower(_extract(kinds, _MIME)),
}
assert {*_FUNCTIONS, *_PATTERNS, "coalesce"} == {*FUNCTIONS}


def matching(parts: tuple[str, ...], kept: str, expression: str) -> pa.Table:
    """`id` and the stored columns that an expression names, of the documents of the selection `kept` for which it is
    true, in their order.

    Holds these columns of one shard. Raises ExpressionError for an expression that has no meaning on them, LookupError
    for a column that is in no part, or a document that is not in one.
    """
    there = list(dict.fromkeys(name for part in parts for name in parquet.columns(part)))
    tree = parsed(expression)
    table = gather(parts, kept, list(dict.fromkeys(stored(name, there) for name in columns(tree))))
    return table.filter(truth(tree, table))
