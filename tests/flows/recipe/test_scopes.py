"""Steps for some of the sources: what a recipe accepts, what it refuses with which remedy, and how it is written."""

import jsonschema
import pytest
import yaml

from gristmill.flows.recipe import reference
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import Recipe, dump, load
from gristmill.flows.recipe.variants import texts_alone, variant, without
from gristmill.flows.reports.whatif import changed
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.rules.gopher_quality import GopherQuality

SOURCES = ("web", "wiki", "legal")


def recipe(*steps: dict, sources: tuple[str, ...] = SOURCES, **more) -> dict:
    given = [{"name": name, "jsonl": [f"{name}.jsonl"]} for name in sources]
    return {"name": "scoped", "sources": given, "steps": list(steps)} | more


def refusal(*steps: dict, **more) -> str:
    with pytest.raises(RecipeError) as caught:
        load(recipe(*steps, **more))
    return str(caught.value)


def test_a_step_applies_to_the_sources_that_it_names():
    read = load(recipe({"step": "gopher_quality", "only": ["web", "wiki"]}, {"step": "minhash", "except": ["legal"]}))
    quality, minhash = read.steps
    assert quality.exempt(SOURCES) == minhash.exempt(SOURCES) == ("legal",)
    assert load(recipe({"step": "minhash"})).steps[0].exempt(SOURCES) == ()


def test_no_trace_of_the_settings_where_they_are_not_set():
    """So no key of a stage changes, whose record has the step."""
    written = load(recipe({"step": "gopher_quality"}, {"step": "minhash"})).model_dump(mode="json")
    for step in written["steps"]:
        assert not {"only", "except", "within"} & {*step}
    assert not {"only", "except"} & {*GopherQuality().measuring().model_dump()}


def test_a_recipe_is_written_and_read_again():
    steps = (
        {"step": "gopher_quality", "except": ["legal"]},
        {"step": "gopher_quality-legal", "only": ["legal"], "min_words": 20},
        {"step": "minhash", "within": "source"},
    )
    read = load(recipe(*steps))
    assert load(yaml.safe_load(dump(read))) == read
    in_python = [
        GopherQuality(**{"except": ["legal"]}),
        GopherQuality(step="gopher_quality-legal", only=("legal",), min_words=20),
        MinHash(within="source"),
    ]
    assert Recipe.model_validate(recipe() | {"steps": in_python}) == read


def test_an_editor_knows_the_settings():
    schema = jsonschema.Draft202012Validator(reference.schema())
    good = recipe({"step": "gopher_quality", "only": ["web"]}, {"step": "gopher_quality-legal", "except": ["web"]})
    assert schema.is_valid(good)
    assert not schema.is_valid(recipe({"step": "gopher_quality", "only": "web"}))
    assert not schema.is_valid(recipe({"step": "gopher_quality", "excpt": ["web"]}))
    assert not schema.is_valid(recipe({"step": "minhash-legal"}))


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ({"step": "minhash", "except": ["legl"]}, "no source is called legl; did you mean `legal`?"),
        ({"step": "minhash", "only": ["web"], "except": ["legal"]}, "has both `only: [web]` and `except: [legal]`"),
        ({"step": "minhash", "only": []}, "only"),
        ({"step": "minhash", "except": [*SOURCES]}, "leaves no source for `minhash`"),
        ({"step": "minhash", "within": "source", "earlier": ["x"]}, "`within` is source, but `earlier` is"),
        ({"step": "minhash-legal"}, "minhash"),
        ({"step": "gopher_quality-Legal"}, "a hyphen, and lowercase letters"),
        ({"step": "quality", "reference": ["web"], "only": ["web"]}, "nothing to score"),
    ],
    ids=str,
)
def test_lists_without_a_meaning_are_refused(step, sentence):
    assert sentence in refusal(step)


def test_pages_need_the_step_extract():
    sources = [{"name": "crawl", "warc": ["x.warc"]}, {"name": "table", "jsonl": ["x.jsonl"]}]
    with pytest.raises(RecipeError, match="leaves out crawl, whose pages have no text"):
        load({"name": "scoped", "sources": sources, "steps": [{"step": "extract", "except": ["crawl"]}]})
    load({"name": "scoped", "sources": sources, "steps": [{"step": "extract", "except": ["table"]}]})


def test_a_step_may_repeat_for_other_sources_under_another_name():
    web, legal = {"step": "c4", "except": ["legal"]}, {"step": "c4-legal", "only": ["legal"]}
    assert [step.step for step in load(recipe(web, legal)).steps] == ["c4", "c4-legal"]
    assert "give the later one a name, as `step: c4-2`" in refusal(web, {"step": "c4", "only": ["legal"]})
    assert "`c4-legal` and `c4` both apply to web, wiki" in refusal(web, {"step": "c4-legal"})
    assert "can have this step only once" in refusal({"step": "minhash", "only": ["web"]}, {"step": "minhash"})


def test_a_step_that_reads_what_is_not_measured_for_a_source_is_refused():
    language = {"step": "language", "except": ["legal"]}
    sentence = refusal(language, {"step": "where", "keep": "language = 'en'"})
    assert "`where` reads language, which no step before it measures for legal" in sentence
    assert "add `except: [legal]` to `where`, or set `nulls` to keep or drop" in sentence
    load(recipe(language, {"step": "where", "keep": "language = 'en'", "except": ["legal"]}))
    load(recipe(language, {"step": "where", "keep": "language = 'en'", "nulls": "keep"}))
    by_language = {"step": "gopher_quality", "languages": {"de": {"min_words": 20}}}
    assert "measures for legal" in refusal(language, by_language)
    load(recipe(language, {**by_language, "only": ["web"]}))
    # another step of the kind measures it there
    load(recipe(language, {"step": "language-legal", "only": ["legal"]}, {"step": "where", "keep": "language = 'en'"}))


def test_an_arm_may_change_the_sources_of_a_step():
    base = load(recipe({"step": "gopher_quality"}, {"step": "minhash"}))
    assert variant(base, "minhash.except=[legal]").recipe.steps[1].exempt(SOURCES) == ("legal",)
    assert variant(base, "minhash.within=source").recipe.steps[1].within == "source"
    with pytest.raises(RecipeError, match="no source is called lgal; did you mean `legal`"):
        variant(base, "minhash.only=[lgal]")
    named = load(recipe({"step": "c4", "only": ["web"]}, {"step": "c4-legal", "only": ["legal"]}))
    assert [step.step for step in without(named, "c4").recipe.steps] == ["c4-legal"]
    assert variant(named, "c4-legal.only=[wiki]").recipe.steps[1].only == ("wiki",)


def test_a_replay_needs_stored_signals():
    base = load(recipe({"step": "gopher_quality", "only": ["web", "wiki"]}, {"step": "c4"}, {"step": "minhash"}))
    assert changed(base, {"gopher_quality.only": ["web"]}).steps[0].only == ("web",)
    with pytest.raises(ValueError, match="gopher_quality has not measured the documents of legal"):
        changed(base, {"gopher_quality.only": ["legal"]})
    with pytest.raises(ValueError, match="c4 cuts texts"):
        changed(base, {"c4.except": ["legal"]})
    with pytest.raises(ValueError, match="minhash looks at all documents together"):
        changed(base, {"minhash.except": ["legal"]})


def test_texts_of_other_sources_are_normalized():
    given = load(recipe({"step": "normalize", "except": ["legal"]}))
    [_, normalize] = texts_alone(given, {"mill": "mill.jsonl"}).steps
    assert normalize.exempt(["mill"]) == ()
