"""The funnel that README.md shows, from a finished demo: `python -m tests.readme_funnel` writes it.

GRISTMILL_HOME=FOLDER gristmill demo
GRISTMILL_HOME=FOLDER python -m tests.readme_funnel
"""

from collections.abc import Iterable
from pathlib import Path

from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.funnel import FunnelRow

README = Path(__file__).parents[1] / "README.md"
_HEAD = ("step", "documents", "kept", "tokens", "top reasons for drops")
_SHOWN = 2  # reasons of a step, so that a row fits a page


def rows(steps: Iterable[FunnelRow], tokens: int, estimated: object) -> list[tuple[str, ...]]:
    """The cells of the funnel, with its head. `estimated`: tokens of so many characters."""
    found: list[tuple[str, ...]] = [_HEAD]
    for row in steps:
        kept = "-" if row.kept is None else f"{row.kept:.1%}"
        size = ["-" if c is None else f"~{estimated(c) / 1e3:,.0f}k" for c in (row.characters_in, row.characters_out)]
        reasons = [f"{rule} {count:,}" for rule, count in row.reasons.items()]
        more = ", ..." if len(reasons) > _SHOWN else ""
        flow = f"{row.documents_in:,} → {row.documents_out:,}"
        found.append((row.name, flow, kept, " → ".join(size), ", ".join(reasons[:_SHOWN]) + more))
    return [*found, ("tokens", f"{row.documents_out:,}", "100.0%", f"{tokens:,}", "")]


def lines(cells: list[tuple[str, ...]]) -> list[str]:
    """The cells in columns, indented as a block of code."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    found = []
    for step, *numbers, reasons in cells:
        shown = [step.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=False))]
        found.append(("    " + "  ".join([*shown, reasons])).rstrip())
    return found


def written() -> tuple[list[str], int, int]:
    """The lines of README.md, and from and up to which of them the funnel stands."""
    readme = README.read_text(encoding="utf-8").splitlines()
    begin = next(at for at, line in enumerate(readme) if line.split()[:2] == list(_HEAD[:2]))
    end = next(at for at in range(begin, len(readme)) if not readme[at])
    return readme, begin, end


def main() -> None:
    report = finished("demo")
    assert report.tokens is not None, "the demo makes tokens"
    readme, begin, end = written()
    readme[begin:end] = lines(rows(report.steps, report.tokens, report.estimated_tokens))
    README.write_text("\n".join(readme) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
