"""Columns for the terminal: two lines each, what it is and which values it has."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gristmill.storage.printable import one_line, printable

if TYPE_CHECKING:
    from gristmill.flows.reports.columns import Columns, DescribedColumn

_CHARACTERS = 40  # of a text


def column_lines(found: "Columns") -> Iterator[str]:
    """What stands in the terminal: a head, then the columns in their order."""
    where = f"in the place of `{found.at}`" if found.at else "behind all steps"
    of = "no run of it is finished, so no values" if found.documents is None else f"{found.documents:,} documents"
    yield f"{found.recipe}, {where}: {len(found.columns):,} columns; {of}"
    widths = [max(len(cell) for cell in column) for column in zip(*map(_cells, found.columns), strict=True)]
    for one in found.columns:
        head = "  ".join(cell.ljust(width) for cell, width in zip(_cells(one), widths, strict=True))
        yield f"{head}  {one.meaning}"
        if values := _values(one):
            yield f"    {values}"
    if found.documents is None and found.remark:
        yield printable(found.remark)


def _cells(one: "DescribedColumn") -> tuple[str, str, str]:
    return one.name, one.kind or "?", one.step or "-"


def _values(one: "DescribedColumn") -> str:
    if one.nulls is None:
        return ""
    parts = [f"{one.nulls:.1%} missing"]
    if one.quantiles:
        parts.append(", ".join(f"{share:.0%} {value:.4g}" for share, value in one.quantiles.items()))
    if one.common:
        shown = [f"{one_line(text[:_CHARACTERS])!r} {share:.1%}" for text, share in one.common]
        parts.append(", ".join(shown) + (f" (each up to {one.error:.1%} more)" if one.error else ""))
    return "; ".join(parts)
