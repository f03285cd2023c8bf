"""Texts that are only data of a page: which are read, and which pages stay as they are."""

import html
import json

import pytest

from gristmill.tasks.extraction.engines import ENGINES
from gristmill.tasks.extraction.literals import literal
from gristmill.tasks.extraction.page import extract_page
from gristmill.tasks.extraction.page_data import text_of_data
from gristmill.tasks.extraction.prose import joined, text_of

URL = "https://example.com/a"
TEXTS = (
    "The old mill stands where the river leaves the forest, and its wheel has not been still for two hundred years.",
    "Every morning the miller opens the gate, listens to the stones, and writes the level of the water into a book.",
    "In dry summers the village waits for rain, because without the mill there is no bread in any of its houses.",
)
BODY = "".join(f"<p>{text}</p>" for text in TEXTS)
APP = '<div id="app"></div><noscript>You need to enable JavaScript to run this app.</noscript>'


def extracted(page: str, engine: str = "blocks") -> dict:
    return extract_page(page.encode(), "text/html", "utf-8", URL, engine, "plain")


def script(value: object, attributes: str = 'type="application/ld+json"') -> str:
    return f"<script {attributes}>{json.dumps(value)}</script>"


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_declared_body_is_the_text_of_an_empty_page_for_every_engine(engine):
    result = extracted(APP + script({"@graph": [{"@type": "WebSite"}, {"articleBody": BODY}]}), engine)
    # trafilatura reads an articleBody itself
    assert result["engine"] in ("data", "trafilatura")
    assert result["text"].split() == " ".join(TEXTS).split()


JSON = 'type="application/json"'
NOTE = {"cart": "Put it into your cart. Then pay, please, at the till."}
CUT = [{"content": [{"nodeType": "text", "value": part} for part in (text[:9], text[9:])]} for text in TEXTS]
ROWS = [f"{number}:" + json.dumps(["$", "p", None, {"children": text}]) + "\n" for number, text in enumerate(TEXTS)]
STATES = {
    "Next.js": script({"props": {"messages": NOTE, "body": BODY}}, f'id="__NEXT_DATA__" {JSON}'),
    "an island": script([{"text": text} for text in TEXTS], JSON),
    "Nuxt 2": f"<script>window.__NUXT__={{data:[{{article:{{body:{json.dumps(BODY)}}}}}],a:!0,}}</script>",
    "Nuxt 2, a function": "<script>window.__NUXT__=(function(a,b,c){return {data:[{text:[a,b,c]}]}}("
    + ",".join(map(json.dumps, TEXTS))
    + "))</script>",
    "Nuxt 3": script([{"data": 1}, {"text": 2}, [3, 4, 5], *TEXTS], f'id="__NUXT_DATA__" {JSON}'),
    "Redux": f"<script>window.__PRELOADED_STATE__ = JSON.parse({json.dumps(json.dumps({'text': BODY}))})</script>",
    "Inertia": f'<div data-page="{html.escape(json.dumps({"props": {"body": BODY}}))}"></div>',
    "a stream": "".join(f"<script>self.__next_f.push({json.dumps([1, row])})</script>" for row in ROWS),
    "rich text": script({"content": CUT}, JSON),
    "noscript": f"<noscript><article>{BODY}</article></noscript>",
}


@pytest.mark.parametrize("page", STATES.values(), ids=STATES)
def test_the_state_of_a_framework_is_the_text_of_an_empty_page(page):
    result = extracted(f"<html><body>{page}</body></html>", "plain")
    assert [part.strip() for part in result["text"].split("\n\n")] == list(TEXTS)
    assert result["engine"] == "data"


def test_a_page_that_reads_well_stays_as_it_is():
    page = f"<html><body><article>{BODY}</article>{script({'articleBody': BODY + BODY.upper()})}</body></html>"
    assert extracted(page)["engine"] == "blocks"
    assert text_of_data(page, TEXTS[0] * 4, False) == ""
    assert text_of_data(page, "A teaser.", False)


@pytest.mark.extended
def test_data_that_are_no_text_leave_an_empty_page_empty():
    labels = {f"label_{number}": f"Choose the {number}th item of the list." for number in range(99)}
    for value in ({"labels": labels}, {"css": "p { color: red; }\n" * 50}, {"url": "https://a.example/" + "a" * 300}):
        assert extracted(APP + script(value, "type=application/json"))["rule"] == "page_shell"
    deep = "[" * 5000 + "]" * 5000
    for text in (deep, '{"articleBody": "' + "x" * 300, "{", "", '{"a":' * 2000, "[[[" + "1," * 300_000):
        page = f'{APP}<script type="application/ld+json">{text}</script><script>window.__STATE__={text}</script>'
        assert extracted(page)["rule"] == "page_shell"


def test_a_value_that_holds_itself_ends():
    payload = [{"a": 0, "b": 1}, [1, 0, 1]]
    assert extracted(APP + script(payload, "id=__NUXT_DATA__ type=application/json"))["rule"] == "page_shell"


def test_literals_of_scripts():
    assert literal("x = {a: 'b\\u0041', \"c\": [1, .5, -2, 0x10,], d: void 0, e: !1} + 1", 4) == {
        "a": "bA", "c": [1, 0.5, -2, 16], "d": None, "e": False,
    }  # fmt: skip
    assert literal("(function(a,b){return {x:a,y:[b,c]}}(1,'z'))") == {"x": 1, "y": ["z", None]}
    assert literal("{a: `raw\nline`, /* note */ b: new Date(5), // end\n c: 'it\\'s' + \" so\"}") == {
        "a": "raw\nline", "b": 5, "c": "it's so",
    }  # fmt: skip
    for broken in ("", "{", "[1", "{a:}", "{'a':1", "=", "[" * 500, "function"):
        with pytest.raises(ValueError):
            if isinstance(literal(broken), str | None):
                raise ValueError(broken)


def test_texts_are_without_tags_and_each_is_there_once():
    assert text_of("&lt;p&gt;Fish &amp;amp; chips&lt;/p&gt;") == "Fish & chips"
    assert text_of("a  b\r\n\r\n\r\nc") == "a b\n\nc"
    teaser = "The old mill stands where the river leaves ..."
    assert joined([teaser, TEXTS[0], TEXTS[0], "a", "a"]) == f"{TEXTS[0]}\n\na"


@pytest.mark.parametrize("begin", ["", "<!--", "//<!--", " // <![CDATA[", "<![CDATA["])
@pytest.mark.parametrize("end", ["", "-->", "\n//-->\n", "// ]]>", "]]>"])
def test_fences_of_scripts_are_no_part_of_them(begin, end):
    data = json.dumps({"articleBody": "\n".join(TEXTS)})
    page = f'{APP}<SCRIPT TYPE="APPLICATION/LD+JSON">{begin}\n{data}\n{end}</SCRIPT>'
    assert extracted(page)["text"] == "\n".join(TEXTS)


def test_names_of_states_begin_a_word():
    state = json.dumps({"article": {"body": " ".join(TEXTS)}})
    assert extracted(f"{APP}<script>window.__APP_STATE__ = {state}</script>")["engine"] == "data"
    assert extracted(f"{APP}<script>window.a__APP_STATE__ = {state}</script>")["rule"] == "page_shell"
