"""What differs between two recipes, beside their settings compared one by one."""

from itertools import permutations

import pytest
import yaml

from gristmill.flows.recipe import variants
from gristmill.flows.recipe.recipe import RECIPES, load
from gristmill.flows.recipe.variants import difference

SHIPPED = sorted(path.stem for path in RECIPES.glob("*.yaml"))


def changed(lines: list[str], sign: str) -> list[str]:
    return [line[1:] for line in lines if line[0] == sign]


@pytest.mark.parametrize(
    ("setting", "lines"),
    [
        ("minhash.threshold=0.9", ["@@ steps.minhash @@", "-threshold: 0.8", "+threshold: 0.9"]),
        ("seed=3", ["@@ seed @@", "-seed: 17", "+seed: 3"]),
        ("model.dim=64", ["@@ model @@", "-dim: 128", "+dim: 64"]),
        ("takedowns=[a.txt]", ["@@ takedowns @@", "-takedowns: []", "+takedowns: [a.txt]"]),
    ],
)
def test_one_setting(setting, lines):
    base = load("demo")
    assert difference(base, variants.variant(base, setting).recipe) == lines
    assert difference(base, base) == []


def test_a_step_left_out_has_its_neighbours_and_what_it_is_given():
    base = load("demo")
    assert difference(base, variants.without(base, "gopher_quality").recipe) == [
        "@@ steps @@",
        " step: gopher_repetition",
        "-step: gopher_quality",
        "-  min_alpha_words: 0.7",
        " step: content_dedup",
    ]


def test_steps_in_another_order_are_listed_without_their_settings():
    base = load("demo")
    steps = list(base.steps)
    first, second = steps[2:4]
    steps[2:4] = [second, first]
    lines = difference(base, base.model_copy(update={"steps": tuple(steps)}))
    moved = changed(lines, "+")
    assert lines[0] == "@@ steps @@" and moved == changed(lines, "-") and len(moved) == 1
    assert moved[0] in (f"step: {first.step}", f"step: {second.step}")


def test_a_long_list_has_a_line_for_each_entry():
    base = load("demo")
    files = [f"https://crawl.example/{number:05d}.warc.gz" for number in range(40)]
    [one, other] = (
        variants.variant(base, f"sources.modules.warc={yaml.safe_dump(given, default_flow_style=True)}").recipe
        for given in (files, [*files[:20], *files[21:], "https://crawl.example/new.warc.gz"])
    )
    assert difference(one, other) == [
        "@@ sources.modules @@",
        f"-warc: - {files[20]}",
        "+warc: - https://crawl.example/new.warc.gz",
    ]


@pytest.mark.parametrize(("one", "other"), [pair for pair in permutations(SHIPPED, 2) if "demo" in pair])
def test_every_setting_that_differs_is_there_once_and_no_other(one, other):
    base, candidate = load(one), load(other)
    lines = difference(base, candidate)
    heads: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("@@ "):
            here = heads.setdefault(line[3:-3], [])
        else:
            here.append(line)
    for key, named in (("steps", "step"), ("sources", "name")):
        ours, theirs = ({getattr(each, named): each for each in getattr(r, key)} for r in (base, candidate))
        listed = heads.pop(key, [])
        for name in {*ours} ^ {*theirs}:
            assert f"{'-' if name in ours else '+'}{named}: {name}" in listed
        for name in {*ours} & {*theirs}:
            before, now = (each[name].model_dump(mode="json") for each in (ours, theirs))
            differing = {field for field in {**before, **now} if before.get(field) != now.get(field)}
            shown = heads.pop(f"{key}.{name}", [])
            assert {line[1:].split(":")[0].split(".")[0] for line in shown} == differing
            assert not {line[1:] for line in shown if line[0] == "-"} & {line[1:] for line in shown if line[0] == "+"}
    before, now = (recipe.model_dump(mode="json") for recipe in (base, candidate))
    assert set(heads) == {key for key in before if key not in ("steps", "sources", "name") and before[key] != now[key]}
