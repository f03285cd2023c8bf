"""Forty kinds of hostile documents, each as text, URL, column of a source's own, and detail of the ledger: what is
written, and in Chromium what is run and asked for."""

import base64
import html
import json
import re
import time
import unicodedata
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.explore.browse import document as static
from gristmill.flows.explore.browse import draws
from gristmill.flows.explore.browse.draws import search
from gristmill.flows.explore.browse.opened import Opened, open_recipe
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.explore.browse.server import Server
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.indexes import search_index_spec, trained_texts, word_index_spec
from gristmill.flows.stages.mixture import training_data
from tests.corpora import context
from tests.flows.browse.chromium import PROGRAM, Tab, chromium, elsewhere
from tests.flows.browse.hostile import STEP, ask, finish
from tests.flows.reports.test_near_duplicates import Parsed

pytestmark = pytest.mark.extended

RUN = "window.harmed=1;alert(1)"
OUT = "http://harm.example/"
KINDS = {
    # markup that would run
    "script": f"<script>{RUN}</script>",
    "split script": f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    "end of text": f"</div></article></main></body></html><script>{RUN}</script>",
    "end of attribute": f"\" autofocus onfocus=\"{RUN}\" x=\"",
    "end of single attribute": f"' onmouseover='{RUN}' x='",
    "no quotes": f" onclick={RUN} tabindex=1 autofocus onfocus={RUN} ",
    "end of title": f"</title><script>{RUN}</script>",
    "end of style": f"</style><script>{RUN}</script>",
    "end of comment": f"--><script>{RUN}</script><!--",
    "image": f"<img src=x onerror={RUN}>",
    "svg": f"<svg onload={RUN}><animate onbegin={RUN} attributeName=x dur=1s></svg>",
    "svg script": f"<svg><script xlink:href='data:,{RUN}'></script></svg>",
    "svg use": f"<svg><use href=\"data:image/svg+xml,<svg id='x' onload='{RUN}'/>#x\"/></svg>",
    "mathml": f"<math><mtext></form><form><mglyph><style></math><img src onerror={RUN}>",
    "details": f"<details open ontoggle={RUN}>",
    "frame": f"<iframe srcdoc=\"<script>parent.{RUN}</script>\"></iframe><object data='{OUT}'></object>",
    "base": f"<base href='{OUT}'><link rel=stylesheet href='{OUT}a.css'><script src='{OUT}a.js'></script>",
    "refresh": f"<meta http-equiv=refresh content='0;url={OUT}'>",
    "policy": "<meta http-equiv=Content-Security-Policy content=\"script-src 'unsafe-inline' *\">",
    "form": f"<form action='{OUT}'><input autofocus><button formaction='javascript:{RUN}'>vote</button></form>",
    "media": f"<video src='{OUT}a.mp4' autoplay></video><img srcset='{OUT}b.png 1x'><audio src='{OUT}c'>",
    "clobber": "<a id=replay name=replay></a><form name=document><input name=querySelectorAll id=content></form>",
    # addresses
    "javascript": f"javascript:{RUN}",
    "spaced javascript": f" jAvA\tscript:{RUN}//",
    "data": f"data:text/html,<script>{RUN}</script>",
    "data base64": "data:text/html;base64," + base64.b64encode(f"<script>{RUN}</script>".encode()).decode(),
    "vbscript": "vbscript:msgbox(1)",
    # styles
    "css": f"<style>@import '{OUT}'; * {{ background: url({OUT}) !important; display: none }}</style>",
    "css value": f"}} body {{ background: url('{OUT}') }} a[href^='x'] {{ color: expression({RUN}) }}",
    # what a template, a decoder or a parser might read
    "template": "{{ 7 * 191 }}{% include '/etc/passwd' %}{# x #}${7*191}<%= 7*191 %>#{7*191}",
    "jinja": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "entities": f"&lt;script&gt;{RUN}&lt;/script&gt; &#60;script&#62; &amp;lt; &#x202e; &NewLine;",
    "percent": quote(f"<script>{RUN}</script>") + " %00 %0d%0aSet-Cookie:x=1 %252e%252e/",
    "utf-7": "+ADw-script+AD4-" + RUN + "+ADw-/script+AD4-",
    "header": "x\r\nSet-Cookie: a=b\r\n\r\n<script>" + RUN + "</script>",
    "json": '{"__proto__": {"harmed": 1}}\u2028\u2029</script>',
    # characters
    "bidi": "\u202egnp.exe \u2066 \u05d0\u05d1 \u202d \u200f \u061c",
    "control": "\x1b[2J\x07\x08\x1b]0;title\x07 \x7f \x85 \ufeff\ufffe nul:\x00:",
    "invisible": "\u200b\u200c\u200d\u2060\ue0001\U000e0041\U000e0042 pay\u200bpal",
    "combining": "e" + "\u0301" * 60_000 + " Z\u0351\u0489" * 200,
    "surrogates": "\ud800 \udfff \udc80 lone",
    "long line": "W" * 5_000_000,
    "long words": "<b>" * 20_000,
}  # fmt: skip
PHRASES = [name for name in KINDS if len(KINDS[name]) < 1_000]
MIXED = [name for name in KINDS if name != "long line"]


def documents() -> Iterator[str]:
    """Lines of JSON: of each kind one that may be kept, one that `where` drops, whose detail in the ledger has it, and
    one that is the kind alone."""
    padding = "plain words of a page that is kept as it is long enough for every rule of the step and more of the like"
    for number, (name, evil) in enumerate(KINDS.items()):
        address = evil[:200] if ":" in evil[:14] else f"https://h{number}.example/{evil[:200]}"
        for label, text in (("stays", f"{padding} {evil}"), ("gone", f"{padding} {evil}"), ("alone", evil)):
            if name == "long line" and label != "stays":
                continue
            own = {"remark": evil[:3000], "label": label, "kind": name}
            yield json.dumps({"id": f"{name} {label}", "url": address, "text": text} | own)


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Opened:
    where = {"step": "where", "drop": "label == 'gone' and remark != ''"}
    rule = STEP | {"min_alpha_words": 0.1, "min_mean_word_length": 0}
    folder = tmp_path_factory.mktemp("forty")
    return finish(folder, list(documents()), "forty", [where, rule], columns=["remark", "label", "kind"])


def pages_of(opened: Opened, server: Server) -> dict[str, str]:
    """Addresses below the token's that show every document of the corpus, in all positions."""
    found = {"funnel": ""}
    for step in opened.steps:
        found[step.key] = f"step?step={quote(step.key)}"
        for rule in step.drops:
            found |= {
                f"{step.key} {rule} {seed}": f"rule?step={quote(step.key)}&rule={quote(rule)}&seed={seed}"
                for seed in range(6)
            }
    found |= {f"documents {seed}": f"documents?seed={seed}" for seed in range(8)}
    for one in draws.kept(opened, 1000, 1):
        found[f"document {one.id}"] = f"document?shard={one.shard}&id={quote(one.id)}"
    for step in opened.steps:
        for rule in step.drops:
            for each in draws.dropped(opened, step, rule, 1000, 1):
                if each.dropped.text is not None:
                    found[f"dropped {each.dropped.row['id']}"] = (
                        f"document?shard={each.shard}&id={quote(each.dropped.row['id'])}"
                    )
    for name in MIXED:
        evil = KINDS[name][:300].encode("utf-8", "replace").decode()
        found[f"query {name}"] = f"documents?where={quote(evil)}"
        found[f"rule of {name}"] = f"rule?step={quote(evil)}&rule={quote(evil)}"
    return found


def test_there_are_forty_kinds_and_each_is_in_the_corpus(opened):
    assert len(KINDS) >= 40
    expected = dict.fromkeys(KINDS, 3) | {"long line": 1, "surrogates": 0}
    found = {name: search(opened, f"kind == '{name}'", 3, 1, everything=True).matching for name in KINDS}
    assert found == expected
    assert sum(opened.steps[0].drops.values()) == 3  # lone surrogates are no text, and never became documents
    details = [
        each.dropped.row.get("detail") or ""
        for step in opened.steps
        for rule in step.drops
        for each in draws.dropped(opened, step, rule, 1000, 1)
    ]
    assert sum("harmed" in detail for detail in details) >= 15


def test_what_is_written_has_no_markup_of_a_document(opened, server):
    whole = 0
    for name, address in pages_of(opened, server).items():
        status, headers, content = ask(server, f"/{server.token}/{address}")
        assert status == 200 or name.startswith(("rule of", "query")), (name, content[-400:])
        assert not {"Set-Cookie"} & set(headers), name
        check(content, name)
        whole += len(content)
    check(static.page(opened), "static")


def check(content: str, name: str) -> None:
    # elements that have no end: the parser of the tests knows of them
    parsed = Parsed(re.sub(r"<(input|link|wbr)\b[^>]*>", "", content))
    tags = [tag for tag, _ in parsed.tags]
    assert not set(tags) & {
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "video",
        "audio",
        "use",
        "animate",
        "math",
        "b",
    }, name
    assert tags.count("script") == (0 if name == "static" else 1) and tags.count("style") == (name == "static"), name
    for tag, given in Parsed(content).tags if name == "static" else parsed.tags:
        assert not [each for each in given if each.startswith("on") or each in ("style", "srcdoc", "formaction")], name
        for each in ("href", "src", "action", "data-to"):
            assert not re.match(r"(?i)\s*([a-z]+:|//)", given.get(each) or ""), (name, tag, given)
    assert not [c for c in content if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t\r"], name
    assert not re.search("[\U000e0000-\U000e007f\u202a-\u202e\u2066-\u2069]", content), name
    assert "1337" not in content and "root:x:0" not in content, name  # 7 * 191: nothing was evaluated


@pytest.fixture(scope="module")
def titled(tmp_path_factory) -> Opened:
    """Pages whose titles and texts are hostile, with the indexes of phrases and words."""
    folder = tmp_path_factory.mktemp("titled")
    padding = "Plain words of a page that is kept as it is, since it is long enough, and more of the like. " * 5
    for number, name in enumerate(PHRASES):
        shown = html.escape(KINDS[name].encode("utf-8", "replace").decode())
        page = (
            f"<html><head><title>{shown}</title></head><body><h1>{number}</h1><p>{padding}</p><p>{shown} {padding}</p>"
        )
        (folder / f"{number:02d}.html").write_text(page + "</body></html>", encoding="utf-8")
    given = {
        "name": "titled",
        "sources": [{"name": "web", "pages": [f"{folder}/*.html"]}],
        "steps": [{"step": "extract"}],
        "tokenizer": {"vocab_size": 400, "sample_bytes": 50_000},
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.1},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 16},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(given))
    run, recipe = context(str(folder / "home")), load(str(path))
    *_, last = curate(run, recipe)
    run.build(search_index_spec(run, recipe, trained_texts(training_data(run, recipe, last.left))))
    run.build(word_index_spec(run, recipe, last.left))
    return open_recipe(str(path), MachineSettings(home=str(folder / "home")))


def test_titles_and_found_phrases_have_no_markup_of_a_document(titled):
    pages, found = Pages(titled), 0
    kept = draws.kept(titled, 100, 1)
    assert len(kept) == len(PHRASES)
    assert sum("harmed" in (one.title or "") for one in kept) >= 15
    for one in kept[::4]:
        check(pages.document({"shard": f"{one.shard}", "id": one.id}), f"document {one.title}")
    for seed in range(8):
        check(pages.documents({"seed": f"{seed}"}), f"documents {seed}")
        check(pages.words({"words": f"plain OR title:script OR title:{seed}"}), f"words {seed}")
    for name in PHRASES:
        phrase = " ".join(KINDS[name].encode("utf-8", "replace").decode().split())
        shown = pages.phrase({"phrase": phrase})
        check(shown, f"phrase {name}")
        check(pages.words({"words": phrase}), f"query {name}")
        found += "<mark>" in shown
    check(static.page(titled), "static")
    assert found >= 25


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")
def test_in_chromium_no_script_runs_and_nothing_is_asked_of_elsewhere(opened, server, tmp_path):
    (tmp_path / "page.html").write_text(static.page(opened), encoding="utf-8", errors="replace")
    with chromium() as tab:
        tab.screen(1200)
        for name, address in pages_of(opened, server).items():
            tab.open(f"{server.address}{address}")
            tab.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            assert tab.value("window.harmed") is None and tab.value("({}).harmed") is None, name
            assert tab.value("location.href").startswith(server.address), name
            assert tab.value("document.querySelectorAll('main').length") == 1, name
        tab.open((tmp_path / "page.html").as_uri())
        tab.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        time.sleep(0.5)
        assert tab.value("window.harmed") is None and tab.dialogs == []
        elsewhere = [each for each in tab.asked if not each.startswith((server.address, "file://"))]
        assert elsewhere == [f"http://{server.hosts[0]}/favicon.ico"] * len(elsewhere)
        assert not [each for each in tab.said if "Content Security Policy" in each]  # nothing had to be refused


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")
def test_in_chromium_the_policy_refuses_what_would_get_through(opened, server):
    """The second wall: markup that is put into the page by hand runs nothing, and nothing that it asks for is asked. On
    a page without the policy the same is run and asked."""
    with elsewhere() as others, chromium(others) as tab:
        tab.open("http://page.example/page")
        others.asked.clear()  # an icon
        put_in(tab, KINDS["media"] + "<img src=x onerror=window.harmed=1>")
        tab.wait("window.harmed === 1")
        wanted = {f"harm.example/{name} from http://page.example/" for name in ("a.mp4", "b.png", "c")}
        while not wanted <= set(others.asked):
            time.sleep(0.1)  # the test's own timeout ends it
        others.asked.clear()
        for name, evil in KINDS.items():
            tab.open(server.address)
            put_in(tab, evil[:5000])
            time.sleep(0.1)
            assert tab.value("window.harmed") is None and tab.dialogs == [], name
            if name == "refresh":  # no policy can refuse that a page is left; the address, and its token, stay behind
                tab.wait(f"location.href === '{OUT}'")
                assert others.asked[0] == "harm.example/"
                tab.wait("document.readyState === 'complete'")
                others.asked.clear()
                continue
            asked = [each for each in others.asked if each != "harm.example/favicon.ico from http://harm.example/"]
            assert tab.value("location.href") == server.address and asked == [], name
        assert [each for each in tab.said if "Content Security Policy" in each]


def put_in(tab: Tab, markup: str) -> None:
    given = json.dumps(markup.encode("utf-8", "replace").decode())
    tab.value(f"document.querySelector('main').innerHTML = {given}")
