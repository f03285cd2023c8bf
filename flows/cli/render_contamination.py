"""What `contamination` prints."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from flows.reports.contamination import Contamination

_SHOWN = 300  # characters of an example


def benchmarks_table(found: Contamination) -> Table:
    """A row for each benchmark."""
    table = Table()
    table.add_column("benchmark")
    for name in ("items", "judged", "dirty", "of judged", "documents", "of all"):
        table.add_column(name, justify="right")
    for row in found.benchmarks:
        table.add_row(
            row.benchmark,
            *(f"{count:,}" for count in (row.items, row.judged, row.dirty)),
            f"{row.share:.2%}",
            f"{row.documents:,}",
            f"{row.shared:.3%}",
        )
    return table


def remarks(found: Contamination) -> Iterator[Text]:
    """What the table does not say: the sum, examples, and where the rest is."""
    yield Text(f"{found.holding:,} of {found.documents:,} documents hold an item of a benchmark.")
    for one in found.examples:
        shown = " ".join(one.found.split())
        cut = "..." if len(shown) > _SHOWN else ""
        yield Text(f"{one.benchmark}:{one.item} in {one.document}, score {one.score:.2f}: {shown[:_SHOWN]}{cut}")
    yield Text(f"items, clean and dirty ones apart: {found.split}")
    yield Text(f"every item with its documents and score: {found.items}")
