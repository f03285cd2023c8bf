"""Recipes that pages declare in JSON-LD: their ingredients and steps are in the text, and nothing else is added.

The pages are written as recipe plugins do: an article, a form, the recipe with units and names in elements of their
own, related recipes, a menu with names of ingredients.
"""

import json
import random
import re

import pytest

from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.extraction.rendering.recipes import Recipe, declared_recipes

STORY = (
    "My grandmother baked this bread every Saturday, and the whole street knew when it came out of her oven.",
    "She never wrote anything down, so it took me most of a winter, and a lot of flour, to find out how she did it.",
    "What matters is patience: the dough rests twice, and the oven must be hot before the bread goes in.",
)
INGREDIENTS = ("500 g strong wheat flour", "1½ tsp sea salt, finely ground", "320 ml lukewarm water", "7 g dry yeast")
TOPPING = ("2 tbsp sunflower seeds", "1 egg yolk (optional)")
STEPS = (
    "Mix the flour with the salt and the yeast, then pour in the water.",
    "Knead for ten minutes, cover the bowl, and leave the dough to rise for two hours.",
    "Bake at 230 degrees until the crust sounds hollow, about forty minutes.",
)
MENU = ("Flour", "Salt", "Water", "Yeast", "Seeds", "Egg", "Bread", "Cakes", "Soups", "About us", "Contact")
RELATED = ("Rye crackers with caraway", "Walnut rolls", "Sourdough for beginners", "Grandmother's plum cake")
STEP_FORMS = {
    "strings": list(STEPS),
    "one string": " ".join(STEPS),
    "steps": [{"@type": "HowToStep", "text": step} for step in STEPS],
    "sections": [{"@type": "HowToSection", "name": "Dough", "itemListElement": [{"text": step} for step in STEPS]}],
}


# By a box to tick in each line most of these lists look like forms: without the data half of the lines are dropped.
BOX = "<div class=checkbox>▢</div>"


def declared(steps: object = None, ingredients: object = (*INGREDIENTS, *TOPPING)) -> str:
    recipe = {"@type": "Recipe", "recipeIngredient": list(ingredients), "recipeInstructions": steps or list(STEPS)}
    return f'<script type="application/ld+json">{json.dumps({"@graph": [{"@type": "WebPage"}, recipe]})}</script>'


def item(text: str, box: str = "") -> str:
    number, unit, name = text.split(" ", 2)
    return f'<li class="wprm-recipe-ingredient">{box}<span>{number}</span> <span>{unit}</span> <span>{name}</span></li>'


def page(data: str, box: str = BOX, of: tuple[str, ...] = INGREDIENTS) -> str:
    menu = "".join(f'<li><a href="/{name}">{name}</a></li>' for name in MENU)
    related = "".join(f'<div class="card"><a href="/{name}"><h4>{name}</h4></a></div>' for name in RELATED)
    return (
        f'<html><head><title>Bread</title>{data}</head><body><nav><ul class="menu">{menu}</ul></nav><main><article>'
        f"<h1>Grandmother's bread</h1>{''.join(f'<p>{text}</p>' for text in STORY)}</article>"
        '<div class="wprm-recipe-container"><form><label>Email</label><button>Send me this recipe</button></form>'
        f"<h3>Ingredients</h3><ul>{''.join(item(text, box) for text in of)}</ul>"
        f"<h4>For the topping</h4><ul>{''.join(item(text, box) for text in TOPPING)}</ul>"
        f"<h3>Instructions</h3><ol>{''.join(f'<li>{text}</li>' for text in STEPS)}</ol></div></main>"
        f'<div class="related">{related}</div><footer><p>Copyright 2024 The Bakers. All rights reserved.</p></footer>'
        "</body></html>"
    )


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def has(text: str, line: str) -> bool:
    return f" {' '.join(words(line))} " in f" {' '.join(words(text))} "


@pytest.mark.parametrize("box", ["", BOX])
@pytest.mark.parametrize("steps", STEP_FORMS.values(), ids=STEP_FORMS)
def test_declared_parts_are_kept_with_their_titles(steps, box):
    text = main_text(page(declared(steps), box))
    for line in (*STORY, *INGREDIENTS, *TOPPING, *STEPS, "Ingredients", "For the topping", "Instructions"):
        assert has(text, line), line
    for line in (*RELATED, "Contact", "Send me this recipe", "All rights reserved"):
        assert not has(text, line), line
    assert "▢" not in text


def test_lines_are_found_in_another_order_of_their_words():
    turned = [" ".join(reversed(words(text))) for text in (*INGREDIENTS, *TOPPING)]
    assert all(has(main_text(page(declared(ingredients=turned))), text) for text in (*INGREDIENTS, *TOPPING))


def test_a_line_that_is_not_declared_is_kept_among_those_that_are():
    extra = (*INGREDIENTS[:3], "3 drops rose oil", *INGREDIENTS[3:])
    beside = page(declared(), of=extra).replace("wprm-recipe-container", "sidebar widget related")
    assert has(main_text(beside), "3 drops rose oil")


def test_a_page_that_declares_another_recipe_stays_as_it_is():
    rng = random.Random(0)
    other = [f"{rng.randint(2, 9)} cups {''.join(rng.choices('bcdfghjk', k=9))}" for _ in range(6)]
    steps = ["Stir zucchini jam vigorously.", "Freeze everything overnight, unwrapped."]
    assert main_text(page(declared(steps, other))) == main_text(page(""))


def test_a_menu_of_ingredients_is_not_their_list():
    """Where a page shows a recipe's ingredients only as names in its menu, the text is that without the data."""
    recipe = re.compile(r'<div class="wprm.*?</div></main>', re.DOTALL)
    names = [f"{name}, 100 g" for name in MENU[:6]]
    assert main_text(recipe.sub("</main>", page(declared(ingredients=names)))) == main_text(
        recipe.sub("</main>", page(""))
    )


def test_recipes_are_read_from_any_depth_and_none_of_an_index():
    one = {"@type": ["Recipe"], "description": "<p>Good&amp;plain</p>", "recipeIngredient": "a cup of tea"}
    nested = {"mainEntity": [{"about": one}]}
    script = '<script type="application/ld+json">{}</script>'
    assert declared_recipes(script.format(json.dumps(nested))) == [Recipe(["Good&plain"], ["a cup of tea"], [])]
    assert declared_recipes(script.format(json.dumps([one] * 5))) != []
    assert declared_recipes(script.format(json.dumps([one] * 6))) == []
    assert declared_recipes('<script type="application/ld+json">{"recipeIngredient": [</script>') == []


@pytest.mark.parametrize(
    "data",
    ['{"recipeIngredient": 5}', '{"recipeIngredient": ["a"', "[" * 5000 + '"recipeIngredient"', '{"@graph": {}}'],
)
def test_data_that_are_no_recipe_change_nothing(data):
    assert main_text(page(f'<script type="application/ld+json">{data}</script>')) == main_text(page(""))


@pytest.mark.parametrize("body", ["", "<p>x</p>", f"<p>{'word ' * 5000}</p>"], ids=["empty", "short", "long"])
def test_a_page_that_does_not_show_its_recipe_stays_as_it_is(body):
    odd = declared([{"text": 5}, None], ["7 g \ud800 yeast for a loaf of bread"])
    assert main_text(odd + body) == main_text(body)
