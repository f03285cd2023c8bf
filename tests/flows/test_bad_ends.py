"""Recipes that can only end badly end with one sentence that names what is wrong, the value and the remedy."""

import gzip
import random
import re
from pathlib import Path

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.whatif import whatif
from gristmill.flows.stages.corpus import NothingLeftError
from gristmill.flows.stages.mixture import training_data
from tests.corpora import context

WORDS = "the mill turns grain into flour and water moves wheel while miller weighs sacks near door of stone".split()
SHORT = {"step": "gopher_quality", "min_words": 10}
STRICT = {"step": "gopher_quality", "min_words": 5000}
QUALITY = {"step": "quality", "reference": ["other"], "dimensions": 4, "buckets": 100}
PERPLEXITY = {"step": "perplexity", "reference": ["other"], "order": 2}
FILES = {
    "prose.warc": b"this is not an archive at all\n" * 50,
    "image.warc": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10,
    "empty.warc": b"",
    "empty.jsonl": b"",
    "packed.jsonl": gzip.compress(b""),
    "empty.parquet": b"",
    "broken.parquet": b"PAR1 and no footer",
    "prose.jsonl": b"no json\n" * 5,
    "key.jsonl": b'{"body": "a text"}\n' * 5,
    "empty.text": b"",
}
# a file in place of the sources, and what the sentence says
UNREADABLE = [
    ("prose.warc", "use files with a WARC, ARC or WET record under `warc`"),
    ("image.warc", "use files with a WARC, ARC or WET record under `warc`"),
    ("empty.warc", "is empty: use files with .* under `warc`"),
    ("empty.jsonl", "is empty: use files with .* under `jsonl`"),
    ("packed.jsonl", "is empty: use files with .* under `jsonl`"),
    ("empty.parquet", r"use files with a row with a text in `text` \(text_column\) under `parquet`"),
    ("broken.parquet", r"use files with a row with a text in `text` \(text_column\) under `parquet`"),
    ("prose.jsonl", r"use files with a JSON object with a text in `text` \(text_column\) under `jsonl`"),
    ("key.jsonl", r"\(no_text\): use files with .* `text` \(text_column\).* under `jsonl`"),
]
HELD_OUT = ["documents", "heldout", "heldout_documents"]
# what is changed in a recipe that runs, the stages that are made before its end, and what the sentence says
ENDS = [
    (
        {"steps": [STRICT, "minhash"]},
        ["documents", "rules"],
        "`gopher_quality`: of 40 documents, the rule words dropped 40",
    ),
    ({"sources": "empty.text"}, ["documents"], "source other gives no documents: .*empty_text dropped 1"),
    (
        {"tokenizer": {"vocab_size": 30000}},
        HELD_OUT,
        r"vocab_size is 30000, but .* \d+ tokens at most: lower",
    ),
    (
        {"heldout": 1e-9},
        ["documents"],
        r"none of 40 documents is held out, with a fraction of 1e-09 per source: raise mixture.heldout_f",
    ),
    ({"heldout": 0.999999}, HELD_OUT, "has web, but no documents of it .* lower mixture.heldout_fraction"),
    (
        {"steps": [SHORT, QUALITY]},
        ["documents", "rules"],
        "`quality` needs .* but 0 and 40 are left: use other",
    ),
    ({"steps": [SHORT, PERPLEXITY]}, ["documents", "rules"], "`perplexity` trains on words, .* has none .* use"),
    (
        {"training": {"steps": 900}},
        ["documents", "evaluation_tokens", *HELD_OUT[1:], "tokenizer", "tokens"],
        r"takes 115,200 tokens .* lower training.steps",
    ),
]


@pytest.fixture
def given(tmp_path) -> dict:
    """A recipe that runs as far as the mixture."""
    draw = random.Random(1)
    for name, count in (("web", 40), ("other", 5)):
        (tmp_path / name).mkdir()
        for i in range(count):
            text = " ".join(draw.choice(WORDS) for _ in range(60))
            (tmp_path / name / f"{i}.txt").write_text(text)
    return {
        "name": "ends",
        "sources": [{"name": "web", "text": [f"{tmp_path}/web/*.txt"]}],
        "steps": [{"step": "extract"}],
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.2},
        "tokenizer": {"vocab_size": 350},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
    }


def end(given: dict, folder: Path) -> str:
    """The sentence with which a recipe ends."""
    recipe, run = load(given), context(str(folder / "home"))
    with pytest.raises(ValueError) as error:
        *_, last = curate(run, recipe)
        training_data(run, recipe, last.left)
    assert "\n" not in str(error.value)
    return str(error.value)


def finished(folder: Path) -> list[str]:
    return sorted(path.parent.name.rpartition("-")[0] for path in folder.glob("home/stages/*/manifest.json"))


@pytest.mark.parametrize(("name", "sentence"), UNREADABLE, ids=[name for name, _ in UNREADABLE])
def test_a_source_of_which_nothing_can_be_read(given, tmp_path, name, sentence):
    path = tmp_path / name
    path.write_bytes(FILES[name])
    given["sources"].append({"name": "other", path.suffix[1:]: [str(path)]})
    found = end(given, tmp_path)
    assert found.startswith(f"the source other: {path} ") and re.search(sentence, found), found
    assert finished(tmp_path) == []
    assert not list(tmp_path.glob("home/stages/*/part-*")), "no page was read before"


@pytest.mark.extended
@pytest.mark.parametrize(("changes", "made", "sentence"), ENDS, ids=[sentence[:30] for *_, sentence in ENDS])
def test_a_run_that_cannot_go_on(given, tmp_path, changes, made, sentence):
    steps = [step if isinstance(step, dict) else {"step": step} for step in changes.get("steps", ())]
    given["steps"] += steps
    if name := changes.get("sources"):
        (tmp_path / name).write_bytes(FILES[name])
        given["sources"].append({"name": "other", "text": [str(tmp_path / name)]})
    elif any("reference" in step for step in steps):
        given["sources"].append({"name": "other", "text": [f"{tmp_path}/other/*.txt"]})
        for path in (tmp_path / "other").iterdir():
            path.write_text("...")
    given["tokenizer"] |= changes.get("tokenizer", {})
    given["training"] |= changes.get("training", {})
    given["mixture"]["heldout_fraction"] = changes.get("heldout", 0.2)
    found = end(given, tmp_path)
    assert re.search(sentence, found), found


@pytest.mark.extended
def test_whatif_answers_for_a_run_that_left_nothing(given, tmp_path):
    given["steps"].append(STRICT)
    assert "the corpus is empty after the step" in end(given, tmp_path)
    replay = whatif(given, {"gopher_quality.min_words": 10}, MachineSettings(home=str(tmp_path / "home")))
    assert replay.replayed[0]["drops"].get("words", 0) < 40
    assert issubclass(NothingLeftError, ValueError)
