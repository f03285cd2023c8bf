"""The documentation: the site builds without a broken link, and its pages are written plainly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import words

ROOT = Path(__file__).parents[1]


def built(folder: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--config-file",
        str(config),
        "--site-dir",
        str(folder),
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.extended
def test_the_site_builds_strictly_and_is_searched(tmp_path):
    done = built(tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(tmp_path).with_suffix(".md").as_posix() for path in tmp_path.rglob("*.html")}
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written <= pages
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {each["location"].partition("#")[0] for each in index["docs"]} >= {
        "guides/what-if.html",
        "reference/recipe.html",
    }


@pytest.mark.extended
@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("[a guide](guides/none.md)", "guides/none.md"),
        ("[a guide](more.md#no-such-heading)", "no-such-heading"),
    ],
)
def test_a_broken_link_fails_the_build(tmp_path, page, message):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# A page\n\n{page} and [more](more.md)\n")
    (tmp_path / "docs/more.md").write_text("# More\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:\n  - index.md")[0]
    (tmp_path / "mkdocs.yml").write_text(settings + "nav: [index.md, more.md]\n")
    done = built(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0 and message in done.stderr


@pytest.mark.extended
def test_pages_are_written_plainly(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert words.main(["docs", "README.md"]) == 0, capsys.readouterr().out


def test_long_sentences_and_dialect_are_noticed(tmp_path, capsys):
    plain = "Small files are grouped into shards. The default is 16 MiB.\n"
    (tmp_path / "plain.md").write_text(f"# Files\n\n{plain}\n    behind anew\n\n```sh\nbeside\n```\n")
    assert words.main([str(tmp_path)]) == 0
    (tmp_path / "dialect.md").write_text(
        "# Files\n\n| key | what it is |\n| - | - |\n| `a` | stands behind that of b |\n"
    )
    assert words.main([str(tmp_path)]) == 1
    assert "stands" in capsys.readouterr().out
    (tmp_path / "dialect.md").write_text(f"# Files\n\nA sentence of {'many ' * 20}words is too long for its page.\n")
    assert words.main([str(tmp_path)]) == 1


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
