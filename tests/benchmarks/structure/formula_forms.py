"""One normal form for a formula, however it is written: LaTeX, Unicode, or a line with ^, _ and /."""

import re
import unicodedata

_SIGNS = {
    **{name: unicodedata.lookup(f"GREEK SMALL LETTER {name.upper()}") for name in ("alpha", "beta", "gamma")},
    **{
        name: unicodedata.lookup(f"GREEK SMALL LETTER {name.upper()}")
        for name in ("delta", "mu", "pi", "sigma", "omega")
    },
    **{"lambda": "λ", "sum": "∑", "int": "∫", "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥", "neq": "≠", "ne": "≠"},
    **{"times": "×", "cdot": "·", "in": "∈", "infty": "∞", "to": "→", "rightarrow": "→", "sqrt": "√", "ll": "≪"},
    **{"Rightarrow": "⇒", "implies": "⇒", "|": "‖", "Vert": "‖", "lVert": "‖", "rVert": "‖", "parallel": "‖"},
    **{"lt": "<", "gt": ">", "dotsc": "…", "lbrack": "[", "rbrack": "]"},
}
# marks of layout and of fonts
_SILENT = {"left", "right", "displaystyle", "textstyle", "limits", "nolimits", "mathrm", "mathbf", "mathbb", "mathit"}
_SILENT |= {"text", "operatorname", "quad", "qquad", ",", ";", "!", ":", " ", "mathop", "boldsymbol", "bf", "rm"}
_SAME = str.maketrans({"−": "-", "⋅": "·", "∙": "·", "∥": "‖", "Σ": "∑", "ϵ": "ε", "ϕ": "φ", "∣": "|", "Ο": "O"})
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼ⁿⁱ", "0123456789+-=ni", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌ᵢⱼₖ", "0123456789+-=ijk", strict=True))
_TOKEN = re.compile(r"\\([A-Za-z]+|.)|([0-9]+)|(\S)")


def bare(text: str) -> str:
    """LaTeX without white space, delimiters, marks of code, and what wraps a whole formula."""
    text = "".join(text.replace("`", "").split())
    text = re.sub(r"\\(?:begin|end)\{(?:equation|displaymath|math|split)\*?\}", "", text)
    text = re.sub(r"^(\$\$|\$|\\\[|\\\()(.*?)(\$\$|\$|\\\]|\\\))([.,]?)$", r"\2\4", text)
    return re.sub(r"^\{\\(?:display|text)style(.*)\}$", r"\1", text)


def same_latex(given: str, truth: str) -> bool:
    """Whether both are one source; the space that a control word needs before a letter counts for nothing."""
    return bare(given) == bare(truth)


def readable(text: str) -> str:
    """The normal form: groups in parentheses, none around a single sign; indices before exponents; signs in Unicode."""
    for table, mark in ((_RAISED, "^"), (_LOWERED, "_")):
        run = f"[{''.join(table)}]+"
        text = re.sub(run, lambda m, t=table, k=mark: f"{k}{{{''.join(t[c] for c in m[0])}}}", text)
    text = unicodedata.normalize("NFKC", text).translate(_SAME).replace("$", "").replace("`", "")
    text = re.sub(r"\\[()\[\]]", "", text)
    text = re.sub(r"\\(?:begin|end)\{\w+\}(?:\{\w+\})?", "", text)
    tokens = [(name and "\\" + name) or number or sign for name, number, sign in _TOKEN.findall(text)]
    return _sequence(tokens, 0, None)[0]


def _sequence(tokens: list[str], at: int, end: str | None) -> tuple[str, int]:
    out = ""
    while at < len(tokens) and tokens[at] != end:
        if tokens[at] in "^_":
            marks = {}
            while at < len(tokens) and tokens[at] in "^_":
                mark = tokens[at]
                marks[mark], at = _one(tokens, at + 1)
            out += "".join(mark + marks[mark] for mark in "_^" if mark in marks)
        else:
            found, at = _one(tokens, at)
            out += found
    return out, at + 1


def _one(tokens: list[str], at: int) -> tuple[str, int]:
    if at >= len(tokens):
        return "", at
    token = tokens[at]
    if token in ("{", "("):
        found, at = _sequence(tokens, at + 1, "}" if token == "{" else ")")
        return _grouped(found), at
    if token == r"\frac":
        above, at = _one(tokens, at + 1)
        below, at = _one(tokens, at)
        return f"{above}/{below}", at
    if token in (r"\sqrt", "√"):
        root = ""
        if at + 1 < len(tokens) and tokens[at + 1] == "[":
            root, at = _sequence(tokens, at + 2, "]")
            at -= 1
        found, at = _one(tokens, at + 1)
        return f"{root}√{found}", at
    if token.startswith("\\"):
        name = token[1:]
        return ("" if name in _SILENT else _SIGNS.get(name, name)), at + 1
    return ("" if token in "&~" else token), at + 1


def _grouped(text: str) -> str:
    if re.fullmatch(r"(\w|\d+)([_^](\w|\d+))*|\W", text) or (text.startswith("(") and _closes(text) == len(text) - 1):
        return text
    return f"({text})"


def _closes(text: str) -> int:
    depth = 0
    for i, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return i
    return -1
