"""What a recipe may group its documents by: what is said ahead of a run, and that groups are in a stage's key."""

import re
from types import SimpleNamespace

import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.tokens import grouped_tokens
from tests.corpora import planted_stage


def recipe(folder, *by, columns=("topic", "doc-type"), **mixture) -> dict:
    (folder / "a.jsonl").write_text('{"text": "A page.", "topic": "law", "doc-type": "x"}')
    source = {"name": "web", "jsonl": [f"{folder}/a.jsonl"], "url_column": "url", "columns": {n: n for n in columns}}
    steps = [{"step": "extract"}, {"step": "language"}, {"step": "gopher_quality"}]
    mixture = {"by": [*by], "strategy": "proportional"} | mixture
    return {"name": "grouped", "sources": [source], "steps": steps, "mixture": mixture}


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("languag", "groups documents by languag, which no step measures; did you mean `language`?"),
        ("'a' if langage == 'en' else 'b'", "groups documents by langage, which no step measures; did you mean `lang"),
        ("'a' if language = 'en' else 'b'", "which is no column and no expression: .* two values are compared by =="),
        ("'a' if characters > 'x' else 'b'", "compares characters, a number, with 'x', a text"),
        ("'a' if characters else 'b'", "characters is a number, neither true nor false"),
        ("'a' if language == 'en' else 1", "is a text or a number; let both be of a kind"),
        ("gopher_quality_alpha_words", "whose values are numbers: give its edges or quantiles, or write int"),
        ("characters / 2", "whose values are numbers: give its edges or quantiles, or write int"),
        ({"column": "lower(language)", "quantiles": 3}, "a text, which has no ranges"),
        ("time(date)", "a time: make it a text or a whole number"),
    ],
)
def test_check_says_what_makes_no_groups(tmp_path, by, said):
    found = check(recipe(tmp_path, by), MachineSettings(home=str(tmp_path / "home"))).findings
    assert len(found) == 1 and found[0].key == "mixture"
    assert re.search(said, found[0].message), found[0].message


@pytest.mark.parametrize(
    "by",
    [
        "language",
        "topic",
        "doc-type",
        "host",
        "characters > 300",
        "int(gopher_quality_alpha_words * 10)",
        "'science' if topic == 'science' and characters > 300 else None",
        {"column": "characters / (gopher_quality_words + 1)", "quantiles": 4},
    ],
)
def test_check_lets_through_what_makes_groups(tmp_path, by):
    found = check(recipe(tmp_path, by), MachineSettings(home=str(tmp_path / "home")))
    assert [f"{one}" for one in found.findings] == []


def test_the_expression_is_in_the_key(tmp_path):
    signals = planted_stage("documents", str(tmp_path))
    corpus = Corpus(("web",), signals, signals, (signals,), (signals,))

    def key(by) -> str:
        specs = []
        context = SimpleNamespace(build=specs.append)
        grouped_tokens(context, load(recipe(tmp_path, by, columns=())), corpus, signals, signals)
        return specs[0].key

    assert key("characters > 300") == key("characters > 300") != key("characters > 301")
