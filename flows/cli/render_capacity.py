"""What a whole crawl would take, for the terminal."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from gristmill.flows.reports.capacity import Capacity


def capacity_table(capacity: "Capacity") -> Table:
    """A row for each stage."""
    table = Table("stage", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("documents in", "documents out", "core hours", "hours", "GB"):
        table.add_column(name, justify="right")
    for row in capacity.stages:
        counts = ["" if n is None else f"{n:,}" for n in (row.documents_in, row.documents_out)]
        times = ["not measured" if n is None else f"{n:,.1f}" for n in (row.core_hours, row.hours)]
        table.add_row(row.stage, *counts, *times, f"{row.bytes / 1e9:,.1f}")
    return table


def capacity_lines(capacity: "Capacity") -> list[str]:
    """Sums, what limits, memory, requests and money, and what they were measured on."""
    machines, prices = capacity.machines, capacity.prices
    of = (
        f"{machines.cores:,} cores"
        if machines.number == 1
        else f"{machines.number:,} machines of {machines.cores:,} cores"
    )
    tokens = "" if capacity.tokens is None else f", {capacity.tokens / 1e9:,.1f} billion tokens"
    lines = [
        f"{capacity.documents:,} pages: {capacity.core_hours:,.0f} core hours, {capacity.hours:,.1f} hours with {of}, "
        f"{capacity.bytes / 1e12:,.2f} TB in the home{tokens}"
    ]
    if (limit := capacity.limit) is not None:
        how = "in one job" if limit.alone else f"{limit.jobs:,} jobs, {limit.workers:,} at a time"
        lines.append(f"longest: {limit.phase} of {limit.stage}, {limit.hours:,.1f} hours, {how}")
    if (largest := capacity.largest) is not None:
        memory = f"{(largest.memory or 0) / 1e9:,.1f} GB"
        lines.append(f"most memory: {largest.phase} of {largest.stage}, {memory} a job with its worker")
        if machines.memory is not None and (largest.memory or 0) > machines.memory:
            lines.append(f"that is more than a machine has: {machines.memory / 1e9:,.0f} GB")
    lines.append(
        f"{capacity.jobs:,} jobs, which keep flow and scheduler busy for {capacity.dispatching:,.1f} hours, and "
        f"{capacity.requests / 1e6:,.1f} million requests to the store"
    )
    if prices.core_hour or prices.terabyte_month or prices.million_requests:
        lines.append(
            f"{capacity.computing:,.2f} for the cores, {capacity.requesting:,.2f} for the requests, "
            f"{capacity.storing:,.2f} a month for the home"
        )
    if capacity.unmeasured:
        lines.append(f"without the time of {', '.join(capacity.unmeasured)}, which was not measured")
    return [*lines, f"by a run over {capacity.measured:,} pages; without the training"]
