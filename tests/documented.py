"""The commands that README.md and docs/ show."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_SETTING = re.compile(r"[A-Z][A-Z0-9_]*=\S*$")


@dataclass(frozen=True)
class Documented:
    """A command of ours as a page shows it: its settings of the environment, and what comes behind `gristmill`."""

    page: str
    line: int
    environment: dict[str, str]
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {' '.join(self.arguments)}"


def commands() -> list[Documented]:
    """All in indented blocks, lines that end in a backslash joined, without comments. Raises ValueError for a line that
    no shell reads."""
    return [each for page in PAGES for each in _of(page)]


def _of(page: Path) -> list[Documented]:
    found, lines = [], page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.startswith("    "):
            continue
        at = number
        while line.endswith("\\") and at < len(lines):
            line = line[:-1] + lines[at]
            at += 1
        if "gristmill" not in line:
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue  # prose, or another language
        environment = {}
        while words and _SETTING.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        if words and words[0] in ("gristmill", ".venv/bin/gristmill"):
            found.append(Documented(page.name, number, environment, tuple(words[1:])))
    return found
