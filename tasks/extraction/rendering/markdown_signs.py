"""Signs that Markdown would take for marks, escaped (CommonMark 0.31, 2.4). Separate: text, no elements."""

import re

# Formulas keep their signs.
_FORMULAS = re.compile(r"(\$[^$\n]+\$|\\\(.{1,400}?\\\)|\\\[.{1,2000}?\\\])", re.DOTALL)
_SIGNS = re.compile(
    r"(?<=[^\s*])\*+|(?<!\*)\*+(?=[^\s*])|(?<![^\W_])_+(?=[^\W_])|(?<=[^\W_])_+(?![^\W_])|~~|`+|"
    r"\[(?=[ xX]\])|\[(?=[^\[\]\n]{0,400}\]\()"
)
_ANY_SIGN = re.compile(r"[*_~`\[]")


def escaped(text: str) -> str:
    """A text without marks of emphasis, of code, of what is struck through, of tasks or of links."""
    if not _ANY_SIGN.search(text):
        return text
    parts = _FORMULAS.split(text)
    parts[::2] = (_SIGNS.sub(_with_backslashes, part) for part in parts[::2])
    return "".join(parts)


def _with_backslashes(match: re.Match[str]) -> str:
    signs = match[0]
    return "\\~~" if signs == "~~" else "".join(f"\\{sign}" for sign in signs)
