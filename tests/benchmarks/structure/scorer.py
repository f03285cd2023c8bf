"""How much of an article's structure a text shows: what is right of what there is, for each measure.

Plain texts and Markdown are read alike but for tables, headings and code of Markdown, which its parser reads.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from markdown_it import MarkdownIt

from tests.benchmarks.structure.article import (
    Article,
    Code,
    Definitions,
    Formula,
    Heading,
    List,
    Paragraph,
    Part,
    Signature,
    Table,
)
from tests.benchmarks.structure.case import Case
from tests.benchmarks.structure.formula_forms import readable, same_latex
from tests.benchmarks.structure.numerals import labelled

MEASURES = ("cells", "headings", "code lines", "formulas", "items", "definitions", "paragraphs")


@dataclass(frozen=True)
class Finding:
    """One thing that the author meant and whether the text has it; `given` is what stands there instead."""

    measure: str
    right: bool
    truth: str
    given: str


@dataclass
class Score:
    right: dict[str, int] = field(default_factory=dict)
    all: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        self.all[finding.measure] = self.all.get(finding.measure, 0) + 1
        self.right[finding.measure] = self.right.get(finding.measure, 0) + finding.right


def judge(text: str, case: Case, markdown: bool) -> Iterator[Finding]:
    """All that the article of the case has, in its order."""
    article, latex = case.article, case.latex
    seen = _Markdown(text) if markdown else None
    lines = [line.rstrip() for line in text.split("\n")]
    rows = seen.rows if seen else [_fields(line) for line in lines]
    code = seen.code if seen else lines
    plain = [_shown_line(line) for line in lines] if markdown else lines
    if markdown:  # marks of emphasis count for nothing in formulas
        lines = [re.sub(r"(?<!\\)\*+", "", line) for line in lines]
    yield _title(article, plain, seen)
    for i, part in enumerate(article.parts):
        following = article.parts[i + 1] if i + 1 < len(article.parts) else None
        match part:
            case Heading():
                yield _heading(part, following, plain, lines, seen)
            case Table():
                yield from _cells(part, rows)
            case Code(wanted, _):
                yield from _code(wanted, code)
            case List():
                yield from _items(part, plain, -1, case.typed)
            case Definitions(pairs):
                yield from _definitions(pairs, plain)
            case Formula():
                before, after = _edge(article.parts[i - 1], -1), _edge(following, 0)
                yield _formula(part, before, after, lines, latex)
            case Paragraph((only,)):
                yield Finding(
                    "paragraphs", any(_same(only, line) for line in plain), str(only), _near(str(only), plain)
                )
            case Paragraph((first, Formula() as formula, last)):
                yield _formula(formula, _squeezed(str(first))[-20:], _squeezed(str(last))[:20], lines, latex)
            case Signature(wanted):
                shown = wanted.replace("->", "→")
                right = any(_same(shown, line.replace("->", "→").strip("` ")) for line in plain)
                yield Finding("code lines", right, wanted, _near(wanted, plain))


# --- texts


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _same(one: object, other: str) -> bool:
    return str(one).split() == other.split()


def _shown_line(line: str) -> str:
    """A line of Markdown without the marks of emphasis, links and code within it, and with its indentation."""
    text = line.lstrip()
    return line[: len(line) - len(text)] + _shown(_INLINE.parseInline(text)[0])


_INLINE = MarkdownIt("commonmark")


def _near(wanted: str, lines: Sequence[str]) -> str:
    """The line that has most in common with what was wanted, for a reader of failures."""
    words = set(wanted.split())
    best = max(lines, key=lambda line: len(words & set(line.split())) / (len(line.split()) + 5), default="")
    return best if words & set(best.split()) else ""


def _edge(part: Part | None, end: int) -> str:
    """The last or the first 20 signs of a paragraph or heading beside a formula."""
    if not isinstance(part, Paragraph | Heading):
        return ""
    if isinstance(part, Heading):
        return f"\n{_squeezed(part.text)}\n"
    text = _squeezed(str(part.pieces[end]))
    return text[-20:] if end else text[:20]


# --- headings

_MARKS = "#* "
# fences of code, captions of tables
_BESIDE = re.compile(r"\s*(`{3,}|~{3,}|Fig\. 1$)")


def _title(article: Article, lines: Sequence[str], seen: "_Markdown | None") -> Finding:
    """Somewhere ahead of the text; a date or an author may stand between."""
    first = next((i for i, line in enumerate(lines) if _begins(article.parts[0], line)), len(lines))
    right = any(_same(article.title, line.strip(_MARKS)) for line in lines[:first])
    if seen:
        right = (1, article.title.split()) in seen.headings
    return Finding("headings", right, article.title, _near(article.title, lines[:first]))


def _heading(
    part: Heading, following: Part | None, lines: Sequence[str], raw: Sequence[str], seen: "_Markdown | None"
) -> Finding:
    """A line of its own, and the next line begins what it heads; in Markdown also its level. raw: with all marks."""
    given = _near(part.text, lines)
    for i, line in enumerate(lines):
        # a plain text may show a heading on two lines, as the page does
        two = not seen and line.strip() and _same(part.text, f"{line} {''.join(lines[i + 1 : i + 2])}")
        if two or _same(part.text, line.strip(_MARKS)):
            behind = range(i + 1 + bool(two), len(lines))
            after = next((n for n in behind if raw[n].strip() and not _BESIDE.match(raw[n])), None)
            begins = (
                after is not None and following is not None and any(_begins(following, t[after]) for t in (lines, raw))
            )
            if (begins or following is None) and (not seen or (part.level, part.text.split()) in seen.headings):
                return Finding("headings", True, part.text, line)
            given = f"{line} / {lines[after] if after else ''}"
    return Finding("headings", False, part.text, given)


def _begins(part: Part, line: str) -> bool:
    line = _squeezed(line)
    match part:
        case Heading(_, text):
            return line.strip(_MARKS) == _squeezed(text) or (len(line) > 2 and _squeezed(text).startswith(line))
        case Paragraph(pieces):
            return line.startswith(_squeezed(str(pieces[0]))[:12])
        case Code(lines, _):
            return _letters(line) == _letters(lines[0])
        case Table(rows, _):
            return next(_squeezed(cell.text) for row in rows for cell in row if cell.text) in line
        case List(_, items, _):
            return _squeezed(items[0].text)[:12] in line
        case Definitions(pairs):
            return _squeezed(pairs[0][0]) in line
        case Formula():
            return bool(line)
        case Signature(text):
            return _squeezed(text)[:12] in line
    return False


def _letters(line: str) -> str:
    """Without the signs that are marks in Markdown, and may be lost where a line of code is read as text."""
    return re.sub(r"[^\w=<>]", "", line) or line


# --- tables


_WIDEST = 20


def _fields(line: str) -> list[str]:
    """The fields of a line, between bars, or one or two tabs; tabs end no row, so that empty fields may follow."""
    if "|" not in line:
        found = re.split(r"\t\t?", line)
        return found + [""] * _WIDEST if len(found) > 1 else found
    line = re.sub(r"^\s*\|", "", re.sub(r"(?<!\\)\|\s*$", "", line))
    return [each.replace("\\|", "|") for each in re.split(r"(?<!\\)\|", line)]


def _cells(part: Table, rows: Sequence[list[str]]) -> Iterator[Finding]:
    """A cell is in place if the line of its row has it in the field of its column; a covered field must be empty."""
    squeezed = [[_squeezed(each) for each in row] for row in rows]
    for row in part.grid():
        wanted = [_squeezed(cell.text) if cell else "" for cell in row]
        best = max(squeezed, key=lambda given: _matches(wanted, given), default=[])
        found = any(w and w == g for w, g in zip(wanted, best, strict=False))
        given = " | ".join(best) if found else _near_row(wanted, rows)
        for c, each in enumerate(wanted):
            right = found and c < len(best) and best[c] == each
            yield Finding(
                "cells", right, f"column {c} of " + " | ".join(cell.text if cell else "" for cell in row), given
            )


def _matches(wanted: list[str], given: list[str]) -> tuple[int, int]:
    same = [(w, g) for w, g in zip(wanted, given, strict=False) if w == g]
    return sum(len(w) for w, _ in same), len(same)


def _near_row(wanted: list[str], rows: Sequence[list[str]]) -> str:
    best = max(rows, key=lambda row: len({_squeezed(each) for each in row} & set(wanted) - {""}), default=[])
    return " | ".join(best) if {_squeezed(each) for each in best} & set(wanted) - {""} else ""


# --- code


def _code(wanted: Sequence[str], lines: Sequence[str]) -> Iterator[Finding]:
    """A line is exact if it stands in the text as it is, right behind the line before it."""
    size = len(wanted)
    whole = any(list(lines[i : i + size]) == list(wanted) for i, line in enumerate(lines) if line == wanted[0])
    matched: dict[int, int] = {}
    for block in SequenceMatcher(lambda line: not line.strip(), wanted, lines, autojunk=False).get_matching_blocks():
        matched |= {block.a + i: block.b + i for i in range(block.size)}
    for i, line in enumerate(wanted):
        right = whole or i in matched and (i == 0 or matched.get(i - 1) == matched[i] - 1 or i - 1 not in matched)
        yield Finding("code lines", right, line, _near(line, lines))


# --- formulas


def _formula(part: Formula, before: str, after: str, lines: Sequence[str], latex: bool) -> Finding:
    """What stands between the text before and the text after is the formula and nothing else."""
    text = "\n".join(lines)
    begin = _find(text, before, 0)
    end = _find(text, after, begin[1]) if begin else None
    given = text[begin[1] : end[0]] if begin and end else ""
    same = same_latex(given, part.latex) if latex else readable(given) == readable(part.latex)
    return Finding("formulas", bool(given) and same, part.latex, given.strip()[:300])


def _find(text: str, wanted: str, since: int) -> tuple[int, int] | None:
    """Where the signs of `wanted` stand, with any white space between them."""
    if not wanted:
        return None
    signs = r"\s*".join(re.escape(sign) for sign in wanted.strip())
    if wanted.startswith("\n"):  # a heading has its line
        signs = rf"^[#* ]*{signs}[* ]*$"
    found = re.compile(signs, re.MULTILINE).search(text, since)
    return found.span() if found else None


# --- lists


def _items(part: List, lines: Sequence[str], depth: int, typed: bool) -> Iterator[Finding]:
    """An item has a line of its own with its label, further to the right than the item that it is part of."""
    arabic = labelled(part if part.kind == "ul" or typed else replace(part, kind="1"))
    for (number, item), (other, _) in zip(labelled(part), arabic, strict=True):
        sign = rf"[(]?(?:{number}|{other})[.)]\s+" if number else r"(?:[-*+•◦▪·–]\s+)?"
        words = r"\s+".join(re.escape(word) for word in item.text.split())
        wanted = re.compile(rf"(\s*){sign}{words}\s*")
        found = next((match for line in lines if (match := wanted.fullmatch(line))), None)
        indent = len(found[1].expandtabs(4)) if found else depth
        right = found is not None and (depth < 0 or indent > depth)
        label = (number + "." if number else "-") + (f" (deeper than {depth})" if depth >= 0 else "")
        yield Finding("items", right, f"{label} {item.text}", _near(item.text, lines))
        if item.children:
            yield from _items(item.children, lines, max(indent, 0), typed)


def _definitions(pairs: Sequence[tuple[str, str]], lines: Sequence[str]) -> Iterator[Finding]:
    """The definition stands behind its term, with nothing but a colon or a dash between."""
    text = _squeezed("\n".join(lines))
    for term, said in pairs:
        pattern = re.escape(_squeezed(term)) + r"[:*_\-–—]{0,6}" + re.escape(_squeezed(said))
        yield Finding("definitions", bool(re.search(pattern, text)), f"{term}: {said}", _near(said, lines))


# --- Markdown


class _Markdown:
    """What a parser of Markdown makes of a text: rows of its tables, headings with levels, lines of its code."""

    def __init__(self, text: str):
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        self.rows: list[list[str]] = []
        self.headings: list[tuple[int, list[str]]] = []
        self.code: list[str] = []
        for i, token in enumerate(tokens):
            if token.type == "tr_open":
                self.rows.append([])
            elif token.type in ("td_open", "th_open"):
                self.rows[-1].append(_shown(tokens[i + 1]))
            elif token.type == "heading_open":
                self.headings.append((int(token.tag[1]), _shown(tokens[i + 1]).split()))
            elif token.type in ("fence", "code_block"):
                self.code += [*(line.rstrip() for line in token.content.removesuffix("\n").split("\n")), "\0"]


def _shown(inline) -> str:
    return "".join(
        child.content if child.type in ("text", "code_inline") else " " * (child.tag == "br")
        for child in inline.children or ()
    )
