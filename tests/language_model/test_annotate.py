"""The step `annotate` of a recipe: columns, bills, drops, windows, odd texts and hostile ones."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.stages.language_model import BILL
from gristmill.storage import checked_json, parquet
from gristmill.tasks.language_model.annotate import AnnotationSettings
from tests.language_model.asking import PROMPT, limits, made, parts, recipe, rows, stored, texts
from tests.language_model.faults import Plan
from tests.language_model.injections import INJECTIONS, broken
from tests.language_model.serving import serving


def sent_texts(server) -> list[str]:
    """What the server was sent as user messages, in the order of the record."""
    return [each["body"]["messages"][-1]["content"] for each in server.requests()]


def bill_of(stage) -> dict:
    return checked_json.read(f"{stage.folder}/{BILL}")


@pytest.mark.extended
def test_columns_bill_and_equal_texts_of_unequal_sources(tmp_path):
    """Also of a second recipe with more documents, and with several clients."""
    few, many = texts(14), texts(40)
    sources = {
        "web": [{"id": str(n), "text": text} for n, text in enumerate(few[:10])],
        "one": [{"id": "a", "text": few[10]}],
        "twins": [{"id": str(n), "text": text} for n, text in enumerate(few)],
    }
    with serving(latency=0.01) as server:
        with limits(server, concurrency=6, price_in=10.0, price_out=20.0):
            first = made(tmp_path / "home", recipe(tmp_path, sources))["annotate"]
        assert server.bill()["requests"] == server.bill()["distinct"] == 14
        assert server.stats()["max_in_flight"] <= 6
        bill, billed = bill_of(first), server.bill()
        for name in ("requests", "prompt_tokens", "completion_tokens"):
            assert bill[name] == billed[name] == first.manifest["result"]["answers"][name]
        price = (billed["prompt_tokens"] * 10 + billed["completion_tokens"] * 20) / 1e6
        assert bill["price"] == pytest.approx(price, abs=1e-6)
        assert bill["attempts"]["new"] == 14 and bill["host"] == "127.0.0.1"

        more = {**sources, "web": [{"id": str(n), "text": text} for n, text in enumerate(many)]}
        with limits(server, concurrency=6, clients=3):
            second = made(tmp_path / "home", recipe(tmp_path / "more", more))["annotate"]
        assert server.bill()["requests"] == server.bill()["distinct"] == 40
        assert server.stats()["max_in_flight"] <= 6
        assert bill_of(second)["requests"] == 40 and bill_of(second)["attempts"]["new"] == 26
        with limits(server, clients=3, concurrency=3):
            other = made(tmp_path / "other", recipe(tmp_path / "more", more))["annotate"]
        lines = server.billed()
        assert parts(other) == parts(second), "the number of clients changes nothing"
        assert bill_of(other)["requests"] == 40
    contents = {line["key"]: line["content"] for line in lines}
    found = rows(second)
    assert len(found) == 40 + 1 + 14
    for row in found:
        value = json.loads(contents[row["annotate_answer"]])
        assert {row["annotate_grade"], row["annotate_reason"]} == {value["grade"], value["reason"]}
        assert row["annotate_problem"] is None
    grades = Counter(row["annotate_grade"] for row in found)
    assert grades == Counter(number % 6 for number in [*range(40), 10, *range(14)])


@pytest.mark.parametrize("failed", [pytest.param("null", marks=pytest.mark.extended), "drop"])
def test_documents_without_a_valid_answer(tmp_path, failed):
    rows_in = [{"id": str(number), "text": text} for number, text in enumerate(texts(20))]
    with serving(latency=0.0, plan=Plan(always={"refusal": 0.4})) as server, limits(server):
        stages = made(tmp_path / "home", recipe(tmp_path, {"web": rows_in}, failed=failed, of=15))
        refused = [line for line in server.billed() if line["fault"] == "refusal"]
    assert 0 < len(refused) < 15
    annotated = rows(stages["annotate"])
    assert len(annotated) == 20
    problems = [row for row in annotated if row["annotate_problem"] is not None]
    assert len(problems) == len(refused)
    assert all(row["annotate_grade"] is None and row["annotate_problem"].startswith("refusal: ") for row in problems)
    unasked = [row for row in annotated if row["annotate_answer"] is None]
    assert len(unasked) == 5 and all(set(row.values()) == {None, row["id"]} for row in unasked)
    assert stages["annotate"].manifest["result"]["problems"] == {"refusal": len(refused)}
    if failed == "null":
        assert "annotate_cut" not in stages
        return
    cut = stages["annotate_cut"]
    lost = [row for path in sorted(Path(cut.folder).glob("ledger/*.parquet")) for row in table(path)]
    assert {row["id"] for row in lost} == {row["id"] for row in problems}
    assert {(row["step"], row["rule"]) for row in lost} == {("annotate", "failed")}
    reasons = {row["id"]: row["annotate_problem"] for row in problems}
    assert all(reasons[row["id"]][:20] in row["detail"] for row in lost)
    assert len(rows(cut)) == 20 - len(refused)


def table(path: Path) -> list[dict]:
    return parquet.read_table(str(path)).to_pylist()


@pytest.mark.extended
def test_odd_texts_arrive_as_they_are(tmp_path):
    """Texts that are empty, huge, of other scripts, with NUL, lone surrogates and controls; nulls of a column."""
    odd = {
        "nul": "a\x00b",
        "controls": "\x07\x1b[2J\u2028\ufeff\u202e",
        "thai": "กขค ไทย " * 50,
        "astral": "𝒳😀" * 30,
        "huge": "0123456789" * 500_000,
        "jinja": "{{ 7 * 7 }} {% raw %} {# gone #}",
    }
    rows_in = [{"id": name, "text": text, "topic": None} for name, text in odd.items()]
    rows_in.append({"id": "column", "text": "A text.", "topic": "{{ 6 * 7 }} none"})
    prompt = {**PROMPT, "user": "[{{ topic }}] {% if topic is none %}no topic{% endif %} {{ document }}"}
    whole = recipe(tmp_path, {"web": rows_in}, prompt=prompt, windows=3, characters=1000)
    whole["sources"][0]["columns"] = {"topic": "topic"}
    # a reader refuses these two
    lone = b'{"id": "lone", "text": "x \\ud800 y", "topic": null}\n'
    (tmp_path / "web" / "lone.jsonl").write_bytes(lone + b'{"id": "blank", "text": " ", "topic": null}\n')
    with serving(latency=0.0) as server, limits(server):
        stages = made(tmp_path / "home", whole)
        messages = sent_texts(server)
    documents = {row["id"]: row for row in rows(stages["documents"], "id", "text")}
    lost = [row["detail"] for path in Path(stages["documents"].folder).glob("ledger/*.parquet") for row in table(path)]
    assert len(documents) == len(rows_in) and len(lost) == 2, lost
    windows = [text[:1000] for row in documents.values() if len(text := row["text"]) <= 1000]
    huge = next(row["text"] for row in documents.values() if len(row["text"]) > 10_000)
    windows += [huge[:1000], huge[(len(huge) - 1000) // 2 :][:1000], huge[-1000:]]
    assert len(set(messages)) == len(messages) == len({w for w in windows})
    for window in windows:
        assert sum(f"\n{window}\n</document-" in message for message in messages) >= 1
    assert sum(message.startswith("[] no topic ") for message in messages) == len(messages) - 1
    assert sum(message.startswith("[{{ 6 * 7 }} none]  ") for message in messages) == 1
    annotated = {row["id"]: row for row in rows(stages["annotate"])}
    assert all(row["annotate_grade"] is not None for row in annotated.values())
    answers = stored(tmp_path / "home")
    for row in annotated.values():
        graded = [json.loads(answers[digest]["content"])["grade"] for digest in row["annotate_answer"].split(",")]
        assert row["annotate_grade"] == round(sum(graded) / len(graded))


def test_numbers_that_no_column_holds_are_invalid():
    answer = {"count": {"type": "integer"}, "share": {"type": "number"}, "least": {"type": "integer", "minimum": 0}}
    prompt = AnnotationSettings(model="m", prompt={"user": "{{ text }}", "answer": answer}).full_prompt
    valid = {"count": -(2**63), "share": 0.5, "least": 2**63 - 1}
    assert prompt.read(json.dumps(valid)) == valid
    for name, digits in (
        ("count", "9223372036854775808"),
        ("count", "1e3"),
        ("least", "99999999999999999999999999"),
        ("share", "1e999"),
        ("share", "NaN"),
        ("share", "1" + "0" * 400),
    ):
        with pytest.raises(ValueError):
            prompt.read(json.dumps(valid | {name: "@"}).replace('"@"', digits))


@pytest.mark.parametrize("mode", ["echo-injection", pytest.param("grade", marks=pytest.mark.extended)])
def test_injections_change_no_request_and_no_column(tmp_path, mode):
    rows_in = [{"id": each.name, "text": each.text} for each in INJECTIONS]
    with serving(latency=0.0, mode=mode) as server, limits(server):
        stages = made(tmp_path / "home", recipe(tmp_path, {"web": rows_in}))
        requests = server.requests()
    texts_in = {row["id"]: row["text"] for row in rows(stages["documents"], "id", "text")}
    first = [each["body"] for each in requests if len(each["body"]["messages"]) == 2]
    assert len(first) == len(INJECTIONS) == len(texts_in)
    columns = {"id", "annotate_grade", "annotate_reason", "annotate_problem", "annotate_answer"}
    for row in rows(stages["annotate"]):
        text = texts_in[row["id"]]
        (sent,) = [body for body in first if f"\n{text}\n</document-" in body["messages"][1]["content"]]
        injection = next(each for each in INJECTIONS if each.text.split()[-30:] == text.split()[-30:])
        assert broken(injection, sent, ["system", "user"], row, columns, escaped=text) == []
        assert set(sent) == {"model", "messages", "temperature", "max_tokens", "response_format"}
        assert row["annotate_grade"] is None or row["annotate_grade"] in range(6)
        assert (row["annotate_grade"] is None) == (row["annotate_problem"] is not None)
        assert row["annotate_reason"] is None or len(row["annotate_reason"]) <= 2000


@pytest.mark.extended
def test_a_deleted_answer_is_asked_again_and_only_that_one(tmp_path):
    rows_in = [{"id": str(number), "text": text} for number, text in enumerate(texts(12))]
    whole = recipe(tmp_path, {"web": rows_in})
    with serving(latency=0.0) as server, limits(server):
        before = made(tmp_path / "home", whole)["annotate"]
        bytes_before = parts(before)
        victim = sorted((tmp_path / "home" / "answers").rglob("*.json"))[5]
        victim.unlink()
        for path in Path(before.folder).rglob("*"):
            if path.is_file():
                path.unlink()
        again = made(tmp_path / "home", whole)["annotate"]
        assert not again.reused
        assert parts(again) == bytes_before
        assert server.bill()["requests"] == 13 and server.bill()["distinct"] == 12
        # a damaged one is not taken for an answer
        victim.write_bytes(victim.read_bytes().replace(b"grade", b"grape"))
        for path in Path(again.folder).rglob("*"):
            if path.is_file():
                path.unlink()
        with pytest.raises(Exception, match="is damaged. Delete it to ask again"):
            made(tmp_path / "home", whole)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"prompt": {**PROMPT, "user": "{{ document }} {{ nothing }}"}}, "nothing"),
        (
            {"by": ["nothing"], "of": 5},
            "add the step that gives it before it, or list a column of a source in its `columns`",
        ),
        ({"by": ["source"]}, "has `by` without `of`"),
        ({"prompt": "educatoinal"}, "there is no prompt 'educatoinal'; use one of "),
        ({"prompt": "summary"}, "is for rewrites; use one of educational, format, topic"),
        ({"prompt": {**PROMPT, "user": "{{ document"}}, "`user` is not a Jinja template: line 1"),
        ({"prompt": {**PROMPT, "user": "no document"}}, "add {{ document }}"),
        ({"prompt": {"user": "{{ document }}"}}, "has a prompt without `answer`"),
        ({"prompt": {**PROMPT, "answer": {"Grade": {"type": "integer"}}}}, "use lowercase letters"),
        ({"prompt": {**PROMPT, "answer": {"grade": {"type": "int"}}}}, "give one of integer, number, boolean, string"),
        ({"prompt": {**PROMPT, "answer": {"grade": {"type": "string", "minimum": 0}}}}, "has minimum for a string"),
        ({"prompt": {**PROMPT, "user": "{{ document | shorten }}"}}, "No filter named 'shorten'"),
        ({"prompt": {**PROMPT, "answer": {"problem": {"type": "string"}}}}, "has a value problem"),
        ({"options": {"n": 3}}, "has n, which the step sets; remove it"),
        ({"step": "annotate-web"}, "annotate"),
    ],
)
def test_check_names_what_is_wrong(tmp_path, change, sentence):
    whole = recipe(tmp_path, {"web": [{"text": "x"}]}, **change)
    (tmp_path / "recipe.yaml").write_text(json.dumps(whole))
    findings = check(tmp_path / "recipe.yaml", MachineSettings(home=str(tmp_path / "home"))).findings
    assert len(findings) == 1 and sentence in str(findings[0]), findings


@pytest.mark.extended
def test_an_answer_that_is_deleted_while_a_stage_is_made_has_a_fix_that_works(tmp_path):
    given = recipe(tmp_path, {"web": [{"id": str(n), "text": text} for n, text in enumerate(texts(5))]})
    with serving(latency=0.01) as server, limits(server, concurrency=3):
        stage = made(tmp_path / "home", given)["annotate"]
        before = parts(stage)
        # as after a kill between the phase that asks and the one that reads the answers
        folder = Path(stage.folder)
        (folder / "manifest.json").unlink()
        for mark in (folder / "done").glob("annotate-*"):
            mark.unlink()
        next((tmp_path / "home" / "answers").rglob("*.json")).unlink()
        with pytest.raises(LookupError, match="Remove the folder (.*) and run again") as raised:
            made(tmp_path / "home", given)
        named = re.search("Remove the folder (.*) and run again", str(raised.value))
        assert named is not None and Path(named[1]) == folder
        shutil.rmtree(named[1])
        assert parts(made(tmp_path / "home", given)["annotate"]) == before
        assert server.bill()["requests"] == 6
