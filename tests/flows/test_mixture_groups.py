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
    (folder / "a.jsonl").write_text('{"text": "A page.", "url": "https://a.example/", "topic": "law", "doc-type": "x"}')
    source = {"name": "web", "jsonl": [f"{folder}/a.jsonl"], "url_column": "url", "columns": {n: n for n in columns}}
    steps = [{"step": "extract"}, {"step": "language"}, {"step": "gopher_quality"}]
    mixture = {"by": [*by], "strategy": "proportional"} | mixture
    return {"name": "grouped", "sources": [source], "steps": steps, "mixture": mixture}


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("languag", "groups documents by languag, which no step measures; did you mean `language`?"),
        (
            "case when langage = 'en' then 'a' else 'b' end",
            "groups documents by langage, which no step measures; did you mean `lang",
        ),
        (
            "'a' if language = 'en' else 'b'",
            "which is neither a column nor a valid expression: .* write `case when test then a",
        ),
        ("case when characters > 'x' then 'a' else 'b' end", "Could not convert string 'x' to INT64"),
        ("case when language = 'en' then language else 1 end", "Cannot mix values of type"),
        ("gopher_quality_alpha_words", "whose values are numbers; add its edges or quantiles, or cast them"),
        ("characters / 2", "whose values are numbers; add its edges or quantiles, or cast them"),
        ({"column": "lower(language)", "quantiles": 3}, "a text, which cannot be cut into ranges"),
        ("date::timestamptz", "a time; convert it to text or a whole number"),
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
        "trunc(gopher_quality_alpha_words * 10)::bigint",
        "case when topic = 'science' and characters > 300 then 'science' end",
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
