"""docs/reference/versions.md beside the versions that the code declares."""

import orjson
import pytest

from gristmill.flows.cli.app import RENAMED
from tests.homes.versions import PAGE, ROOT, SHARED, changes_beside, page, stages, steps


@pytest.mark.extended
def test_the_page_has_the_versions_of_the_code():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.homes.versions"


def test_the_versions_are_those_of_the_golden_outputs():
    """Which are of what stages declare when they are made, whatever their source looks like."""
    table = orjson.loads((ROOT / "tests/golden/table.json").read_bytes())
    made = [(name.split()[0], row) for rows in table.values() for name, row in rows.items()]
    working = SHARED | {name: step.version for name, step in steps().items()}
    declared = {name: each.version for name, each in stages().items()}
    assert {(name, row["version"]) for name, row in made if row["version"] != declared.get(name, 1)} == set()
    raised = {(name, version) for _, row in made for name, version in row["versions"].items() if version != 1}
    assert {(name, version) for name, version in raised if name in working and version != working[name]} == set()
    assert {name for name, version in working.items() if version > 1} <= {name for name, _ in raised}


@pytest.mark.extended
@pytest.mark.parametrize("declared", [stages, steps])
def test_each_version_has_a_comment(declared):
    without = {
        f"{name} {version}"
        for name, each in declared().items()
        for version in range(2, each.version + 1)
        if not each.changes.get(version)
    }
    assert not without, "say beside the version what changed: # 2: ..."


def test_comments_of_versions_are_read():
    lines = ["    x = 1", "    # 2: a thing; at 10: 30,", "    # and more", "    # 3: another", "    work_version = 3"]
    assert changes_beside(lines, 5) == {2: "a thing; at 10: 30, and more", 3: "another"}
    assert changes_beside(["version=2,  # 2: a thing"], 1) == {2: "a thing"}
    assert changes_beside(["version=1,"], 1) == {}


def test_the_page_names_old_commands():
    text = PAGE.read_text(encoding="utf-8")
    assert bool(RENAMED) == ("`RENAMED` in `flows/cli/app.py`" in text)
