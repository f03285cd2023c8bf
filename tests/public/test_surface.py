"""The public surface beside that of the last release: what differs has a line in the changelog."""

import re
from pathlib import Path

from tests.public.surface import surface

RELEASED = Path(__file__).with_name("released.txt")
CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def unreleased(changelog: str) -> str:
    """The section of what no release has yet."""
    return changelog.partition("## Unreleased")[2].partition("\n## ")[0]


def unnamed(before: list[str], now: list[str], section: str) -> list[str]:
    """What was added, taken away or changed, and whose name the section does not have."""
    named = {*re.findall(r"[\w-]+", section)}
    changed = sorted({*before} ^ {*now})
    return [line for line in changed if not named.issuperset(re.findall(r"[\w-]+", line.split()[-1].split(".")[-1]))]


def test_what_differs_from_the_last_release_is_in_the_changelog():
    before = RELEASED.read_text(encoding="utf-8").splitlines()
    missing = unnamed(before, surface(), unreleased(CHANGELOG.read_text(encoding="utf-8")))
    assert not missing, f"name in CHANGELOG.md, under Unreleased: {missing}"


def test_a_change_without_a_line_is_found():
    before = ["command run", "command run --quick", "recipe Extract.engine", "variable GRISTMILL_HOME"]
    now = ["command run", "command run --fast", "recipe Extract.engine", "recipe Extract.wide"]
    section = "\n- `gristmill run --fast` in place of `--quick`.\n"
    assert unnamed(before, now, section) == ["recipe Extract.wide", "variable GRISTMILL_HOME"]
    assert unnamed(before, before, "") == []
    assert unnamed(before, now, section + "- `extract: wide`; GRISTMILL_HOME is gone.") == []
