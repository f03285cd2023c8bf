"""The pages that the code knows: each is current, its examples are those of the help, and man reads the man page."""

import re
import shutil
import subprocess

import pytest

from gristmill.flows.cli.app import shell_lines
from gristmill.flows.machine.variables import variables
from gristmill.flows.recipe.steps import document_steps
from gristmill.flows.reports.rules import books
from gristmill.storage import schema
from tests.documented import ROOT, SHELLS, helps
from tests.golden.contents import other_installed
from tests.reference_pages import PAGES
from tests.reference_pages.commands import WIDTH

MAN_PAGE = "docs/gristmill.1"


def written(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.skipif(bool(other_installed(["typer"])), reason="how options are listed depends on typer")
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_current(path):
    assert written(path) == PAGES[path](), f"{path} is outdated. Write all pages: python -m tests.reference_pages"


@pytest.mark.parametrize("path", [path for path in PAGES if path.endswith(".md")])
def test_a_page_begins_with_what_it_lists_and_has_commands_in_blocks_of_sh(path):
    title, note, first, *others = written(path).split("\n\n")
    assert title.startswith("# ") and "python -m tests.reference_pages" in note
    assert first.startswith("This page lists ") and first.endswith(".") and first.count(". ") == 0
    languages = re.findall(r"^```(\w+)$", "\n\n".join(others), re.MULTILINE)
    assert {*languages} <= {*SHELLS, "text", "yaml"} and "sh" in languages
    assert f"reference/{path.rpartition('/')[2]}" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_page_of_commands_has_each_command_with_its_options_and_examples():
    page = written("docs/reference/commands.md")
    sections = dict(zip(*[iter(re.split(r"^##+ gristmill (.+)$", page, flags=re.MULTILINE)[1:])] * 2, strict=True))
    assert [*sections] == [" ".join(path) for path in helps() if path]
    for path, command in helps().items():
        if not path or hasattr(command, "commands"):
            continue
        for parameter in command.params:
            for name in parameter.opts if parameter.param_type_name == "option" else ():
                assert re.search(rf"^\| .*`{name}[ `]", sections[" ".join(path)], re.MULTILINE), name
        block = "\n".join(line for example in command.examples for line in shell_lines(example, WIDTH))
        assert f"```sh\n{block}\n```" in sections[" ".join(path)]


def test_the_other_pages_have_each_rule_column_and_setting():
    rules, columns, settings = (written(f"docs/reference/{name}.md") for name in ("rules", "columns", "settings"))
    for book in books(""):
        section = rules.partition(f"## {book.step}\n")[2].partition("\n## ")[0]
        for row in (*book.cuts, *book.rows):
            assert not row.rule or f"\n| `{row.rule}` |" in section, (book.step, row.rule)
    signals = [signal.name for step in document_steps().values() for signal in step.signals]
    for name in (*schema.DOCUMENTS.names, *schema.LEDGER.names, *schema.EDITS.names, *signals):
        assert f"\n| `{name}` |" in columns, name
    for each in variables({}):
        assert f"\n| `{each.name}` |" in settings, each.name


def test_the_man_page_has_its_sections_and_each_command():
    lines = written(MAN_PAGE).splitlines()
    headings = [line for line in lines if line.startswith((".TH ", ".SH "))]
    assert headings[:3] == ['.TH GRISTMILL 1 "" "Gristmill" "User Commands"', ".SH NAME", ".SH SYNOPSIS"]
    assert [line.removeprefix(".SS gristmill ") for line in lines if line.startswith(".SS ")] == [
        " ".join(path) for path in helps() if path
    ]
    requests = {line.split()[0] for line in lines if line.startswith(".")}
    assert requests == {'.\\"', ".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".RS", ".RE", ".nf", ".fi"}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_reads_the_man_page_without_a_warning():
    command = ["groff", "-man", "-Tutf8", "-ww", ROOT / MAN_PAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stderr
    text = re.sub(r"\x1b\[\d*m|.\x08", "", done.stdout)
    assert 'gristmill sql recipe.yaml "select source, count(*) from documents' in text
    assert "--no-dropped" in text and "gristmill explain show" in text
