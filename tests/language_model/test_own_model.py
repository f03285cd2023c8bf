"""From a model of our own to a corpus that it has graded: train, export, serve, annotate, distill, train again.

The server is `transformers serve`, which needs `pip install 'transformers[serving]' accelerate`. A model of 160,000
parameters grades texts whose words tell their grade; it says nothing about grades of larger models.
"""

import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from gristmill.storage import parquet
from tests.language_model.test_annotate_runs import COMMAND, bill_of, environment, stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

WORDS = (
    "casino cheap buy pills bonus offer click win",
    "gossip celebrity rumor dress party photo star fan",
    "weather match score coach ticket train hotel menu",
    "garden repair recipe engine paint tool wood tile",
    "history treaty empire species climate river mineral cell",
    "theorem proof integer vector entropy molecule equation lemma",
)
COMMON = "the a of and to in is that it for on with as this from by"
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}A:"
SEEN, DOCUMENTS, SAMPLE = 30_000, 2_000, 500


def graded_texts(count: int, seed: int) -> list[tuple[str, int]]:
    """Texts of common words and those of a grade, with the grade."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        grade = draw.randrange(len(WORDS))
        words = [draw.choice((WORDS[grade] if draw.random() < 0.5 else COMMON).split()) for _ in range(20)]
        found.append((" ".join(words).capitalize() + ".", grade))
    return found


def pages(texts: list[str]) -> list[dict]:
    return [{"text": text, "url": f"https://h{i % 120}.example/{i}"} for i, text in enumerate(texts)]


def recipe(path: Path, rows: list[dict], steps: list[dict], dim: int, training: dict) -> Path:
    """A recipe over the rows, and its file."""
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = {
        "name": path.stem,
        "sources": [{"name": "web", "jsonl": [str(path.with_suffix(".jsonl"))], "url_column": "url"}],
        "steps": steps,
        "tokenizer": {"kind": "byte_bpe", "vocab_size": 400},
        "mixture": {"weights": {"web": 1}, "max_epochs": 8},
        "model": {"dim": dim, "layers": 2, "heads": 4, "seq_len": 64},
        "training": {"learning_rate": 0.004, "warmup_steps": 10, **training},
    }
    path.write_text(yaml.safe_dump(whole))
    return path


def gristmill(home: Path, *arguments: str, **variables: str) -> None:
    command = [sys.executable, "-c", COMMAND, *arguments]
    done = subprocess.run(
        command, env=environment(home, None, "threads") | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def manifest(stage: Path) -> dict:
    return json.loads((stage / "manifest.json").read_text())


def parts(stage: Path, columns: list[str]) -> list[pa.Table]:
    return [parquet.read_table(str(path), columns) for path in sorted(stage.glob("part-*.parquet"))]


@contextmanager
def served(model: Path, log: Path) -> Iterator[str]:
    """The address of a server of a Hugging Face folder, which ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "transformers"), "serve", "--host", "127.0.0.1", "--port", str(port)]
    with open(log, "w") as lines:
        process = subprocess.Popen([*command, model.name], cwd=model.parent, stdout=lines, stderr=lines)
    try:
        address = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            try:
                urllib.request.urlopen(f"{address}/v1/models", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        assert process.poll() is None, log.read_text()
        yield f"{address}/v1"
    finally:
        process.terminate()
        process.wait()


def test_a_model_of_our_own_grades_a_corpus(tmp_path, capsys):
    if missing := [name for name in ("transformers", "accelerate", "fastapi", "uvicorn") if find_spec(name) is None]:
        pytest.skip(f"no {', '.join(missing)}: pip install 'transformers[serving]' accelerate")
    home = tmp_path / "home"
    rows = pages([f'{text}\nA: {{"score": {grade}}}' for text, grade in graded_texts(SEEN, 5)])
    fields = {"eval_every": 700, "checkpoint_every": 700, "batch": 32, "micro_batch": 32}
    grader = recipe(tmp_path / "grader.yaml", rows, [{"step": "normalize"}], 64, {"steps": 700, **fields})
    gristmill(home, "run", str(grader), OMP_NUM_THREADS="1")
    model = tmp_path / "grader"
    gristmill(home, "export", "model", str(grader), "--to", str(model))
    settings = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))

    given = graded_texts(DOCUMENTS, 6)
    rows = pages([text for text, _ in given])
    answer = {"score": {"type": "integer", "minimum": 0, "maximum": 5}}
    prompt = {"user": "{{ text }}", "answer": answer}
    annotate = {"step": "annotate", "model": model.name, "prompt": prompt, "of": SAMPLE, "max_tokens": 12}
    distill = {"step": "distill", "of": "annotate_score", "positive": 3, "cut": {"f_beta": 0.5}}
    fields = {"eval_every": 50, "checkpoint_every": 50, "batch": 16, "micro_batch": 16}
    path = recipe(tmp_path / "graded.yaml", rows, [annotate, distill], 32, {"steps": 50, **fields})
    with served(model, tmp_path / "server.log") as address:
        gristmill(home, "run", str(path), GRISTMILL_LM__BASE_URL=address, OMP_NUM_THREADS="1")

    truth = dict(given)
    documents = manifest(stage(home))["read"]["documents"]
    (texts,) = parts(home / "stages" / documents, ["id", "text"])
    text_of = dict(zip(texts["id"].to_pylist(), texts["text"].to_pylist(), strict=True))
    (table,) = parts(stage(home), ["id", "annotate_score"])
    rows = [row for row in table.to_pylist() if row["annotate_score"] is not None]
    graded = [(truth[text_of[row["id"]].strip()], row["annotate_score"]) for row in rows]
    right = sum(grade == score for grade, score in graded) / len(graded)
    assert bill_of(home)["requests"] >= SAMPLE and len(graded) >= 0.9 * SAMPLE
    assert right > 0.9  # a guess has 1/6
    (cut,) = home.glob("stages/distill_cut-*")
    kept = manifest(cut)["result"]["reasons"]
    with capsys.disabled():
        print(f"\n{len(graded)} of {SAMPLE} texts graded, {right:.3f} of them as planted; {kept}")
