"""Recipes that differ in one thing, and the sentences about settings and steps that there are not."""

import pytest

from gristmill.flows.experiments.decisions.plan import arms
from gristmill.flows.experiments.options import Candidates
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.variants import difference, raw, unfiltered, variant, without
from gristmill.flows.reports.whatif import changed, parsed

GIVEN = {
    "name": "mill",
    "sources": [{"name": "web", "warc": ["web/*.warc.gz"]}, {"name": "books", "text": ["books/*.txt"]}],
    "steps": [
        {"step": "url"},
        {"step": "extract"},
        {"step": "normalize"},
        {"step": "language", "keep": ["en"]},
        {"step": "gopher_quality", "languages": {"de": {"min_alpha_words": 0.6}}},
        {"step": "minhash"},
    ],
    "mixture": {"weights": {"web": 1}},
}


@pytest.fixture
def recipe():
    return load(GIVEN)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("minhash.threshold=0.9", lambda r: r.steps[5].threshold == 0.9),
        ("steps.minhash.threshold=null", lambda r: r.steps[5].threshold is None),
        ("language.keep=[en, de]", lambda r: r.steps[3].keep == ("en", "de")),
        ("seed=5", lambda r: r.seed == 5),
        ("mixture.weights.books=2", lambda r: r.mixture.weights == {"web": 1, "books": 2}),
        ("mixture.max_epochs=1", lambda r: r.mixture.max_epochs == 1),
        ("model.dim=64", lambda r: r.model.dim == 64),
        ("sources.books.text=[other/*.txt]", lambda r: r.sources[1].text == ("other/*.txt",)),
        ("gopher_quality.languages.de.min_alpha_words=0.5", lambda r: "0.5" in str(r.steps[4].languages["de"])),
    ],
)
def test_a_variant_differs_in_the_setting_alone(recipe, setting, value):
    found = variant(recipe, setting)
    assert found.label == setting and found.recipe.name == recipe.name
    assert value(found.recipe) and not value(recipe)
    changed = [key for key in type(recipe).model_fields if getattr(found.recipe, key) != getattr(recipe, key)]
    assert len(changed) == 1
    if changed == ["steps"]:
        assert sum(one != other for one, other in zip(found.recipe.steps, recipe.steps, strict=True)) == 1
    assert load(GIVEN) == recipe, "the recipe itself is as it was"


def test_several_settings_are_one_variant(recipe):
    found = variant(recipe, "minhash.threshold=0.9", "seed=2")
    assert found.label == "minhash.threshold=0.9, seed=2"
    assert (found.recipe.steps[5].threshold, found.recipe.seed) == (0.9, 2)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            "minhash.treshold=0.9",
            "steps.minhash.treshold: is an unknown key, with the value 0.9; did you mean `thresho",
        ),
        ("minhash.threshold=2", "steps.minhash.threshold: is 2; give a number of at most 1"),
        ("minhsh.threshold=0.9", "minhsh: is neither a step nor a key of the recipe; did you mean `minhash`?"),
        ("zzz=1", "zzz: is neither a step nor a key of the recipe; known names: url, extract, "),
        ("mixture.weights.wb=1", "mixture.weights.wb: no source is called wb; did you mean `web`?"),
        ("steps.qual.epochs=1", "steps: has no entry qual; known entries: url, "),
        ("sources.wep.warc=[a]", "sources: has no entry wep; did you mean `web`?"),
        ("seed.of=1", "seed: is 1, which has no nested keys"),
        ("minhash.threshold.of=1", "steps.minhash.threshold: is 0.8, which has no nested keys"),
        ("minhash.threshold.of.it=1", "steps.minhash.threshold: is 0.8, which has no nested keys"),
        ("minhash.threshold", "is not a setting; write step.setting=value"),
        ("=1", "is not a setting"),
        ("seed=[1", "has a value that is not valid YAML"),
        ("minhash.bands=[3]", "steps.minhash.bands: is [3]; give a whole number"),
    ],
)
def test_what_is_no_setting_is_one_sentence_that_names_it(recipe, setting, sentence):
    with pytest.raises(RecipeError) as error:
        variant(recipe, setting)
    first = str(error.value).splitlines()[0]
    assert first.startswith(f"{setting}: ") and sentence in first, first


def test_a_recipe_without_a_step(recipe):
    found = without(recipe, "gopher_quality")
    assert found.label == "without gopher_quality"
    assert found.recipe.steps == (*recipe.steps[:4], recipe.steps[5])


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (
            "quality",
            "without quality: steps: there is no step `quality` in the recipe mill; did you mean `gopher_quality`",
        ),
        ("zzz", "there is no step `zzz` in the recipe mill; the steps are url, extract, normalize, "),
        ("extract", "steps: the pages of web need the step `extract`"),
        ("language", "`gopher_quality` has settings by language: put the step `language` before it"),
    ],
)
def test_a_step_that_cannot_be_left_out(recipe, step, sentence):
    with pytest.raises(RecipeError) as error:
        without(recipe, step)
    assert len(error.value.findings) == 1 and sentence in str(error.value), str(error.value)


def test_raw_has_the_steps_alone_that_make_documents(recipe):
    assert raw(recipe).label == "raw"
    assert raw(recipe).recipe == recipe.model_copy(update={"steps": recipe.steps[:3]})
    assert unfiltered(recipe) == recipe.model_copy(update={"steps": recipe.steps[1:3], "mixture": None})
    measured = variant(recipe, "mixture.by=[source, language]", "mixture.weights={web/en: 1}").recipe
    assert unfiltered(measured) == unfiltered(recipe), "whatever its mixture reads of later steps"
    with pytest.raises(RecipeError, match="^raw: mixture: groups documents by language, which no step measures"):
        raw(measured)


WHERE = {
    "name": "chosen",
    "sources": [{"name": "web", "jsonl": ["a.jsonl"]}],
    "steps": [{"step": "extract"}, {"step": "where", "keep": "characters > 200"}],
}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("characters > 300", "characters > 300"),
        ("title == 'a: b'", "title == 'a: b'"),
        ("title == 'a # b'", "title == 'a # b'"),
        ("'mill' in title", "'mill' in title"),
        ("'mill' in title and url != 'b'", "'mill' in title and url != 'b'"),
        ('"characters > 300"', "characters > 300"),
        ("'characters > 300'", "characters > 300"),
        ("['a'] == 5 or status == 200", "['a'] == 5 or status == 200"),
        ("not status == 404", "not status == 404"),
        ("-status < -5", "-status < -5"),
    ],
)
def test_an_expression_is_read_as_it_is(given, read):
    """Quotes, colons and `#` are its own, where they would be YAML's."""
    for name in ("where.keep", "steps.where.keep"):
        [*_, step] = variant(load(WHERE), f"{name}={given}").recipe.steps
        assert (step.keep, step.drop) == (read, None)
    assert parsed([f"where.keep={given}"]) == {"where.keep": read}


def test_drop_takes_the_place_of_keep():
    [*_, step] = variant(load(WHERE), "where.drop=characters < 9").recipe.steps
    assert (step.keep, step.drop) == (None, "characters < 9")
    [*_, step] = changed(load(WHERE), {"where.drop": "characters < 9"}).steps
    assert (step.keep, step.drop) == (None, "characters < 9")
    assert arms(WHERE, Candidates(settings=["where.drop=characters < 9", "where.keep='a' in url"])).candidates == (
        "where.drop=characters < 9",
        "where.keep='a' in url",
    )


@pytest.mark.parametrize("given", ["where.keep=caracters > 3", "where.keep=characters is None", "where.keep=null"])
def test_a_wrong_expression_is_one_sentence(given):
    said = {
        "caracters > 3": "did you mean `characters`",
        "characters is None": "write `is null`",
        "null": "has neither",
    }
    for read in (lambda: variant(load(WHERE), given), lambda: changed(load(WHERE), parsed([given]))):
        with pytest.raises(ValueError, match=None) as found:
            read()
        assert said[given.partition("=")[2]] in str(found.value) and "\n" not in str(found.value)


def test_a_second_where_says_how_to_write_one():
    twice = WHERE | {"steps": [*WHERE["steps"], {"step": "c4"}, {"step": "where", "drop": "status == 404"}]}
    with pytest.raises(
        RecipeError, match="listed more than once; give the later one a different name, as `step: where_short`"
    ):
        load(twice)


TWO = WHERE | {"steps": [*WHERE["steps"], {"step": "c4"}, {"step": "where_found", "drop": "status == 404"}]}


def test_a_where_is_addressed_by_its_own_name():
    recipe = load(TWO)
    assert load(recipe.model_dump(mode="json")) == recipe
    assert [step.expression for step in recipe.steps[1::2]] == ["characters > 200", "status == 404"]
    [_, first, _, second] = variant(
        recipe, "where_found.keep=status == 'x: # y'", "where.drop=status is null"
    ).recipe.steps
    assert (first.keep, first.drop, second.keep, second.drop) == (None, "status is null", "status == 'x: # y'", None)
    [_, first, _, second] = changed(recipe, parsed(["where_found.drop=status > 399"])).steps
    assert (first.keep, second.drop) == ("characters > 200", "status > 399")
    [_, first, _] = without(recipe, "where_found").recipe.steps
    assert first.step == "where"
    assert difference(recipe, variant(recipe, "where_found.drop=status > 399").recipe) == [
        "@@ steps.where_found @@",
        "-drop: status == 404",
        "+drop: status > 399",
    ]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"step": "where_a", "kep": "status == 1"}], r"steps\.where_a\.kep: is an unknown key.*did you mean `keep`"),
        (
            [{"step": "where_a", "keep": "urll == ''"}],
            r"steps\.where_a\.keep: there is no column urll here; did you mean",
        ),
        (
            [{"step": "where_a", "keep": 3}],
            r"steps\.where_a\.keep: is 3; give text.*Documents are kept if it is true",
        ),
        ([{"step": "where_A", "keep": "status == 1"}], "there is no step 'where_A'; did you mean `where`"),
        ([{"step": "where_a", "drop": "status == 1"}] * 2, "`where_a` is listed more than once; give the later one"),
    ],
)
def test_what_is_wrong_with_a_named_where_is_one_sentence(steps, said):
    with pytest.raises(RecipeError, match=said):
        load(WHERE | {"steps": [{"step": "extract"}, *steps]})
