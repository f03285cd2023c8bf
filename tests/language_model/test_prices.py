"""What a recipe sends to a language model and costs, before it runs: by `check`, and by the plans of comparisons."""

import json
import re

import pytest
from typer.testing import CliRunner

from gristmill.flows.cli.app import app
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.remarks.sent_texts import plan_lines, sent_texts

PROMPT = {"user": "Grade. {{ document }}", "answer": {"grade": {"type": "integer", "minimum": 0, "maximum": 5}}}
REUSED = "answers of the language model that are already in the home are reused"


@pytest.fixture
def machine(tmp_path, monkeypatch) -> MachineSettings:
    for name, value in (("BASE_URL", "http://127.0.0.1:9/v1"), ("PRICE_IN", "3"), ("PRICE_OUT", "30")):
        monkeypatch.setenv(f"GRISTMILL_LM__{name}", value)
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    return MachineSettings()


def annotated(tmp_path, **step) -> dict:
    (tmp_path / "web.jsonl").write_text("\n".join(json.dumps({"text": f"text {n}"}) for n in range(50)))
    annotate = {"step": "annotate", "model": "m", "prompt": PROMPT, "of": 20, "characters": 270, "max_tokens": 10}
    return {
        "name": "graded",
        "sources": [{"name": "web", "jsonl": [str(tmp_path / "web.jsonl")]}],
        "steps": [{"step": "gopher_repetition"}, {**annotate, **step}],
    }


def numbers(sentence: str) -> list[float]:
    return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*\.?\d*", sentence.partition("the limit")[2])]


def test_the_price_is_an_upper_bound_by_the_settings(tmp_path, machine):
    [line] = sent_texts(load(annotated(tmp_path)), machine)
    # 270 characters of text and some of the prompt, of which a token has 3 in English and 1 elsewhere; 3 and 30 for a
    # million tokens
    english, other, tokens_out, price, thousand, highest, documents, whole, highest_whole = numbers(line)
    assert (tokens_out, thousand, documents) == (10, 1000, 20) and 270 < other < 420 and english == other // 3
    low, high = ((tokens * 3 + 10 * 30) * 1000 / 1e6 for tokens in (english, other))
    assert (price, highest) == pytest.approx((low, high), abs=0.005)
    assert (whole, highest_whole) == pytest.approx((low / 50, high / 50), abs=0.005)
    assert line.startswith("steps.annotate: sends 20 documents to 127.0.0.1; ")


@pytest.mark.extended
def test_a_plan_has_the_line_of_check(tmp_path, machine):
    path = tmp_path / "graded.yaml"
    path.write_text(json.dumps({**annotated(tmp_path), "mixture": {"weights": {"web": 1}}}))
    [line] = sent_texts(load(path), machine)
    assert any(line in str(remark) for remark in check(path, machine).remarks)
    shown = CliRunner().invoke(app, ["decide", "ablate", str(path), "--without", "gopher_repetition", "--plan"])
    assert shown.exit_code == 0, shown.output
    named = [each for each in shown.output.splitlines() if line in each]
    # without an earlier step other documents are in the sample
    assert named == [f"graded: {line}", f"without gopher_repetition: {line}"] and REUSED in shown.output


def test_recipes_that_send_the_same_texts_pay_once(tmp_path, machine):
    base = annotated(tmp_path)
    after = {**base, "steps": [*base["steps"], {"step": "where", "keep": "annotate_grade >= 2"}]}
    other = {**base, "steps": [base["steps"][0], {**base["steps"][1], "seed": 4}]}
    without = {**base, "steps": base["steps"][:1]}
    recipes = {name: load(each) for name, each in (("a", base), ("b", after), ("c", other), ("d", without))}
    lines = [*plan_lines(recipes, machine)]
    assert [line.partition(":")[0] for line in lines[:-1]] == ["a", "c"] and lines[-1] == REUSED
    assert [*plan_lines({"d": recipes["d"]}, machine)] == []


def test_recipes_that_are_rewritten_count_too(tmp_path, machine):
    web = tmp_path / "web.yaml"
    web.write_text(json.dumps(annotated(tmp_path)))
    rewrite = {"recipe": str(web), "model": "m", "prompt": "summary", "of": 7, "language": None}
    second = {"name": "second", "sources": [{"name": "short", "rewrite": rewrite}], "steps": []}
    lines = [*sent_texts(load(second), machine)]
    assert [line.partition(" documents")[0] for line in lines] == [
        "graded: steps.annotate: sends 20",
        "sources.short: sends 7",
    ]
    circle = {**annotated(tmp_path), "sources": [{"name": "self", "rewrite": rewrite}]}
    web.write_text(json.dumps(circle))
    assert len([*sent_texts(load(web), machine)]) == 3, "it ends; `check` refuses the recipe"
