"""Commands in the documentation run: each in a folder that has what its page speaks of."""

import os
import re
import shutil
import subprocess
import sys

import orjson
import pytest
import yaml

from tests.documented import commands
from tests.planted.text import pydoc_paragraphs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# What is not run here: it trains for long, or asks for a machine, a server or files that no page makes. Their options
# are read by tests/flows/cli/test_documented_commands.py.
LEFT = {
    r"decide (ablate|mix|scale|agreement|noise) .*|demo --ablate": "models are trained, from minutes to hours",
    r"demo.*|home compile": "other tests run them, and they take minutes",
    r"home (automations .*|doctor)|train join .*|ui": "they ask a server, or another machine",
    r"explain audit --votes .*": "the votes are a person's",
    r"explain contamination .*|decide thresholds .*": "of a recipe with other steps",
    r"train (lm|classifier|head|from-tokens|import) .*": "of files that a person has",
    r"explain tokenizers .*--beside.*|decide mixture .*--mixture.*": "of files that a person has, too",
}
# So that the rules which pages name drop some documents.
STRICTER = {
    "textbook": {"min_characters": 1},
    "gopher_quality": {"min_words": 200, "min_stop_words": 7},
    "quality": {"min_score": None, "keep_top": 50},
}
TASK = {"context": "The function returns", "choices": [" a value", " the sea"], "answer": 0}


@pytest.fixture(scope="module")
def at(crawl, recipe, tmp_path_factory):
    """A folder with a crawl, a recipe that has been run, tasks and texts."""
    folder = tmp_path_factory.mktemp("documented")
    shutil.copytree(crawl.folder, folder / "crawl")
    sources = [source | {"warc": [f"crawl/{source['name']}-*.warc.gz"]} for source in recipe["sources"]]
    steps = [step | STRICTER.get(step["step"], {}) for step in recipe["steps"]]
    given = recipe | {"sources": sources, "steps": steps, "mixture": recipe["mixture"] | {"packing": "best_fit"}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(given))
    (folder / "tasks").mkdir()
    (folder / "tasks/first.jsonl").write_bytes(b"".join(orjson.dumps(TASK) + b"\n" for _ in range(5)))
    texts = [orjson.dumps({"text": text}) for text in pydoc_paragraphs()[:100]]
    (folder / "texts.jsonl").write_bytes(b"\n".join(texts))
    done = run(folder, ("run", "recipe.yaml"))
    assert done.returncode == 0, done.stdout
    return folder


def run(folder, arguments: tuple[str, ...]) -> subprocess.CompletedProcess:
    theirs = ("PREFECT_", "GRISTMILL_", "MLFLOW_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    command = [sys.executable, "-c", "from gristmill.flows.cli import main; main()", *arguments]
    given = environment | {"PYTHONPATH": os.getcwd(), "GRISTMILL_WORKERS": "2"}
    return subprocess.run(
        command, cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


@pytest.fixture(scope="module")
def meant(at) -> dict[str, str]:
    """What the words of a page that stand for something stand for."""
    [tokens] = [path for path in (at / ".gristmill/stages").glob("tokens-*") if (path / "manifest.json").exists()]
    shard = next(path for path in sorted(tokens.glob("train-*.bin")) if path.stat().st_size > 4000)
    shown = run(at, ("explain", "show", "documents", "-n", "1")).stdout
    return {
        "RECIPE": "recipe.yaml",
        "DOC_ID": re.search(r"\b[0-9a-f]{16,}\b", shown.partition("\n")[2])[0],
        "FOLDER": "crawl",
        "DIR": "made",
        "NAME": "profane",
        "tokens-KEY/train-00000.bin": f"{tokens.name}/{shard.name}",
    }


@pytest.mark.parametrize("command", commands(), ids=str)
def test_a_documented_command_runs(at, meant, command):
    line = " ".join(command.arguments)
    left = [reason for pattern, reason in LEFT.items() if re.fullmatch(pattern, line)]
    if left or command.environment:
        pytest.skip(*left or ["of another machine"])
    first, *_ = command.arguments
    given = meant | ({"FOLDER": "tasks"} if first == "evaluate" else {"DIR": f"made-{command.line}"})
    own = ("--out", f"first-{command.line}.yaml") if first == "init" else ()
    done = run(at, (*(given.get(word, word) for word in command.arguments), *own))
    assert done.returncode == 0, done.stdout
    assert "Traceback (most recent call last)" not in done.stdout
