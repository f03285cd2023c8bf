"""Tables of reports, each described once: the terminal, HTML pages and Markdown are written from one description."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup


class Column(NamedTuple):
    """`form`: of its numbers, as Python's `format` reads it; columns of numbers are aligned to the right."""

    name: str
    is_number: bool
    form: str


class Table(NamedTuple):
    """`columns`: names. A # before a name marks a column of numbers, `|` and a format after it say how its values are
    written: `#share|.1%`. `rows`: plain values, None for no value; a pair of numbers is an interval. A column without a
    name, or with SVG, holds pictures, which only pages show."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""

    def texts(self) -> tuple[list[Column], list[list[str]]]:
        """The columns that are no pictures, and their cells as text."""
        pictures = {at for row in self.rows for at, value in enumerate(row) if isinstance(value, Markup)}
        columns = [(at, column(name)) for at, name in enumerate(self.columns) if name and at not in pictures]
        rows = [[f"{cell(row[at], one.form)}" for at, one in columns if at < len(row)] for row in self.rows]
        return [one for _, one in columns], rows

    def markdown(self) -> str:
        """The table in Markdown."""
        columns, rows = self.texts()
        rule = ["---:" if one.is_number else "---" for one in columns]
        cells = [[" ".join(value.replace("|", "/").split()) for value in row] for row in rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in ([one.name for one in columns], rule, *cells))


def column(text: str) -> Column:
    """The column that an entry of `Table.columns` describes."""
    name, _, form = text.rpartition("|") if "|" in text else (text, "", "")
    return Column(name.removeprefix("#"), name.startswith("#"), form)


def cell(value: Any, form: str = "") -> Any:
    """A value as it is written: numbers in a form, by default with their thousands apart and floats to four digits;
    other values as text, of which at most 300 characters; pictures as they are."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, tuple):
        low, high = value
        return "" if low is None else span(low, high, form)
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format(value, form or (".4g" if isinstance(value, float) else ","))
    return short(str(value))


def span(low: float, high: float, form: str = ".2%") -> str:
    """The two ends of an interval in words; `form`: of a number, as Python's `format` reads it."""
    return f"{format(low, form)} to {format(high, form)}"


def short(value: str | None, characters: int = 300) -> str:
    """The beginning of a title or an address, which a page may have made as long as it likes."""
    if value is None:
        return ""
    return value if len(value) <= characters else f"{value[:characters]}…"


def listed(counts: Mapping[str, int], most: int = 0) -> str:
    """Names with their counts, all or the first ones: `web 1,200, news 30`."""
    return ", ".join(f"{name} {count:,}" for name, count in [*counts.items()][: most or None])
