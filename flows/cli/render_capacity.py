"""What a whole crawl would take, as a table and sentences."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

from flows.reports.capacity import Capacity


def capacity_table(capacity: Capacity) -> Table:
    """A row for each stage."""
    table = Table("stage", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("documents in", "documents out", "core hours", "GB in the home"):
        table.add_column(name, justify="right")
    for row in capacity.stages:
        counts = ["" if n is None else f"{n:,}" for n in (row.documents_in, row.documents_out)]
        hours = "not measured" if row.core_hours is None else f"{row.core_hours:,.1f}"
        table.add_row(row.stage, *counts, hours, f"{row.bytes / 1e9:,.1f}")
    return table


def capacity_lines(capacity: Capacity, cores: int) -> list[str]:
    """Sums, time and money, and what they were measured on."""
    tokens = "" if capacity.tokens is None else f", {capacity.tokens / 1e9:,.1f} billion tokens"
    lines = [
        f"{capacity.documents:,} pages: {capacity.core_hours:,.0f} core hours, "
        f"{capacity.core_hours / cores:,.1f} hours with {cores:,} cores, {capacity.bytes / 1e12:,.2f} TB in the home"
        f"{tokens}"
    ]
    if capacity.core_hour or capacity.terabyte_month:
        lines.append(f"{capacity.computing:,.2f} for the cores, {capacity.storing:,.2f} a month for the home")
    if capacity.unmeasured:
        lines.append(f"without the time of {', '.join(capacity.unmeasured)}, which was not measured")
    return [*lines, f"by a run over {capacity.measured:,} pages, in proportion; without the training"]
