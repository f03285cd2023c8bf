"""What `check` says of the cost of a language model, before and after the documents are in the home."""

import json
from pathlib import Path

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.remarks.request_limits import measured_documents
from gristmill.flows.recipe.remarks.sent_texts import sent_texts
from tests.corpora import context

LENGTHS = (100, 200, 90, 300)  # the step `where` drops the third
PROMPT = {"system": "s" * 30, "user": "{{ text }}", "answer": {"grade": {"type": "integer"}}}
ANNOTATE = {"step": "annotate", "model": "m", "prompt": PROMPT, "characters": 1000, "max_tokens": 10, "of": 50}


def recipe(folder: Path, *steps: dict) -> dict:
    rows = [{"text": "x" * length} for length in LENGTHS]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"name": "priced", "sources": [{"name": "web", "jsonl": [str(folder / "a.jsonl")]}], "steps": [*steps]}


@pytest.fixture
def settings(tmp_path) -> MachineSettings:
    server = {"base_url": "http://127.0.0.1:1/v1", "price_in": 3000.0, "price_out": 1000.0}
    return MachineSettings(home=str(tmp_path / "home"), lm=server)


def test_limits_and_the_price_of_documents_in_the_home(tmp_path, settings):
    where = {"step": "where", "keep": "characters > 95"}
    given = load(recipe(tmp_path, where, ANNOTATE))
    [line] = sent_texts(given, settings)
    # 1,000 characters and 30 of the template, as 343 or 1,030 tokens, and 10 tokens of the answer
    assert line == (
        "steps.annotate: sends 50 documents to 127.0.0.1; the limit per document is 343 prompt tokens in English, "
        "1,030 in Chinese or Thai, and 10 completion tokens, without repairs. The limit of the price is 1,039.00 per "
        "1,000 documents in English, up to 3,100.00 in Chinese or Thai, and for 50 documents 51.95, up to 155.00"
    )
    made = load(recipe(tmp_path, where))
    recorder = RunRecorder(settings.home, made.name, flow="corpus", recipe=made.model_dump(mode="json"))
    for _ in curate(context(settings.home).noting(lambda one: recorder.add(one.label)), made):
        pass
    recorder.finished()
    [line] = sent_texts(given, settings)
    # the three texts have 200 characters on average, and 30 of the template, as 76 or 230 tokens
    assert line.endswith(
        "With 200 characters, the mean of the 3 documents in the home, there are about 76 prompt tokens in English, "
        "up to 230 in others. The price with as many completion tokens as allowed is about 238.00 per 1,000 documents "
        "in English, up to 700.00 in Chinese or Thai, and for 3 documents 0.71, up to 2.10"
    )
    found = measured_documents(settings.home, given, 1)
    assert found is not None and (found.count, found.mean) == (3, 200)
    other = load(recipe(tmp_path, {"step": "where", "keep": "characters > 1"}, ANNOTATE))
    assert measured_documents(settings.home, other, 1) is None and measured_documents(settings.home, made) == found
