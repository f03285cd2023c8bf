"""Crawled texts, by the commands that show them, on a real terminal."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.recipe.recipe import load
from tests.corpora import context

pytestmark = pytest.mark.extended

# a title, a cleared screen, a colour by C1, a reversed line, a status report that a shell would read as typed
HOSTILE = "\x1b]0;owned\x07 \x1b[2J \x9b31m \u202egnihton\u202c \x1b[6n \x7f [bold]:warning:[/bold] [link=http://x]"
FORGED = "https://a.example/\x1b[2J\nforged: line\u2028"
COMMANDS = """
import sys
from gristmill.flows.cli import app, main
for arguments in {arguments!r}:
    sys.argv = ["gristmill", *arguments]
    try:
        main()
    except SystemExit as ended:
        pass
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("hostile")
    words = "the quick brown fox jumps over the lazy dog and that is to be of have with "
    texts = [HOSTILE, f"{words * 10}\n{HOSTILE}\n{words * 10}"]
    rows = [{"text": text, "url": FORGED, "id": f"doc{n}\x1b[2J\nforged"} for n, text in enumerate(texts)]
    (folder / "rows\x1b[2J.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"name": "web", "jsonl": [f"{folder}/*.jsonl"], "url_column": "url", "id_column": "id"}
    steps = [{"step": "extract"}, {"step": "where", "keep": "characters > 500"}]
    given = {"name": "hostile", "sources": [source], "steps": steps, "mixture": {"weights": {"web": 1}}}
    (folder / "home").mkdir()
    (folder / "home" / "recipe.yaml").write_text(json.dumps(given))
    recipe = load(str(folder / "home" / "recipe.yaml"))
    *_, last = curate(context(str(folder / "home")), recipe)
    assert last.left.stages[-1].step_counts[-1]["rows_out"] == 1
    run = RunRecorder(str(folder / "home"), recipe.name, flow="corpus", recipe=recipe.model_dump(mode="json"))
    run.add(*(stage.label for stage in last.left.stages))
    run.finished()
    return str(folder / "home")


def on_a_terminal(home: str, *arguments: tuple[str, ...]) -> str:
    """What the commands write to a terminal that is no more than lines and letters."""
    controller, terminal = pty.openpty()
    environment = os.environ | {"GRISTMILL_HOME": home, "TERM": "dumb", "COLUMNS": "100"}
    script = COMMANDS.format(arguments=list(arguments))
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        written = b""
        try:
            while piece := os.read(controller, 65536):
                written += piece
        except OSError:
            pass  # the terminal's other side is closed
        os.close(controller)
    assert process.returncode == 0, written
    return written.decode().replace("\r\n", "\n")


def test_no_command_of_a_text_reaches_the_terminal(home):
    shown = on_a_terminal(
        home,
        ("explain", "show", "documents"),
        ("explain", "show", "dropped"),
        ("explain", "lineage", "web"),
        ("explain", "lineage", "\x1b]0;owned\x07\x9b"),
    )
    assert not re.search("[^\n\t -~\xa0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]", shown)
    assert not re.search("^forged", shown, re.MULTILINE)
    assert shown.count(r"\x1b]0;owned") >= 3 and r"\x9b31m \u202egnihton\u202c \x1b[6n \x7f" in shown
    assert (
        "[bold]:warning:[/bold] [link=http://x]" in shown and r"url: https://a.example/\x1b[2J\nforged: line" in shown
    )


def test_no_command_of_a_queried_value_reaches_the_terminal_and_a_file_has_all_of_it(home):
    recipe, query = f"{home}/recipe.yaml", "select id, url, text from documents"
    shown = on_a_terminal(
        home, ("sql", recipe, query, "--csv"), ("sql", recipe, query, "--json"), ("sql", recipe, query)
    )
    assert not re.search("[^\n\t\r -~\xa0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]", shown)
    assert r"\x1b]0;owned" in shown and r"\u009b31m \u202egnihton" in shown
    read = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert any(HOSTILE in row["text"] for row in read)
    command = [sys.executable, "-c", COMMANDS.format(arguments=[("sql", recipe, query, "--csv")])]
    written = subprocess.run(command, env=os.environ | {"GRISTMILL_HOME": home}, capture_output=True, check=True)
    assert HOSTILE in written.stdout.decode()
