"""Commands in the documentation and examples of the help run: each in a folder that has what it names."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import yaml

from tests.documented import Documented, commands, examples
from tests.planted.text import pydoc_paragraphs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

COMMANDS = [*commands(), *examples()]
# What is not run here: it trains for long, or asks for a machine, a server or files that no page makes. Their options,
# and the rules, steps and columns that they name, are read by tests/flows/cli/test_documented_commands.py.
LEFT = {
    r"decide (ablate|agreement|mix|noise|scale) (?!recipe\.yaml.*--plan).*|demo --ablate": "models are trained, from "
    "minutes to hours",
    r"decide transfer --widths .*": "models are trained, for minutes",
    r"demo.*|home compile": "other tests run them, and they take minutes",
    r"home (automations.*|doctor)|train join .*|ui.*": "they ask a server, or another machine",
    r"explain audit (--votes .*|.*--precision.*)|decide list.*": "the votes are a person's, the decisions of models",
    r"explain contamination .*|decide thresholds .*": "of a recipe with other steps",
    r".*\btopic = .*|recipe columns .* --at where": "of a recipe with other steps",
    r".*--rule gopher_quality\.alpha_words.*": "of a rule that drops no document of the project",
    r".*where\.keep=.*|.*--rule takedowns": "of a recipe with other steps, or with takedown lists",
    r"explain lineage .* --step 12\d+": "of a longer training",
    r"decide whatif demo .*|.*host = 'a\.example'.*|explain \w+ [0-9a-f]{6,8}\b.*": "of documents of another corpus",
    r"decide .*--proxy tiny\.yaml.*|explain tokenizers .*third\.model|recipe init essays.*": "of files of a page",
    r".*s3://.*|corpus fineweb.*": "they read another store, or Common Crawl",
    r"home gc --delete --days 0": "it asks before it deletes",
    r"train (lm|classifier|head|from-tokens|import) .*|train evaluate \.gristmill.*": "of files that a person has",
    r"decide mixture .*--mixture.*|decide plan seven\.yaml .*|(check|run) code.*": "of files that a person has, too",
    r".*\brecord_id = .*": "of ids that a person's files have",
    r"explain diff (A B|rules-\S+ .*)|home forget \S+": "of stages and runs of another home",
}
# A command that says that it has nothing to show shows no reader anything.
NOTHING = re.compile(r"^(gristmill: )?no (decision|document|rule|text|vote|difference)", re.MULTILINE)
# So that the rules which pages name drop some documents.
STRICTER = {
    "textbook": {"min_characters": 1},
    "gopher_quality": {"min_words": 200, "min_stop_words": 7},
    "quality": {"min_score": None, "keep_top": 50},
}
TASK = {"context": "The function returns", "choices": [" a value", " the sea"], "answer": 0}


@pytest.fixture(scope="module")
def folder(crawl, recipe, tmp_path_factory) -> Path:
    """A folder with a crawl, two recipes that have been run, a model, tasks and texts."""
    folder = tmp_path_factory.mktemp("documented")
    shutil.copytree(crawl.folder, folder / "crawl")
    sources = [source | {"warc": [f"crawl/{source['name']}-*.warc.gz"]} for source in recipe["sources"]]
    steps = [step | STRICTER.get(step["step"], {}) for step in recipe["steps"]]
    mixture = recipe["mixture"] | {"packing": "best_fit"}
    model = recipe["model"] | {"seq_len": 128}  # for the prompts of `train evaluate --memorized`
    stricter = recipe | {"sources": sources, "steps": steps, "mixture": mixture, "model": model}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(stricter))
    before = [step | ({"min_words": 150} if step["step"] == "gopher_quality" else {}) for step in steps]
    (folder / "before.yaml").write_text(yaml.safe_dump(stricter | {"name": "before", "steps": before}))
    (folder / "tasks").mkdir()
    (folder / "tasks/first.jsonl").write_bytes(b"".join(orjson.dumps(TASK) + b"\n" for _ in range(5)))
    paragraphs = pydoc_paragraphs()[:100]
    (folder / "texts.jsonl").write_bytes(b"\n".join(orjson.dumps({"text": text}) for text in paragraphs))
    for name in ("answer.txt", "page.txt"):
        (folder / name).write_text("\n\n".join(paragraphs[:8]))
    for arguments in (
        ("run", "recipe.yaml"),
        ("corpus", "before.yaml"),
        ("export", "model", "recipe.yaml", "--to", "my-model"),
    ):
        done = run(folder, arguments)
        assert done.returncode == 0, done.stdout
    (folder / "other").mkdir()
    shutil.copy(folder / "my-model/tokenizer.json", folder / "other")
    return folder


def start(folder: Path, arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    """A command, as a shell would run it in the folder: patterns of its words stand for files."""
    theirs = ("PREFECT_", "GRISTMILL_", "MLFLOW_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    environment |= {"PYTHONPATH": os.getcwd(), "GRISTMILL_WORKERS": "2"}
    words = [
        match
        for word in arguments
        for match in sorted(str(p.relative_to(folder)) for p in _glob(folder, word)) or [word]
    ]
    command = [sys.executable, "-c", "from gristmill.flows.cli import main; main()", *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _glob(folder: Path, word: str) -> list[Path]:
    return [*folder.glob(word)] if "/*" in word else []


def run(folder: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    with start(folder, arguments) as process:
        output, _ = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, output)


def serve(folder: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """A command that serves pages until Ctrl-C, which is pressed when it says so."""
    lines = []
    with start(folder, arguments) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                process.send_signal(signal.SIGINT)
    return subprocess.CompletedProcess(arguments, process.returncode, "".join(lines))


@pytest.fixture(scope="module")
def meant(folder) -> dict[str, str]:
    """What the words of a page that stand for something stand for."""
    [tokens] = [path for path in (folder / ".gristmill/stages").glob("tokens-*") if (path / "manifest.json").exists()]
    shard = next(path for path in sorted(tokens.glob("train-*.bin")) if path.stat().st_size > 4000)
    shown = run(folder, ("explain", "show", "documents", "-n", "1")).stdout
    return {
        "RECIPE": "recipe.yaml",
        "DOC_ID": re.search(r"\b[0-9a-f]{16,}\b", shown.partition("\n")[2])[0],
        "DIR": "made",
        "NAME": "profane",
        "tokens-KEY/train-00000.bin": f"{tokens.name}/{shard.name}",
    }


@pytest.fixture
def clean(folder):
    """The folder without what the command makes beside its home."""
    there = {path.name for path in folder.iterdir()}
    yield folder
    for path in folder.iterdir():
        if path.name not in there and path.name != ".gristmill":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_documented_command_runs(clean, meant, command: Documented):
    line = shlex.join(command.arguments)
    left = [reason for pattern, reason in LEFT.items() if re.fullmatch(pattern, line)]
    if left or command.environment:
        pytest.skip(*left or ["of another machine"])
    is_init = command.arguments[:2] == ("recipe", "init")
    words = meant | {"FOLDER": "crawl" if is_init else "tasks"}
    own = ("--out", "first.yaml") if is_init and "--out" not in command.arguments else ()
    is_server = command.arguments[0] == "browse" and "--to" not in command.arguments
    done = (serve if is_server else run)(clean, (*(words.get(word, word) for word in command.arguments), *own))
    assert done.returncode == 0, done.stdout
    assert "Traceback (most recent call last)" not in done.stdout
    assert not NOTHING.search(done.stdout), done.stdout
