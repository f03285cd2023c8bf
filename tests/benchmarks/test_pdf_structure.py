"""Headings and tables of PDF documents whose source is known: made by typst, Chromium, LibreOffice and LaTeX.

    python -m pytest -m bench -s tests/benchmarks/test_pdf_structure.py

A maker that is not installed is left out. A heading counts if it is there with its level, a table if it is there with
all of its cells in their rows; cells that are empty or merged away do not count.
"""

import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import pytest

from gristmill.tasks.pdf.document import read

pytestmark = pytest.mark.bench

WORDS = (
    "mill river forest wheel miller stone water village bread harvest morning evening granary transport measure field "
    "because through between although county produce common winter summer bridge gate level book cold"
).split()
Row = list[str | None]  # None: the cell before goes on
Element = tuple[int, str] | list[Row]  # a heading of a level, a paragraph (0), or a table


class Source:
    def __init__(self, *seed: object) -> None:
        self.random = random.Random(" ".join(map(str, seed)))

    def words(self, least: int, most: int) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(least, most)))

    def paragraph(self) -> tuple[int, str]:
        return 0, " ".join(self.words(6, 18).capitalize() + "." for _ in range(self.random.randint(2, 5)))

    def sections(self, title: bool) -> list[Element]:
        found: list[Element] = [(1, self.words(4, 4).capitalize())] if title else []
        for _ in range(4):
            found += [(1 + title, self.words(2, 5).capitalize()), self.paragraph()]
            for _ in range(self.random.randint(0, 3)):
                found += [(2 + title, self.words(2, 5).capitalize()), self.paragraph()]
                for _ in range(self.random.randint(0, 2)):
                    found += [(3 + title, self.words(2, 5).capitalize()), self.paragraph()]
        return found

    def tables(self, cells: str) -> list[Element]:
        """Four tables between paragraphs. Cells are `plain`, `wrapped` over several lines, or some are `merged`."""
        found: list[Element] = [self.paragraph()]
        for _ in range(4):
            rows, columns = self.random.randint(2, 6), self.random.randint(2, 5)
            length = (1, 14) if cells == "wrapped" else (1, 2)
            table: list[Row] = [[self.words(*length) for _ in range(columns)] for _ in range(rows)]
            if cells == "merged" and columns > 2 and rows > 2:
                table[1][1] = None
            found += [table, self.paragraph()]
        return found


def spans(row: Row) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for cell in row:
        found = [*found, (cell, 1)] if cell is not None else [*found[:-1], (found[-1][0], found[-1][1] + 1)]
    return found


def as_typst(source: Sequence[Element], lines: str) -> str:
    stroke = {"all": "1pt", "rows": "(x, y) => (bottom: 0.5pt)", "none": "none"}[lines]
    parts = []
    for each in source:
        if isinstance(each, tuple):
            parts.append("=" * each[0] + " " * bool(each[0]) + each[1])
            continue
        cells = [f"table.cell(colspan: {n})[{cell}]" for row in each for cell, n in spans(row)]
        parts.append(f"#table(columns: (1fr,) * {len(each[0])}, stroke: {stroke}, {', '.join(cells)})")
    return "\n\n".join(parts)


def as_html(source: Sequence[Element], lines: str) -> str:
    rule = {"all": "td, table { border: 1px solid }", "rows": "td { border-bottom: 1px solid }", "none": ""}[lines]
    parts = [f"<html lang=en><meta charset=utf-8><style>table {{ border-collapse: collapse }} {rule}</style><body>"]
    for each in source:
        if isinstance(each, tuple):
            name = f"h{each[0]}" if each[0] else "p"
            parts.append(f"<{name}>{each[1]}</{name}>")
            continue
        rows = ("".join(f"<td colspan={n}>{cell}</td>" for cell, n in spans(row)) for row in each)
        # LibreOffice takes borders from the attribute alone
        border = " border=1" if lines == "all" else ""
        parts.append(f"<table width='90%'{border}>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
    return "".join(parts)


def as_latex(source: Sequence[Element], lines: str) -> str:
    titled = sum(each[0] == 1 for each in source if isinstance(each, tuple)) == 1
    parts = ["\\documentclass{article}\\usepackage[margin=2cm]{geometry}\\usepackage{hyperref}\\begin{document}"]
    for each in source:
        if isinstance(each, tuple):
            level, text = each
            if not level:
                parts.append(f"{text}\n")
            elif titled and level == 1:
                parts.append(f"\\title{{{text}}}\\author{{}}\\date{{}}\\maketitle")
            else:
                parts.append(f"\\{'sub' * (level - 1 - titled)}section{{{text}}}")
            continue
        bar, line = "|" * (lines == "all"), "\\hline\n" * (lines != "none")
        width = f"p{{{0.8 / len(each[0]):.2f}\\textwidth}}"
        rows = []
        for row in each:
            cells = [cell if n == 1 else f"\\multicolumn{{{n}}}{{l{bar}}}{{{cell}}}" for cell, n in spans(row)]
            rows.append(" & ".join(cells) + "\\\\\n")
        body = line + line.join(rows) + line
        columns = bar + bar.join([width] * len(each[0])) + bar
        parts.append(f"\\noindent\\begin{{tabular}}{{{columns}}}\n{body}\\end{{tabular}}\n")
    return "\n".join([*parts, "\\end{document}"])


def run(folder: Path, *command: str) -> None:
    program = shutil.which(command[0]) or pytest.skip(f"needs {command[0]}")
    subprocess.run([program, *command[1:]], cwd=folder, check=True, capture_output=True, timeout=180)


def by_typst(folder: Path, source: Sequence[Element], lines: str) -> bytes:
    typst = pytest.importorskip("typst")
    (folder / "a.typ").write_text(as_typst(source, lines))
    return typst.compile(str(folder / "a.typ"))


def by_chromium(folder: Path, source: Sequence[Element], lines: str) -> bytes:
    (folder / "a.html").write_text(as_html(source, lines))
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", "--print-to-pdf=a.pdf")
    run(folder, "chromium", *flags, "a.html")
    return (folder / "a.pdf").read_bytes()


def by_libreoffice(folder: Path, source: Sequence[Element], lines: str) -> bytes:
    (folder / "a.html").write_text(as_html(source, lines))
    run(folder, "soffice", "--headless", "--convert-to", "pdf:writer_web_pdf_Export", "a.html")
    return (folder / "a.pdf").read_bytes()


def by_latex(folder: Path, source: Sequence[Element], lines: str) -> bytes:
    (folder / "a.tex").write_text(as_latex(source, lines))
    for _ in range(2):  # the outline is written by the first
        run(folder, "pdflatex", "-interaction=batchmode", "a.tex")
    return (folder / "a.pdf").read_bytes()


MAKERS = (by_typst, by_chromium, by_libreoffice, by_latex)
Maker = Callable[[Path, Sequence[Element], str], bytes]


@pytest.mark.parametrize("maker", MAKERS)
def test_levels_of_headings(tmp_path: Path, maker: Maker) -> None:
    counts: Counter[str] = Counter()
    for seed in range(20, 24):
        for title in (False, True):
            source = Source("headings", seed, title).sections(title)
            text = read(maker(tmp_path, source, "none"), True)["text"]
            found = Counter(re.findall(r"^(#+) (?:[\d.]+ )?(.*)$", text, re.MULTILINE))
            wanted = Counter(("#" * each[0], each[1]) for each in source if isinstance(each, tuple) and each[0])
            counts += Counter(wanted=wanted.total(), right=(found & wanted).total(), found=found.total())
    print(f"\n{maker.__name__}: of {counts['wanted']} headings {counts['right']} right, {counts['found']} found")
    assert counts["right"] >= 0.98 * max(counts["wanted"], counts["found"])


def written(text: str) -> list[list[list[str]]]:
    """The tables of a Markdown text."""
    tables = []
    for is_table, group in groupby(text.split("\n"), lambda line: line.startswith("| ")):
        if is_table:
            rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in group if not line.startswith("| ---")]
            tables.append([[cell for cell in row if cell] for row in rows])
    return tables


@pytest.mark.parametrize("maker", MAKERS)
def test_tables_with_and_without_lines(tmp_path: Path, maker: Maker) -> None:
    print()
    for lines in ("all", "rows", "none"):
        if (maker, lines) == (by_libreoffice, "rows"):
            continue  # it takes no borders from a style
        counts: Counter[str] = Counter()
        for cells in ("plain", "wrapped", "merged"):
            for seed in (20, 21):
                source = Source("tables", seed, lines, cells).tables(cells)
                found = written(read(maker(tmp_path, source, lines), True)["text"])
                wanted = [
                    [[c for c in row if c is not None] for row in each] for each in source if isinstance(each, list)
                ]
                counts += Counter(wanted=len(wanted), whole=sum(each in found for each in wanted), found=len(found))
        whole = f"{counts['whole']} of {counts['wanted']} tables whole, {counts['found']} found"
        print(f"{maker.__name__}, lines {lines}: {whole}")
        if lines == "all":
            assert counts["whole"] >= 0.8 * counts["wanted"]
