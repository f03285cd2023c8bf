"""Arms whose effect is planted, decided by real runs: noise at the end of training, and letters cut into bytes."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import yaml

from gristmill.storage import checked_json, parquet
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from tests.flows.decisions.test_decision_tasks import write
from tests.planted.text import prose
from tests.trained_tokenizers import train

PROXY = {
    "name": "tiny",
    "vocab_size": 600,
    "model": {"dim": 48, "layers": 1, "heads": 4, "seq_len": 128, "qk_norm": True},
    "tokens": 65_536,
    "training": {"batch": 4, "micro_batch": 4, "warmup_steps": 12},
    "learning_rates": [0.005, 0.015],
    "looks": [4, 6, 8],
    "evaluation_documents": 40,
}
SCRIPT = """
import sys, gristmill
recipe, proxy, other, judge = sys.argv[1:]
print(*gristmill.ablate(recipe, against=[other], proxy=proxy, judge=[judge]).sentences, sep="\\n")
"""


def _texts(path: Path, language: str, count: int) -> str:
    draw = Random(f"arms/{language}")
    return write(path / f"{language}.jsonl", [{"text": " ".join(prose(draw, language, 150))} for _ in range(count)])


def _noise(path: Path, count: int) -> str:
    draw = Random("arms/noise")
    letters = "abcdefghijklmnopqrstuvwxyz"
    texts = [" ".join("".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(150)) for _ in range(count)]
    return write(path / "noise.jsonl", [{"text": text} for text in texts])


def _tokenizer(folder: Path, *sources: str) -> str:
    """A tokenizer of 600 tokens, trained on some of the texts: letters that it has not seen are bytes."""
    texts = [json.loads(line)["text"] for source in sources for line in Path(source).read_text().splitlines()]
    folder.mkdir()
    documents, kept = f"{folder}/documents.parquet", f"{folder}/kept.parquet"
    ids = [*map(str, range(len(texts)))]
    parquet.write_table(documents, pa.table({"id": ids, "text": texts}))
    parquet.write_table(kept, pa.table({"id": ids}))
    settings = Tokenizer(vocab_size=600, sample_bytes=400_000)
    return str(folder / train(str(folder), {"a": [(documents, kept)]}, Mixture(weights={"a": 1}), settings, 3)["file"])


def _decided(runs, home: str, base: dict, other: dict, judge: str) -> dict:
    proxy = runs.folder / f"{home}-proxy.yaml"
    proxy.write_text(yaml.safe_dump(PROXY))
    command = [sys.executable, "-c", SCRIPT, str(runs.write(base)), str(proxy), str(runs.write(other)), judge]
    with open(runs.folder / f"{home}.log", "a") as log:
        done = subprocess.run(
            command, env=runs.environment(home, executor="threads"), cwd=runs.folder, stdout=log, stderr=log
        )
    assert done.returncode == 0, runs.log(home)
    [found] = [checked_json.read(str(path)) for path in runs.home(home).glob("decisions/*.json")]
    [verdict] = found["verdicts"]
    print(home, verdict)
    return verdict


@pytest.mark.slow
def test_a_source_that_is_noise_late_in_training_is_found_worse(runs, tmp_path):
    web, noise = _texts(tmp_path, "en", 900), _noise(tmp_path, 400)
    phases = [{"share": 0.7, "weights": {"web": 1}}, {"share": 0.3, "weights": {"web": 1}}]
    clean = {
        "name": "clean",
        "sources": [{"name": "web", "jsonl": [web]}, {"name": "noise", "jsonl": [noise]}],
        "steps": [{"step": "extract"}],
        "mixture": {"weights": {"web": 0.9, "noise": 0.1}, "phases": phases},
    }
    late = [phases[0], {"share": 0.3, "weights": {"web": 0.2, "noise": 0.8}}]
    noisy = clean | {"name": "noisy", "mixture": clean["mixture"] | {"phases": late}}
    verdict = _decided(runs, "late-noise", clean, noisy, "web")
    assert verdict["outcome"] == "worse" and verdict["high"] < 0


@pytest.mark.slow
def test_a_tokenizer_that_cuts_a_script_into_bytes_is_found_worse(runs, tmp_path):
    english, russian = _texts(tmp_path, "en", 500), _texts(tmp_path, "ru", 500)
    whole = {
        "name": "whole",
        "sources": [{"name": "english", "jsonl": [english]}, {"name": "russian", "jsonl": [russian]}],
        "steps": [{"step": "extract"}],
        "tokenizer": {"path": _tokenizer(tmp_path / "both", english, russian)},
    }
    cut = whole | {"name": "cut", "tokenizer": {"path": _tokenizer(tmp_path / "one", english)}}
    verdict = _decided(runs, "cut-script", whole, cut, "russian")
    assert verdict["outcome"] == "worse" and verdict["high"] < 0
