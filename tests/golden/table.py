"""The table of what stages have made, and which rows are run against it."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.golden.rows.row import Row
from tests.golden.run import Table

TABLE = Path(__file__).with_name("table.json")


def read(path: Path = TABLE) -> Table:
    """By row and stage the versions and contents; empty where there is no table yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(table: Table, path: Path = TABLE) -> None:
    """A line for each stage, in the order of names, so that a change is a change of few lines."""
    rows = []
    for name in sorted(table):
        entries = [
            f"  {json.dumps(label)}: {json.dumps(entry, sort_keys=True)}" for label, entry in table[name].items()
        ]
        rows.append(f" {json.dumps(name)}: {{\n" + ",\n".join(entries) + "\n }")
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def chosen(rows: Sequence[Row], names: set[str], slow: bool) -> list[Row]:
    """The rows that cover one of the names, or have it, or all; without `slow` the quick ones alone. Raises ValueError
    for a name that no row has or covers."""
    if unknown := names - {name for row in rows for name in (*row.covers, row.name)}:
        raise ValueError(f"no row covers or is named {', '.join(sorted(unknown))}")
    found = [row for row in rows if not names or names & {*row.covers, row.name}]
    return [row for row in found if slow or not row.slow]
