"""Expressions over columns, as text: which there may be, their clauses, and the columns that they read.

The text is read by Python's `ast` in `eval` mode, and nothing in it is ever run: every node has to be on a list of
allowed ones, and `expression_work` gives each of these a meaning of its own in Arrow. So there is no parser of ours to
be wrong about precedence, and a recipe of another hand cannot reach Python. Length and depth are bounded, since Python's
own parser and a walk over its tree use the stack.
"""

import ast
from collections.abc import Iterator

MOST_CHARACTERS = 4000
MOST_DEPTH = 32
# Each function with the least and the most arguments that it takes.
FUNCTIONS = {
    **{name: (1, 1) for name in ("abs", "bool", "day", "float", "host", "int", "len", "lower", "month", "str", "tld")},
    **{name: (1, 1) for name in ("timestamp", "trim", "upper", "year", "col")},
    **{name: (2, 2) for name in ("contains", "endswith", "matches", "startswith")},
    "coalesce": (2, 8),
}
_NODES = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
    *(ast.Name, ast.Load, ast.Constant, ast.Call, ast.Tuple, ast.List),
)


class ExpressionError(ValueError):
    """An expression that cannot be read, or not be computed of these columns."""


def parsed(text: str) -> ast.expr:
    """The tree of an expression, of allowed nodes alone. Raises ExpressionError, which names the part that is not."""
    if len(text) > MOST_CHARACTERS:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {MOST_CHARACTERS} are read")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(f"`{text}` is no expression ({error}); write as in: topic == 'science' and x >= 2") from None
    level: list[ast.AST] = [tree]
    for _ in range(MOST_DEPTH):
        for node in level:
            _check(node)
        level = [child for node in level for child in _children(node)]
        if not level:
            return tree
    raise ExpressionError(f"the expression is nested more than {MOST_DEPTH} deep; write it as several clauses")


def clauses(text: str, joined_by: type[ast.boolop] = ast.And) -> tuple[str, ...]:
    """The parts that `and` joins at the top, or `or`, each as text in one spelling."""
    tree = parsed(text)
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, joined_by) else [tree]
    return tuple(dict.fromkeys(ast.unparse(part) for part in parts))


def columns(text: str) -> tuple[str, ...]:
    """The names of the columns that an expression reads, each once."""
    return tuple(dict.fromkeys(_columns(parsed(text))))


def _columns(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "col":
        yield str(getattr(node.args[0], "value", ""))
    else:
        for child in _children(node):
            yield from _columns(child)


def _children(node: ast.AST) -> list[ast.AST]:
    return list(node.args) if isinstance(node, ast.Call) else list(ast.iter_child_nodes(node))


def _check(node: ast.AST) -> None:
    if not isinstance(node, _NODES):
        what = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
        raise ExpressionError(f"`{what}` may not stand in an expression; there are and, or, not, comparisons, +-*/, in")
    if isinstance(node, ast.Constant) and not isinstance(node.value, (str, int, float, type(None))):
        raise ExpressionError(f"`{node.value!r}` is no text, number, True, False or None")
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) >= 2**63:
        raise ExpressionError(f"{node.value} is too large: numbers have 64 bits")
    if isinstance(node, ast.Call):
        _check_call(node)


def _check_call(node: ast.Call) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in FUNCTIONS:
        raise ExpressionError(f"there is no function {name}; there are {', '.join(sorted(FUNCTIONS))}")
    least, most = FUNCTIONS[name]
    if node.keywords or not least <= len(node.args) <= most:
        raise ExpressionError(f"`{ast.unparse(node)}`: {name} takes {least} to {most} arguments without names")
    texts = node.args if name == "col" else node.args[1:] if name == "matches" else []
    if not all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in texts):
        raise ExpressionError(f"`{ast.unparse(node)}`: {name} needs a text in quotes")
