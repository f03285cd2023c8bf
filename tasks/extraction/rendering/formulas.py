"""Formulas as LaTeX: what a page has of it, or its MathML rewritten.

Pages hold LaTeX in `<script type="math/tex">` (MathJax 2), in the annotation of MathML (KaTeX, Wikipedia), in the
`alttext` of LaTeXML (ar5iv), in `data-latex` (MathJax 4) and in the `alt` of images. MathJax 3 has MathML for screen
readers, or elements that are named like it.
"""

import re
import unicodedata

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.vocabulary import E

MATH, SCRIPT, IMG = E["math"], E["script"], E["img"]
# Elements that hold one formula, by their class.
RENDERED = re.compile(r"(?:^|\s)(?:katex|MathJax\w*|mjx-chtml|MJXc-display|mwe-math-element)(?:\s|$)")
_SCRIPT = re.compile(rb"<script[^>]*math/tex([^>]*)>(.*?)(?:</script|\Z)", re.DOTALL | re.IGNORECASE)
# The class and the address of images of formulas, as `markup.text_of_image` has them.
_CLASS = re.compile(r"(?i)(?:latex|(?:^|[^a-z0-9])(?:tex|math))(?:$|[^a-z0-9])")
_ADDRESS = re.compile(
    r"(?i)(?!data:).*?(?:m(?:ath|ime)tex|(?:[?&/](?:la)?|\.la)tex(?:[./?=]|$)|/math/(?:render/|[0-9a-f]+[./]))",
    re.DOTALL,
)
# The `alt` of images by latex2html.
_SOURCE = re.compile(r"\s*(?:\$.*\$|\\begin\{.*\})\s*", re.DOTALL)
_STYLE = re.compile(r"^\{\s*\\(?:displaystyle|textstyle)\s?(.*)\}$", re.DOTALL)
_EMPTY_LINE = re.compile(r"\n\s*\n")
_MAX_DEPTH = 40

_SCRIPTS = {"msup": "^", "msub": "_", "mover": "^", "munder": "_"}
_BOTH = {"msubsup": "_^", "munderover": "_^"}
_OPERATORS = {
    "∑": r"\sum",
    "∏": r"\prod",
    "∫": r"\int",
    "∞": r"\infty",
    "≤": r"\leq",
    "≥": r"\geq",
    "≠": r"\neq",
    "×": r"\times",
    "⋅": r"\cdot",
    "±": r"\pm",
    "→": r"\to",
    "∈": r"\in",
    "−": "-",
    "∂": r"\partial",
    "√": r"\sqrt",
    "≈": r"\approx",
    "∇": r"\nabla",
    "…": r"\ldots",
    "⋯": r"\cdots",
    "′": "'",
    "\u2061": "",
    "\u2062": "",
    "\u2063": "",
    "\u2064": "",
}
_ACCENTS = {
    "¯": r"\bar",
    "^": r"\hat",
    "~": r"\tilde",
    "˙": r"\dot",
    "‾": r"\overline",
    "ˆ": r"\hat",
    "˜": r"\tilde",
    "ˉ": r"\bar",
    r"\to": r"\vec",
    "_": r"\underline",
}
_NAMED = "sin cos tan cot sec csc log ln exp lim max min sup inf det gcd deg dim ker arg sinh cosh tanh".split()
_LETTERS = dict(
    zip(
        "αβγδεζηθικλμνξπρστυφχψωϕϵΓΔΘΛΞΠΣΦΨΩ",
        (
            "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon "
            "varphi chi psi omega phi epsilon Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
        ).split(),
        strict=True,
    )
)


def delimited(tex: str, display: bool) -> str:
    r"""LaTeX between `$` or, if it is displayed, `$$`; "" for none. Delimiters that it has already are taken off."""
    tex = " ".join(tex.split())
    if tex.startswith(r"\begin{displaymath}"):
        tex, display = tex.removeprefix(r"\begin{displaymath}").removesuffix(r"\end{displaymath}").strip(), True
    for opening, closing in (("$$", "$$"), (r"\[", r"\]"), (r"\(", r"\)"), ("$", "$")):
        if tex.startswith(opening) and tex.endswith(closing) and len(tex) >= len(opening + closing):
            tex = tex[len(opening) : len(tex) - len(closing)].strip()
            break
    if match := _STYLE.match(tex):
        tex = match[1].strip()
    tex = tex.removeprefix("% <![CDATA[").removesuffix("%]]>").strip()
    if not tex:
        return ""
    return f"$${tex}$$" if display else f"${tex}$"


def of_script(tag: bytes) -> str | None:
    """The formula of a `<script>`, None if it holds none."""
    if match := _SCRIPT.match(tag):
        return delimited(match[2].decode("utf-8", "replace"), b"display" in match[1].lower())
    return None


def of_image(source: Source, k: int) -> str | None:
    """The formula of an `<img>`, None if it is the picture of something else."""
    classes, address = source.classes(k), source.attribute(k, "src") or ""
    if _SOURCE.fullmatch(source.attribute(k, "alt") or "") or _CLASS.search(classes) or _ADDRESS.match(address):
        tex = source.attribute(k, "alt") or ("latex" in address.lower() and source.attribute(k, "title"))
        return delimited(tex, "display" in classes) if tex else None
    return None


def of_element(source: Source, first: int, last: int, display: bool = False) -> str | None:
    """The formula of an element between its tags; None if it has none of the notations that are known here."""
    tex = source.attribute(first, "data-latex")
    math = first if source.element[first] == MATH else None
    for k in range(first, last):
        if tex is not None:
            break
        element = source.element[k]
        if element < 0:
            continue
        name = source.name(k)
        if name == "annotation" and "tex" in (source.attribute(k, "encoding") or "").lower():
            tex = source.text(source.end[k], source.begin[k + 1])
        elif name == "math":
            math = k if math is None or source.element[math] != MATH else math
            tex = source.attribute(k, "alttext")
            display |= source.attribute(k, "display") == "block"
        elif name == "mjx-container" or name == "mjx-math":
            math = k if math is None else math
            display |= source.attribute(k, "display") == "true"
            tex = source.attribute(k, "data-latex")
        elif math is None and name == "span" and "katex-mathml" in source.classes(k):
            tex = _of_stripped(source, k)
        elif element == SCRIPT and (formula := of_script(source.tag(k))) is not None:
            return formula
        elif element == IMG and math is None and (formula := of_image(source, k)) is not None:
            return formula
    if math is not None and _has_annotation(source, math, last):
        tex = _annotation(source, math, last) or tex
    if tex is None and math is not None:
        tex = _tex(_tree(source, math, last))
    return None if tex is None else delimited(tex, display)


def _of_stripped(source: Source, k: int) -> str | None:
    """The LaTeX of KaTeX's MathML where only its texts are left: the last, behind an empty line; None with any tag."""
    if source.name(k + 1) != "span" or source.element[k + 1] >= 0:
        return None
    texts = _EMPTY_LINE.split(source.text(source.end[k], source.begin[k + 1]).strip())
    return texts[-1] if len(texts) > 1 else None


def _has_annotation(source: Source, first: int, last: int) -> bool:
    return source.data.find(b"x-tex", source.begin[first], source.begin[last]) >= 0


def _annotation(source: Source, first: int, last: int) -> str:
    for k in range(first, last):
        if source.element[k] >= 0 and source.name(k) == "annotation":
            if "tex" in (source.attribute(k, "encoding") or "").lower():
                return source.text(source.end[k], source.begin[k + 1])
    return ""


def _tree(source: Source, first: int, last: int) -> list:
    """[name, children, text] of MathML, or of the elements of MathJax that are named like it."""
    root: list = ["mrow", [], ""]
    stack = [root]
    pos = source.end[first]
    skipped = ""
    for k in range(first + 1, last + 1):
        stop = source.begin[k]
        if not skipped and stop > pos:
            stack[-1][2] += source.text(pos, stop)
        pos = max(pos, source.end[k]) if k < len(source.element) else pos
        if k == last or k >= len(source.element):
            break
        element = source.element[k]
        name = source.name(k).removeprefix("mjx-")
        if skipped:
            if element < 0 and name == skipped:
                skipped = ""
            continue
        if element < 0:
            depth = len(stack) - 1
            while depth > 0 and stack[depth][0] != name:
                depth -= 1
            if depth:
                del stack[depth:]
        elif name in ("annotation", "annotation-xml", "assistive-mml"):
            skipped = name
        elif name == "c":
            if match := re.search(r"mjx-c([0-9A-Fa-f]+)", source.classes(k)):
                stack[-1][2] += chr(min(int(match[1], 16), 0x10FFFF))
        else:
            node: list = [name, [], ""]
            stack[-1][1].append(node)
            closed = source.tag(k).endswith(b"/>")
            if not closed and len(stack) < _MAX_DEPTH:
                stack.append(node)
    return root


def _group(text: str) -> str:
    return text if len(text) == 1 else f"{{{text}}}"


def _tex(node: list) -> str:
    name, children, text = node
    if name in ("mi", "mo", "mn", "mtext", "ms"):
        text += "".join(_tex(child) for child in children)
        # letters of the mathematical alphabets are those that they are styles of
        text = "".join(unicodedata.normalize("NFKC", c) if c >= "\U0001d400" else c for c in text)
        return _leaf(name, text.strip())
    parts = [_tex(child) for child in children]
    if name == "mfrac" and len(parts) == 2:
        return rf"\frac{{{parts[0]}}}{{{parts[1]}}}"
    if name in ("mover", "munder") and len(parts) == 2 and parts[1] in _ACCENTS:
        return f"{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    if name in _SCRIPTS and len(parts) == 2:
        base = parts[0] if len(parts[0]) == 1 or children[0][0] in ("mi", "mo", "mn") else f"{{{parts[0]}}}"
        return f"{base}{_SCRIPTS[name]}{_group(parts[1])}"
    if name in _BOTH and len(parts) == 3:
        return f"{parts[0]}_{_group(parts[1])}^{_group(parts[2])}"
    if name == "msqrt":
        return rf"\sqrt{{{_joined(parts)}}}"
    if name == "mroot" and len(parts) == 2:
        return rf"\sqrt[{parts[1]}]{{{parts[0]}}}"
    if name == "mtable":
        return r"\begin{matrix} " + r" \\ ".join(parts) + r" \end{matrix}"
    if name in ("mtr", "mlabeledtr"):
        return " & ".join(parts)
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    """Pieces side by side; a command is kept apart from a letter behind it."""
    text = ""
    for part in parts:
        if re.search(r"\\[a-zA-Z]+$", text) and part[:1].isalpha():
            text += " "
        text += part
    return text


def _leaf(name: str, text: str) -> str:
    if name == "mtext":
        return rf"\text{{{text}}}" if text else " "
    if text in _NAMED:
        return "\\" + text
    if len(text) > 1 and name == "mi" and text.isalpha():
        return rf"\mathrm{{{text}}}"
    if text in _LETTERS:
        return "\\" + _LETTERS[text]
    if text in _OPERATORS:
        return _OPERATORS[text]
    return "\\" + text if text in ("{", "}", "%", "#", "&", "_") else text
