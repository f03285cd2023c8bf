"""What an expression may be: Python's syntax of comparisons, read by Python's own parser and never run.

`ast.parse` makes a tree of a text without executing any of it; of the tree only what is listed here is let through, and
nothing but `gristmill.tasks.documents.where.evaluate` gives it a meaning. So a recipe of another hand can name columns
and functions of the table below, and no more.
"""

import ast
from collections.abc import Sequence
from functools import lru_cache

# A recipe may come from anywhere: what is longer is refused before it is parsed.
MAX_CHARACTERS = 4000
MAX_DEPTH = 40

# The functions that there are, and how many arguments each has.
FUNCTIONS = {
    "lower": (1, 1), "upper": (1, 1), "length": (1, 1), "starts_with": (2, 2), "ends_with": (2, 2), "matches": (2, 2),
    "abs": (1, 1), "floor": (1, 1), "ceil": (1, 1), "coalesce": (2, 8), "int": (1, 1), "float": (1, 1),
    "string": (1, 1), "time": (1, 1), "year": (1, 1), "month": (1, 1), "day": (1, 1),
}  # fmt: skip

# Columns that no file has: what they are made of.
DERIVED = {"host": "url", "tld": "url", "mime": "content_type"}

_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_CONSTANTS = (str, int, float, bool)
_KEYWORDS = {"true": "True", "false": "False", "null": "None"}


class ExpressionError(ValueError):
    """An expression that cannot be read, or has no meaning on these columns."""


@lru_cache(256)
def parsed(expression: str) -> ast.expr:
    """The checked tree of an expression. Raises ExpressionError, with the remedy, for what is none."""
    if len(expression) > MAX_CHARACTERS:
        raise ExpressionError(f"has {len(expression):,} characters; {MAX_CHARACTERS:,} are read at most: divide it")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(f"{expression!r} cannot be read{_hint(expression, error)}") from error
    _check(tree, 0)
    return tree


def columns(tree: ast.expr) -> list[str]:
    """The columns that an expression names, each once, as they come."""
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions)
    ordered = sorted(names, key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in ordered))


def stored(name: str, there: Sequence[str]) -> str:
    """The column of a file behind a name: a derived one's, unless there is one of that very name."""
    return name if name in there or name not in DERIVED else DERIVED[name]


def clauses(tree: ast.expr, operator: type[ast.boolop]) -> list[ast.expr]:
    """The parts of an expression that `and`, or `or`, joins at its top, in their order."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, operator):
        return [part for value in tree.values for part in clauses(value, operator)]
    return [tree]


def spelled(tree: ast.AST) -> str:
    """An expression in one way of writing it."""
    return ast.unparse(tree)


def _hint(expression: str, error: Exception) -> str:
    lowered = f" {expression.lower()} "
    if " is null" in lowered or " is not null" in lowered:
        return "; write `is None` or `is not None`"
    if "=" in expression.replace("==", "").replace("!=", "").replace("<=", "").replace(">=", ""):
        return "; two values are compared by =="
    if "&&" in expression or "||" in expression or " AND " in expression or " OR " in expression:
        return "; write `and`, `or`, `not`"
    offset = getattr(error, "offset", None)
    return f" at character {offset}; write it as: language == 'en' and characters > 200" if offset else ""


def _check(node: ast.AST, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ExpressionError(f"is more than {MAX_DEPTH} levels deep; divide it")
    match node:
        case ast.BoolOp():
            inner: list[ast.AST] = list(node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            inner = [node.operand]
        case ast.BinOp() if isinstance(node.op, _ARITHMETIC):
            inner = [node.left, node.right]
        case ast.Compare() if all(isinstance(op, _COMPARED) for op in node.ops):
            inner = [node.left, *node.comparators]
            _check_none(node)
        case ast.IfExp():
            inner = [node.test, node.body, node.orelse]
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            if name not in FUNCTIONS:
                raise ExpressionError(f"there is no function {name}; there are {', '.join(FUNCTIONS)}")
            least, most = FUNCTIONS[name]
            if not least <= len(node.args) <= most:
                n_arguments = f"{least}" if least == most else f"{least} to {most}"
                raise ExpressionError(f"{name} has {len(node.args)} arguments; it takes {n_arguments}")
            inner = list(node.args)
        case ast.Tuple() | ast.List():
            inner = list(node.elts)
            if not all(isinstance(_value(each), _CONSTANTS) for each in inner):
                raise ExpressionError(f"{spelled(node)}: a list has constants alone, none of them None")
        case ast.Name(id=name):
            if name in _KEYWORDS:
                raise ExpressionError(f"{name} is written {_KEYWORDS[name]}")
            inner = []
        case ast.Constant(value=value) if value is None or isinstance(value, _CONSTANTS):
            _check_constant(value)
            inner = []
        case _:
            raise ExpressionError(
                f"{spelled(node)}: only columns, constants, comparisons, and, or, not, in, is None, a if b else c, "
                f"+ - * / and the functions {', '.join(FUNCTIONS)} are read"
            )
    for each in inner:
        _check(each, depth + 1)


def _check_constant(value: object) -> None:
    """Whether Arrow can hold it: of other constants, in a list too, it raises errors that name no expression."""
    if isinstance(value, int) and value >= 2**63:
        raise ExpressionError(f"{str(value)[:40]} is no number of 64 bits")
    if isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value):
        raise ExpressionError(f"{value[:40]!a} has half a character; write the character itself, or \\U and 8 digits")


def _check_none(node: ast.Compare) -> None:
    for op, right in zip(node.ops, node.comparators, strict=True):
        none = isinstance(right, ast.Constant) and right.value is None
        if none != isinstance(op, ast.Is | ast.IsNot):
            raise ExpressionError(
                f"{spelled(node)}: write `is None` or `is not None` for what is missing, == for values"
            )
        if isinstance(op, ast.Is | ast.IsNot) and len(node.ops) > 1:
            raise ExpressionError(f"{spelled(node)}: `is` stands alone; join comparisons by `and`")


def _value(node: ast.AST) -> object:
    """Of a constant, or of a number with a minus sign; None for all else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _value(node.operand)
    return node.value if isinstance(node, ast.Constant) else None
