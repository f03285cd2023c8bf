"""Pages that a browser shows only after it has run scripts: their text is data or missing. And documents like them."""

import html
import json
from collections.abc import Iterator

from tests.golden.made.words import paragraph

_APP = '<div id="app"></div><noscript>You need to enable JavaScript to run this app.</noscript>'
_FOOTER = "<footer><p>© 2024 The Mill. All rights reserved.</p></footer>"
NOTES = (
    "We're sorry but mill doesn't work properly without JavaScript enabled. Please enable it to continue.",
    "Please enable JavaScript to continue using this application.",
    "Bitte aktivieren Sie JavaScript in Ihrem Browser, um diese Seite anzuzeigen.",
    "Veuillez activer JavaScript dans votre navigateur pour afficher cette page.",
    "Для просмотра этой страницы включите JavaScript в вашем браузере.",
    "このページを表示するには、JavaScriptを有効にしてください。",
    "Loading...",
    "Загрузка, подождите...",
    "Checking your browser before accessing mill.example. This process is automatic.",
    "Access Denied\nYou don't have permission to access this page on this server.\nReference #18.2d351ab8.155",
    "No tiene permiso para acceder a esta página.",
    "Welcome to nginx!\nFurther configuration is required.",
    "If you are not redirected, click here.",
    "This page uses frames, but your browser doesn't support them.",
    "We and our partners store and access information on a device, such as cookies.\nAccept all\nManage options",
    "Mit Ihrer Zustimmung verarbeiten wir und unsere Partner personenbezogene Daten auf dem Gerät.\nAlle akzeptieren",
    "© 2024 The Mill. All rights reserved.",
)
REAL = (
    "Access denied\nThe bridge was locked again, and the baker carried his flour around by the long road this morning.",
    "Loading is possible from seven to eleven. Please wait at the gate until the lamp is off.",
    "We accept all kinds of butter for these cookies. Roll the dough, and keep the tin away from children.",
    "To see our map, enable JavaScript. At the desk of the library we help with it on Mondays, and it costs nothing.",
)


def unrendered_pages() -> Iterator[str]:
    texts = [paragraph(f"data {number}", 3) for number in range(4)]
    body = "".join(f"<p>{text}</p>" for text in texts)
    article = {"@type": "NewsArticle", "headline": "The mill"}
    joined = "\n".join(texts)
    for value in (
        {**article, "articleBody": joined},
        [{"@type": "Organization"}, {"@graph": [{**article, "articleBody": html.escape(body)}]}],
        {"@type": "Recipe", "recipeInstructions": [{"@type": "HowToStep", "text": text} for text in texts]},
        {"@type": "JobPosting", "description": body},
        {**article, "articleBody": "too short"},
    ):
        yield _page(_APP + _FOOTER, f'<script type="application/ld+json">{_json(value)}</script>')
    yield _page(f"<main>{body}</main>", f'<script type="application/ld+json">{_json({"articleBody": joined})}</script>')
    yield _recipe(texts)
    broken = '{"articleBody": "' + joined + '",}'
    yield _page(_APP, f'<script type="application/LD+JSON">{broken}</script>')
    blocks = [{"type": "paragraph", "text": text} for text in texts]
    pieces = [[{"type": "text", "text": text[:30]}, {"type": "text", "text": text[30:]}] for text in texts]
    state = {
        "messages": {"note": "Put this item into your cart. Then pay at the till, please."},
        "post": {"body": body},
    }
    for value in (state, {"blocks": blocks}, {"content": [{"type": "paragraph", "content": run} for run in pieces]}):
        yield _page(_APP + f'<script id="__NEXT_DATA__" type="application/json">{_json({"props": value})}</script>')
        yield _page(_APP + f"<script>window.__INITIAL_STATE__={_json(value)};(function(){{}}())</script>")
        yield _page(f'<div id="app" data-page="{html.escape(json.dumps({"props": value}))}"></div>')
    names = "(function(a,b){return {data:[{text:[a,b]}],ok:!0}}(" + ",".join(map(_json, texts[:2])) + "))"
    yield _page(f"<div></div><script>window.__NUXT__={names}</script>")
    places = [{"data": 1}, {"paragraphs": 2}, [3, 4], *texts[:2]]
    yield _page(f'<div></div><script type="application/json" id="__NUXT_DATA__">{_json(places)}</script>')
    rows = [f'{number}:["$","p",null,{{"children":{json.dumps(text)}}}]\n' for number, text in enumerate(texts, 1)]
    yield _page("".join(f"<script>self.__next_f.push({_json([1, row])})</script>" for row in rows))
    yield _page(f"<noscript><article>{body}</article></noscript>")
    yield _page(f"<x-article><template shadowrootmode=open><article>{body}</article></template></x-article>")
    for note in (*NOTES, *REAL):
        yield _page("".join(f"<p>{html.escape(line)}</p>" for line in note.split("\n")))


def _page(body: str, head: str = "") -> str:
    return (
        f"<!doctype html><html><head><meta charset=utf-8><title>The mill</title>{head}</head><body>{body}</body></html>"
    )


def _json(value: object) -> str:
    return json.dumps(value).replace("</", "<\\/")


def _recipe(texts: list[str]) -> str:
    """A recipe that is shown, in what looks like a sidebar, and declared."""
    ingredients = ("500 g flour", "1½ tsp sea salt, ground", "320 ml lukewarm water", "7 g dry yeast", "1 egg yolk")
    steps = texts[2:]
    recipe = {"@type": "Recipe", "recipeIngredient": ingredients, "recipeInstructions": [{"text": s} for s in steps]}
    boxes = "".join(f"<li><div class=checkbox>▢</div><span>{text}</span></li>" for text in ingredients)
    cards = "".join(f"<li><a href=/{name}><h4>{name}</h4></a></li>" for name in ("Rolls", "Cakes", "Soups", "Tarts"))
    return _page(
        "<nav><ul><li><a href=/salt>Salt</a><li><a href=/yeast>Yeast</a></ul></nav>"
        f"<main><h1>Bread</h1><p>{texts[0]}</p><p>{texts[1]}</p></main>"
        f'<aside class="sidebar related"><ul>{cards}</ul><h3>Ingredients</h3><ul>{boxes}</ul><ul>{cards}</ul></aside>'
        f"<main><h3>Steps</h3><ol>{''.join(f'<li>{step}</li>' for step in steps)}</ol></main>{_FOOTER}",
        f'<script type="application/ld+json">{_json(recipe)}</script>',
    )
