"""What recipes are judged by: nothing without being asked, and no recipe's sources alone."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.variants import variant
from gristmill.flows.stages.evaluation.judge import (
    check_judges,
    clean_recipe,
    judged_sets,
    of_other_sources,
    renamed_sets,
    set_names,
    source_sets,
)

BASE = load(
    {
        "name": "base",
        "sources": [{"name": "web", "jsonl": ["a"]}, {"name": "books", "jsonl": ["b"]}],
        "steps": [{"step": "extract"}, {"step": "gopher_quality"}],
    }
)


def of(**sources: str):
    given = BASE.model_dump(mode="json", exclude_unset=True)
    return load(given | {"name": "other", "sources": [{"name": n, "jsonl": [at]} for n, at in sources.items()]})


def test_sources_that_recipes_share_are_one_set_and_others_have_names_of_their_own():
    shorter = variant(BASE, "gopher_quality.min_words=9").recipe
    other = of(crawl="a", web="c", news="d")
    found = [(each.name, each.recipe, each.source) for each in source_sets([BASE, shorter, other])]
    assert found == [("web", 0, "web"), ("books", 0, "books"), ("web-2", 2, "web"), ("news", 2, "news")]
    assert source_sets([BASE, shorter]) == source_sets([BASE])
    said = list(renamed_sets({"base": BASE, "shorter": shorter, "mine": other}))
    assert said == ["the evaluation set web-2 is the source web as the recipe mine reads it"]
    plain = variant(BASE, "extract.engine=plain").recipe
    assert set_names([BASE, plain], "texts.jsonl") == ("books", "books-2", "clean", "web", "web-2")


def test_recipes_with_the_same_sources_count_once():
    shorter, renamed = variant(BASE, "gopher_quality.min_words=9").recipe, of(b="b", crawl="a")
    other = of(web="c")
    assert of_other_sources([BASE, shorter, renamed, other, other]) == [BASE, other]


def test_nothing_judges_without_being_named():
    names = ("books", "web")
    with pytest.raises(ValueError, match="Extracted documents of books, web are available, but they contain"):
        judged_sets(names, [])
    assert judged_sets(names, ["extracted"]) == names
    assert judged_sets(("books", "clean", "web"), []) == ("clean",)
    assert judged_sets(("books", "clean", "web"), ["clean", "extracted"]) == ("clean", "books", "web")
    with pytest.raises(ValueError, match="unknown evaluation set wep; did you mean `web`"):
        judged_sets(names, ["wep"])
    with pytest.raises(ValueError, match="^--judge task:quiz: there are no tasks; add a folder with --tasks"):
        judged_sets(names, ["task:quiz"])


def test_a_source_may_not_be_called_what_stands_for_all(tmp_path):
    settings = MachineSettings(home=str(tmp_path))
    with pytest.raises(ValueError, match="^a source is called extracted, which is reserved for all sources"):
        check_judges(settings, [of(extracted="a")], None, ["extracted"])
    with pytest.raises(
        ValueError, match="^a source of the recipe other is called clean, which is reserved for the clean text set"
    ):
        check_judges(settings, [of(clean="a")], "texts.jsonl", [])


def test_the_reference_text_is_what_the_harvest_has_written(tmp_path):
    settings = MachineSettings(home=str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match="reference.jsonl does not exist: `gristmill demo --crawl-only` writes it"
    ):
        clean_recipe(settings, BASE, "reference")
    path = Path(settings.local_folder, "harvest", "reference.jsonl")
    path.parent.mkdir(parents=True)
    path.write_text('{"url": "https://a.example/", "text": "Prose."}\n')
    [source] = clean_recipe(settings, BASE, "reference").sources
    assert (source.jsonl, source.url_column) == ((str(path),), "url")
    [source] = clean_recipe(settings, BASE, "./reference").sources
    assert source.text == ("./reference/**/*.txt",)


@pytest.mark.extended
def test_the_command_ends_before_any_work_and_its_plan_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "2000")
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: r\nsources: [{{name: web, jsonl: ['{tmp_path}/a.jsonl']}}]\nsteps: [{{step: extract}}, {{step: c4}}]\n"
    )
    ended = CliRunner().invoke(app, ["decide", "ablate", str(recipe), "--raw"])
    assert ended.exit_code and "no evaluation set to judge by. Extracted documents of web are" in str(ended.exception)
    assert not (tmp_path / "home" / "stages").exists()
    shown = CliRunner().invoke(app, ["decide", "ablate", str(recipe), "--raw", "--plan"])
    assert shown.exit_code == 0, shown.output
    assert "decision: r against raw" in shown.output and "no evaluation set to judge by" in shown.output
    shown = CliRunner().invoke(
        app, ["decide", "ablate", str(recipe), "--raw", "--plan", "--judge", "web", "--resample"]
    )
    assert shown.exit_code == 0 and "no evaluation set" not in shown.output
    refused = CliRunner().invoke(app, ["decide", "ablate", str(recipe), "--raw", "--judge", "web", "--price", "2"])
    assert "--price needs --plan, because models are trained on this machine" in str(refused.exception)
    refused = CliRunner().invoke(app, ["decide", "ablate", str(recipe), "--raw", "--plan", "--devices", "8"])
    assert "--devices 8 needs --device. Add the name of the GPU" in str(refused.exception)
