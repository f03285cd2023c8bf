"""Prompts whose template is in a file: the key has its content, and a finished run is read without it."""

import json

import pytest
import yaml

import gristmill
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from tests.language_model.asking import PROMPT, limits, made, recipe, rows, texts
from tests.language_model.serving import serving
from tests.language_model.test_annotate_runs import KEY, run

USER = PROMPT["user"]
REST = {"system": PROMPT["system"], "answer": PROMPT["answer"]}


def with_file(folder, template: str | bytes | None = USER, **step) -> dict:
    """A recipe file beside `prompts/grade.j2`."""
    rows_in = [{"id": str(number), "text": text} for number, text in enumerate(texts(12))]
    whole = recipe(folder, {"web": rows_in}, prompt={"file": "prompts/grade.j2", **REST}, **step)
    (folder / "prompts").mkdir(exist_ok=True)
    if template is not None:
        path = folder / "prompts" / "grade.j2"
        path.write_bytes(template if isinstance(template, bytes) else template.encode())
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(whole))
    return path


def test_the_key_has_the_content_and_not_the_place(tmp_path):
    path, home = with_file(tmp_path), tmp_path / "home"
    inline = json.loads(json.dumps(yaml.safe_load(path.read_text())))
    inline["steps"][1]["prompt"] = PROMPT
    with serving(latency=0.0) as server, limits(server):
        first = made(home, load(path))["annotate"]
        assert all(row["annotate_grade"] is not None for row in rows(first))
        assert made(home, inline)["annotate"].key == first.key, "as a prompt in the recipe"
        (tmp_path / "prompts").rename(tmp_path / "moved")
        path.write_text(path.read_text().replace("prompts/", "moved/"))
        again = made(home, load(path))["annotate"]
        assert again.reused and again.key == first.key and server.bill()["requests"] == 12
        (tmp_path / "moved" / "grade.j2").write_text(f"Be strict. {USER}")
        other = made(home, load(path))["annotate"]
        assert other.key != first.key and server.bill()["requests"] == 24
        assert all("Be strict." in each["body"]["messages"][1]["content"] for each in server.requests()[12:])


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (None, "prompts/grade.j2 does not exist; correct the path or pattern; relative paths start in the folder"),
        ("no document", "grade.j2 is not valid: `user` does not contain the document; add {{ document }}"),
        ("{{ document", "grade.j2 is not valid: `user` is not a Jinja template: line 1"),
        (b"\xff\xfe {{ document }}", "grade.j2 is not UTF-8; save it as UTF-8"),
        ("{{ document }} {{ nothing }}", "nothing"),
    ],
)
def test_check_names_what_is_wrong_with_a_file(tmp_path, template, sentence):
    path = with_file(tmp_path, template)
    findings = check(path, MachineSettings(home=str(tmp_path / "home"))).findings
    assert len(findings) == 1 and sentence in str(findings[0]), findings


def test_what_is_wrong_beside_the_file_is_found_without_it(tmp_path):
    for change, sentence in (
        ({"answer": {}}, "has a prompt without `answer`"),
        ({"answer": {"Grade": {"type": "integer"}}}, "use lowercase letters"),
        ({"user": USER}, "user: is an unknown key"),
    ):
        path = with_file(tmp_path, None)
        whole = yaml.safe_load(path.read_text())
        whole["steps"][1]["prompt"] |= change
        path.write_text(yaml.safe_dump(whole))
        with pytest.raises(RecipeError, match=sentence):
            load(path)


def test_rewrites_take_a_file_too(tmp_path):
    with_file(tmp_path)
    (tmp_path / "web.yaml").write_text(yaml.safe_dump({**yaml.safe_load((tmp_path / "recipe.yaml").read_text())}))
    whole = yaml.safe_load((tmp_path / "web.yaml").read_text())
    (tmp_path / "web.yaml").write_text(yaml.safe_dump({**whole, "steps": whole["steps"][:1]}))
    rewrite = {"recipe": "web.yaml", "model": "planted", "language": None, "prompt_words": None, "max_ratio": 50}
    second = {"name": "second", "sources": [{"name": "qa", "rewrite": rewrite}], "steps": []}
    path, home = tmp_path / "second.yaml", tmp_path / "home"
    settings = MachineSettings(home=str(home))

    def findings(prompt, **more) -> list[str]:
        second["sources"][0]["rewrite"] = {**rewrite, "prompt": prompt, **more}
        path.write_text(yaml.safe_dump(second))
        return [str(each) for each in check(path, settings).findings]

    (tmp_path / "rewrite.j2").write_text("Write about <text>{{ text }}</text> in {{ style }}.")
    named = {"file": "rewrite.j2"}
    [unused] = findings(named, values={"style": "verse", "tone": "calm"})
    assert "sources.qa.rewrite.values: has the value tone, which the prompt does not read" in unused
    [missing] = findings({"file": "gone.j2"}, values={"style": "verse"})
    assert "sources.qa.rewrite.prompt.file" in missing and "gone.j2 does not exist" in missing
    assert findings(named, values={"style": "verse"}) == []
    with serving(latency=0.0, mode="rewrite") as server, limits(server):
        first = made(home, load(path))["documents"]
        assert all("in verse." in each["body"]["messages"][-1]["content"] for each in server.requests())
        inline = {"user": (tmp_path / "rewrite.j2").read_text()}
        assert findings(inline, values={"style": "verse"}) == []
        again = made(home, load(path))["documents"]
        assert again.key == first.key and server.bill()["requests"] == 12
        assert {row["rewrite_prompt"] for row in rows(first)} == {row["rewrite_prompt"] for row in rows(again)}


@pytest.mark.extended
def test_a_finished_run_is_read_without_the_file(tmp_path):
    path, home = with_file(tmp_path), tmp_path / "home"
    with serving(latency=0.0, key=KEY) as server:
        run(path, home, server)
    before = gristmill.open(str(path), home=str(home))
    (tmp_path / "prompts" / "grade.j2").unlink()
    after = gristmill.open(str(path), home=str(home))
    assert [stage.key for stage in after.corpus.stages] == [stage.key for stage in before.corpus.stages]
    assert len(after.documents) == 12
