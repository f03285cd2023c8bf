"""All long tests, a file at a time, with a table of what they gave: `make slow`.

    python -m tests.slow                     every file with tests marked slow, service or docker, then the properties
    python -m tests.slow engine training     the files whose path holds one of these words

A file that fails does not keep the others from running; its output is shown at once. The properties are searched at
random, ten times as long as in the default run: hypothesis prints a failing example as a line to add.
"""

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

LONG = "slow or service or docker"
PROPERTIES = ("-m", "hypothesis and not slow and not bench", "--hypothesis-profile", "random", "--examples-times", "10")
OUTCOMES = ("passed", "failed", "error", "skipped")
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def long_files() -> list[str]:
    """The files that have long tests, by path. Raises CalledProcessError if the tests cannot be collected."""
    found = subprocess.run(
        [*_PYTEST, "--collect-only", "-m", LONG], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    return sorted({line.split("::")[0] for line in found if "::" in line})


def outcomes(report: Path) -> Counter[str]:
    """How many tests of a JUnit report had which outcome."""
    counts: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        tags = {child.tag for child in case}
        of = {"failure": "failed", "error": "error", "skipped": "skipped"}
        counts[next((outcome for tag, outcome in of.items() if tag in tags), "passed")] += 1
    return counts


def run(arguments: tuple[str, ...]) -> tuple[Counter[str], float]:
    """Outcomes of a run of pytest and its seconds. One that made no report counts as an error."""
    with tempfile.TemporaryDirectory() as folder:
        report, began = Path(folder) / "report.xml", time.monotonic()
        subprocess.run([*_PYTEST, "--tb=short", "-rs", f"--junitxml={report}", *arguments], check=False)
        seconds = time.monotonic() - began
        return (outcomes(report) if report.exists() else Counter({"error": 1})), seconds


def main(words: list[str]) -> int:
    table, total = Table("tests", *OUTCOMES, "seconds"), Counter[str]()
    pieces = [(path, (path, "-m", LONG)) for path in long_files()] + [("properties, at random", PROPERTIES)]
    for name, arguments in pieces:
        if words and not any(word in name for word in words):
            continue
        print(f"== {name}", flush=True)
        counts, seconds = run(arguments)
        total += counts
        table.add_row(name, *(str(counts[outcome] or "") for outcome in OUTCOMES), f"{seconds:.0f}")
    table.add_section()
    table.add_row("together", *(str(total[outcome] or "") for outcome in OUTCOMES), "")
    Console(width=110).print(table)
    return 1 if total["failed"] + total["error"] or not total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
