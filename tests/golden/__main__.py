"""`python -m tests.golden`: run rows, and say what differs from the table.

    --update            rewrite the table with what was made; of the other rows it stays as it is
    --only NAME,...     the rows that cover one of these steps or stages, or are called so
    --slow              rows that are not in the default test run, too
    --home DIR          a folder for the fixture and the stages, which is kept; else a temporary one

The exit code is 1 if something differs, or a row has failed.
"""

import argparse
import logging
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from tests.golden import table as tables
from tests.golden.run import Table


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.golden", description="compare what stages make with the table")
    parser.add_argument("--update", action="store_true", help="rewrite the table")
    parser.add_argument("--only", default="", help="names of steps, stages or rows, separated by commas")
    parser.add_argument("--slow", action="store_true", help="slow rows, too")
    parser.add_argument("--home", help="a folder that is kept")
    parser.add_argument("--threads", type=int, default=1, help="that do the jobs; no digest depends on it")
    asked = parser.parse_args(given)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    from tests.golden.compare import differences
    from tests.golden.rows import ROWS

    try:
        rows = tables.chosen(ROWS, {name for name in asked.only.split(",") if name}, asked.slow)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        found, failed = run(Path(asked.home or scratch), rows, asked.threads)
    known = tables.read()
    lines = differences(known, found, {row.name: row.name in found or row.name in failed for row in ROWS})
    lines += [f"row {name} has failed: {why}" for name, why in failed.items()]
    for line in lines:
        print(line)
    others = sorted({entry["others"] for entries in found.values() for entry in entries.values() if "others" in entry})
    if others:
        print(f"not compared, since releases differ from those of constraints.txt: {'; '.join(others)}")
    if asked.update and others:
        return 1
    if asked.update:
        kept = {row.name for row in ROWS}
        tables.write({name: entries for name, entries in (known | found).items() if name in kept})
        print(f"{len(found)} rows of the table were written")
    return 1 if failed or (lines and not asked.update) else 0


def run(folder: Path, rows: Sequence, threads: int = 1) -> tuple[Table, dict[str, str]]:
    """What rows make in a folder; and by name what was raised in those that failed."""
    from tests.golden.fixture import write
    from tests.golden.run import Golden

    golden = Golden(str(folder / "home"), write(folder / "fixture"), threads)
    found: Table = {}
    failed: dict[str, str] = {}
    for row in rows:
        try:
            found[row.name] = golden.entries(row.make, row.floats)
        except Exception as error:  # of any kind: a row that fails is a difference as others are
            failed[row.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return found, failed


if __name__ == "__main__":
    sys.exit(main())
