"""The public surface beside that of the last release: what differs has a line in the changelog, and every kind of name
has its stability on docs/reference/interfaces.md."""

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest
import yaml

from tests.golden.contents import other_installed
from tests.public.surface import KINDS, NAMES, surface

ROOT = Path(__file__).parents[2]
RELEASED = Path(__file__).with_name("released.txt")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
INTERFACES = (ROOT / "docs/reference/interfaces.md").read_text(encoding="utf-8")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")  # of Keep a Changelog 1.1.0


def releases(changelog: str) -> dict[str, list[str]]:
    """The lines of each release, by what its heading says."""
    parts = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)[1:]
    return {name: text.strip().splitlines() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def name_of(line: str) -> str:
    """The last word of a name: of `recipe Extract.engine = 'blocks'` that is `engine`."""
    return line.partition(" = ")[0].split()[-1].split(".")[-1]


def unnamed(before: list[str], now: list[str], section: str) -> list[str]:
    """What was added, taken away or changed, and whose name the section does not have."""
    named = {*re.findall(r"[\w-]+", section)}
    changed = sorted({*before} ^ {*now})
    return [line for line in changed if not named.issuperset(re.findall(r"[\w-]+", name_of(line)))]


@pytest.mark.extended
@pytest.mark.skipif(bool(other_installed(["typer"])), reason="how options are listed depends on typer")
def test_what_differs_from_the_last_release_is_in_the_changelog():
    before = RELEASED.read_text(encoding="utf-8").splitlines()
    missing = unnamed(before, surface(), "\n".join(releases(CHANGELOG)["[Unreleased]"]))
    assert not missing, f"name in CHANGELOG.md, under Unreleased: {missing}"


def test_a_change_without_a_line_is_found():
    before = ["command run", "command run --quick", "recipe Extract.engine", "variable GRISTMILL_HOME"]
    now = ["command run", "command run --fast", "recipe Extract.engine", "recipe Extract.wide"]
    section = "\n- `gristmill run --fast` in place of `--quick`.\n"
    assert unnamed(before, now, section) == ["recipe Extract.wide", "variable GRISTMILL_HOME"]
    assert unnamed(before, before, "") == []
    assert unnamed(before, now, section + "- `extract: wide`; GRISTMILL_HOME is gone.") == []


def test_another_default_or_type_is_a_change():
    assert unnamed(["recipe MinHash.threshold = 0.8"], ["recipe MinHash.threshold = 0.9"], "") != []
    assert unnamed(["column ledger.value = double"], ["column ledger.value = float"], "- `value` is a float") == []


def test_all_kinds_of_names_are_listed():
    listed = RELEASED.read_text(encoding="utf-8").splitlines()
    assert {line.partition(" ")[0] for line in listed} == {*KINDS}
    for line in (
        "column documents.url = string",
        "column sql.funnel.documents_out = int64",
        "column sql.clusters.cluster_size = int64",
        "command export tokens --for = olmo-core | torchtitan | megatron | nanogpt | nanochat | litgpt | mosaic",
        "format manifest.json.contents",
        "format mixture.json.sources.shards.digest",
        "python Run.recipe",
        "python gristmill.tasks.documents.step.Bound.low",
        "recipe MinHash.threshold = 0.8",
        "rule gopher_quality.words",
        "signal gopher_quality_words",
        "variable GRISTMILL_HOME",
    ):
        assert line in listed


def test_the_page_says_how_stable_each_kind_is():
    kinds = INTERFACES.partition("## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\| (stable|provisional|internal) \|$", kinds, flags=re.MULTILINE)
    assert [kind for kind, _ in rows] == [*KINDS]
    assert not [module for module in NAMES if f"`{module}`" not in INTERFACES]


def test_the_changelog_keeps_its_form():
    unreleased, *released = releases(CHANGELOG).items()
    assert unreleased[0] == "[Unreleased]"
    for heading, lines in released:
        version, day = re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\S+)", heading).groups()
        assert date.fromisoformat(day), version
        assert len(lines) <= 40, f"{version} has {len(lines)} lines: write for users, and leave the rest to git"
        sections = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
        assert sections == [name for name in SECTIONS if name in sections]
    assert released[0][0].startswith(f"[{VERSION}] - ")


def test_the_citation_is_of_this_release():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", VERSION)
    assert {"message", "title", "authors"} <= {*citation}, "the keys that the schema requires"
    assert f"[{VERSION}] - {citation['date-released']}" in releases(CHANGELOG)


@pytest.mark.parametrize("page", ["interfaces.md", "versions.md"])
def test_the_pages_of_releases_are_linked(page):
    assert page in (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert page in (ROOT / "README.md").read_text(encoding="utf-8")
