"""Comments of a text, by the marks of its language: where they are, and the header at its beginning."""

import re
from dataclasses import dataclass
from functools import cache
from itertools import islice

_C = ("//", "/*", "*/")
_HASH = ("#", "", "")
# By language the mark of a comment to the end of the line, and those around one; Linguist's names.
_MARKS: dict[str, tuple[str, str, str]] = {
    **dict.fromkeys(
        (
            *("C", "C++", "C#", "Cuda", "D", "Dart", "GLSL", "Go", "Groovy", "Java", "JavaScript", "Kotlin", "Less"),
            *("Objective-C", "Objective-C++", "OpenCL", "PHP", "Protocol Buffer", "Rust", "SCSS", "Scala", "Swift"),
            *("SystemVerilog", "TSX", "Thrift", "TypeScript", "Vala", "Verilog", "Zig", "Yacc", "Lex", "SWIG"),
        ),
        _C,
    ),
    **dict.fromkeys(
        (
            *(
                "Awk",
                "CMake",
                "Crystal",
                "Cython",
                "Dockerfile",
                "Elixir",
                "Gettext Catalog",
                "GraphQL",
                "INI",
                "Julia",
            ),
            *("Java Properties", "Makefile", "Meson", "Nim", "Nix", "Perl", "Python", "R", "Ruby", "Shell", "Starlark"),
            *("TOML", "Tcl", "YAML", "Go Module"),
        ),
        _HASH,
    ),
    **dict.fromkeys(("HTML", "XML", "SVG", "Vue", "Svelte", "Markdown"), ("", "<!--", "-->")),
    "Ada": ("--", "", ""),
    "Assembly": (";", "/*", "*/"),
    "Batchfile": ("REM ", "", ""),
    "CSS": ("", "/*", "*/"),
    "Clojure": (";", "", ""),
    "CoffeeScript": ("#", "###", "###"),
    "Common Lisp": (";", "#|", "|#"),
    "Emacs Lisp": (";", "", ""),
    "Erlang": ("%", "", ""),
    "Fortran": ("!", "", ""),
    "HCL": ("#", "/*", "*/"),
    "Haskell": ("--", "{-", "-}"),
    "Lua": ("--", "--[[", "]]"),
    "M4Sugar": ("dnl", "", ""),
    "MATLAB": ("%", "%{", "%}"),
    "OCaml": ("", "(*", "*)"),
    "Pascal": ("//", "{", "}"),
    "PowerShell": ("#", "<#", "#>"),
    "Racket": (";", "#|", "|#"),
    "Roff": ('.\\"', "", ""),
    "SQL": ("--", "/*", "*/"),
    "Scheme": (";", "#|", "|#"),
    "Standard ML": ("", "(*", "*)"),
    "TeX": ("%", "", ""),
    "VHDL": ("--", "", ""),
    "Vim Script": ('"', "", ""),
    "Visual Basic .NET": ("'", "", ""),
    "WebAssembly": (";;", "(;", ";)"),
    "reStructuredText": (".. ", "", ""),
}
# Marks of comments inside quotes do not count; in these languages an apostrophe is not a quote.
_NO_SINGLE_QUOTES = frozenset({"Rust", "Clojure", "Common Lisp", "Emacs Lisp", "Racket", "Scheme", "Haskell", "Ada"})
_ASSIGNED = r"(?<![\w)\]}=,(\[:+%])"
_PROSE = frozenset({"Markdown", "reStructuredText", "HTML", "XML", "SVG", "Roff", "TeX", "CSS"})


@cache
def _pattern(language: str) -> re.Pattern[str] | None:
    """Finds comments, and strings, in which marks mean nothing. Every alternative ends at the end of the text or
    before, so that a search is linear."""
    if language not in _MARKS:
        return None
    line, begin, end = map(re.escape, _MARKS[language])
    comments, strings = [], []
    if begin:
        comments.append(f"{begin}(?:(?!{end}).)*(?:{end})?")
    if line:
        # in a shell and its like a mark inside of a word is a part of it
        comments.append((r"(?<![\w$\\&{])" if line == re.escape("#") else "") + f"{line}[^\n]*")
    if language == "PHP":
        comments.append(r"(?<!\w)#(?!\[)[^\n]*")
    if language not in _PROSE:
        if language in ("Python", "Cython", "Starlark"):
            strings += [r'"""(?:[^\\]|\\.)*?(?:"""|\Z)', r"'''(?:[^\\]|\\.)*?(?:'''|\Z)"]
        if language in ("Go", "JavaScript", "TypeScript", "TSX"):
            strings.append(r"`(?:[^`\\]|\\.)*(?:`|\Z)")
        if language not in ("Vim Script",):
            strings.append(r'"(?:[^"\\\n]|\\.)*(?:"|$)')
        if language not in _NO_SINGLE_QUOTES and language != "Visual Basic .NET":
            strings.append(r"'(?:[^'\\\n]|\\.)*(?:'|$)")
    whole = "|".join([*(f"(?P<c{number}>{comment})" for number, comment in enumerate(comments)), *strings])
    return re.compile(whole, re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Span:
    """Characters of a text."""

    start: int
    stop: int


def comments(text: str, language: str) -> list[Span] | None:
    """The comments of a text, with their marks, in order; None for a language whose marks are not known.

    Strings are skipped. What only a grammar can distinguish, such as a regular expression from a division in
    JavaScript, is taken for what it looks like. A docstring of Python is a comment: a string that begins a line.
    """
    pattern = _pattern(language)
    if pattern is None:
        return None
    spans = []
    for match in pattern.finditer(text):
        if match.lastgroup is not None or _is_docstring(text, match, language):
            spans.append(Span(match.start(), match.end()))
    return spans


_MAX_INDENT = 200  # characters before a docstring in its line, so that a line of strings is not read for each string


def _is_docstring(text: str, match: re.Match[str], language: str) -> bool:
    if language != "Python" or not match[0].startswith(('"""', "'''")):
        return False
    nearest = max(0, match.start() - _MAX_INDENT)
    begin = text.rfind("\n", nearest, match.start()) + 1
    if (nearest and not begin) or text[begin : match.start()].strip().lower() not in ("", "r", "u"):
        return False
    before = text[max(0, begin - 200) : begin].rstrip()
    # after an operator or a bracket it is a value
    return not before or before[-1] not in "=([{,+%|"


_BLANK = re.compile(r"\s*")
_FIRST_LINES = re.compile(r"(?:#![^\n]*\n)?(?:[^\n]*coding[:=][^\n]*\n)?(?:<\?(?:php|xml)[^\n]*\n?)?")
_OF_LICENSE = re.compile(r"(?i)copyright|licen[cs]e|SPDX-|\(c\)|©|all rights reserved|public domain")
_MAX_HEADER = 20_000  # characters in which a header is looked for


def license_header(text: str, language: str) -> Span | None:
    """The comments at the beginning of a text that mention copyright or a license; None if there are none.

    After a line for the system or the decoder (`#!`, `coding:`, `<?php`) these are the comments up to the first blank
    line or code after one that mentions them; a comment between marks is one. A docstring is not a comment.
    """
    head = text[:_MAX_HEADER]
    pattern = _pattern(language)
    if pattern is None:
        return None
    first_lines = _FIRST_LINES.match(head)
    begin = first_lines.end() if first_lines else 0
    has_license = stop = None
    start = begin
    for match in islice(pattern.finditer(head, begin), 1000):
        between = head[begin : match.start()]
        if between.strip() or match.lastgroup is None:
            break
        if between.count("\n") > 1 and has_license:  # a blank line
            break
        if stop is None or (between.count("\n") > 1 and not has_license):
            start = match.start()
        begin = stop = match.end()
        has_license = has_license or bool(_OF_LICENSE.search(match[0]))
    if not has_license or stop is None:
        return None
    if stop == _MAX_HEADER:
        return None
    return Span(start, stop)


def comment_text(text: str) -> str:
    """A comment without the marks at the ends of its lines."""
    return re.sub(r"(?m)^[\s#/*;%!\"'.\\<>{}|()-]+|(?<![\s#/*;>-])[\s#/*;>-]+$", " ", text)
