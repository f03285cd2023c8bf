"""What stands beside the main text, by a walk over the tree that a page was written from, and on pages with planted
parts."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.extraction.blocks import scan
from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.extraction.rendering.left_out import LINKED, MIN_CONTAINER_SHARE, beside

TAGS = ("nav", "footer", "dialog", "aside", "div class=sidebar", "div", "blockquote", "section")
PROSE = st.integers(1, 6).map(lambda count: " ".join(["word"] * count))
LEAVES = st.tuples(PROSE, st.booleans(), st.sampled_from([True, True, False]))
TREES = st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from(TAGS), st.lists(inner, min_size=1, max_size=4)))


def leaves(tree, above=()):
    """Of each leaf: its text, whether it is a link, whether it is kept, and the elements around it, by identity."""
    if isinstance(tree[1], list):
        for child in tree[1]:
            yield from leaves(child, (*above, (tree[0], id(tree))))
    else:
        yield (*tree, above)


def written(tree) -> str:
    if isinstance(tree[1], list):
        return f"<{tree[0]}>{''.join(map(written, tree[1]))}</{tree[0].split()[0]}>"
    return f"<p>{f'<a href=x>{tree[0]}</a>' if tree[1] else tree[0]}</p>"


def by_walk(found: list) -> list[bool]:
    total = sum(len(text.split()) for text, _, kept, _ in found if kept)

    def part(above):
        outside = above[: next((i for i, each in enumerate(above) if each[0] == "blockquote"), len(above))]
        return next((each for each in outside if each[0] in ("nav", "footer", "dialog")), None)

    def side(above):
        return next((each for each in reversed(above) if each[0] in ("aside", "div class=sidebar")), None)

    def few(container, of):
        return (
            sum(len(text.split()) for text, _, kept, above in found if kept and of(above) == container)
            < MIN_CONTAINER_SHARE * total
        )

    def links(container):
        inside = [(len(text), link) for text, link, _, above in found if side(above) == container]
        # white space between words counts for the size alone
        linked = sum(len(text.replace(" ", "")) for text, link, _, above in found if link and side(above) == container)
        return linked >= LINKED * sum(size for size, _ in inside)

    return [
        kept
        and (
            (part(above) is not None and few(part(above), part))
            or (side(above) is not None and few(side(above), side) and links(side(above)))
        )
        for _, _, kept, above in found
    ]


@pytest.mark.extended
@settings(max_examples=300)
@given(st.lists(TREES, min_size=1, max_size=6))
def test_parts_are_those_of_a_walk_over_the_tree(trees):
    found = [leaf for tree in trees for leaf in leaves(tree)]
    page = scan(np.frombuffer("".join(map(written, trees)).encode(), np.uint8))
    kept = np.array([leaf[2] for leaf in found])
    words = np.array([len(leaf[0].split()) for leaf in found], np.float32)
    assert len(page.blocks.begin) == len(found)
    assert beside(page, kept, words).tolist() == by_walk(found)


STORY = "".join(
    f"<p>The mill of farm {i} grinds grain of the valley, and the miller sells its flour in the village, he says.</p>"
    for i in range(8)
)
MORE = "The baker of the town writes about his bread, which he bakes of rye, wheat and a little salt, every morning."


def test_a_part_of_the_page_is_left_out_and_a_quotation_is_not():
    page = "<html><body><main><article><h1>The mill</h1>{}" + STORY + "</article></main></body></html>"
    for part in ("<dialog><p>{}</p></dialog>", "<footer><p>{}</p></footer>", "<nav><p>{}</p></nav>"):
        assert MORE not in main_text(page.format(part.format(MORE)))
    assert MORE in main_text(page.format(f"<blockquote><p>Bread.</p><footer>{MORE}</footer></blockquote>"))


def test_a_page_whose_text_is_in_such_a_part_is_read():
    for part in ("footer", "nav", "aside"):
        assert "farm 7 grinds" in main_text(f"<html><body><{part}><h1>The mill</h1>{STORY}</{part}></body></html>")


GHOST = "Cheap watches and other things that only machines are to read stand here in a paragraph of their own today."
# A style or an attribute by which no reader sees an element (HTML standard, 6.1 and 15.3.1; CSS 2.2, 9.2.4 and 11.2).
HIDES = (
    "hidden",
    'hidden=""',
    "hidden=hidden",
    "HIDDEN",
    'style="display:none"',
    "style='color: red; DISPLAY : none !important;'",
    'style="display:block;display:none"',
    'style="visibility:hidden"',
    "style=visibility:hidden",
)
SHOWN = (
    "hidden=until-found",
    'hidden style="display:block"',
    'style="display:none;display:block"',
    'style="display:block!important;display:none"',
    "aria-hidden=true",
    'class="hidden-print"',
    'title="hidden"',
    'style="overflow: hidden"',
    'style="--display: none"',
)
MILL = "<html><body><article><h1>The mill</h1>{}{}</article></body></html>"


def with_element(element: str) -> str:
    return main_text(MILL.format(STORY, element) + "</body></html>")


@pytest.mark.parametrize("hides", HIDES)
def test_what_no_reader_sees_is_left_out(hides):
    for element in (
        f"<p {hides}>{GHOST}</p>",
        f"<div {hides}><p>{GHOST}</p></div>",
        f"<p {hides}>{GHOST}<p>Flour is sold at the door of the mill.",
        f"<p>Flour is sold <span {hides}>{GHOST}</span> at the door.",
        f"<p>Flour is sold <b {hides}>{GHOST}</b> at the door.",
        f"<ul><li>Wheat<li>Rye<li {hides}>{GHOST}</ul>",
        f"<section {hides}><h2>Watches</h2><ul><li>{GHOST}<li>More</ul></section>",
        f"<table><tr><th>Flour<th>Price<tr><td>Rye<td>2 crowns<tr {hides}><td>{GHOST}<td>9<tr><td>Oat<td>3</table>",
        f"<table><tr><th>Flour<th>Price<tr><td>Rye<td {hides}>{GHOST}<td>2<tr><td>Oat<td>3</table>",
        f"<pre>a\nb\n<span {hides}>{GHOST}</span>c</pre>",
    ):
        text = with_element(element)
        assert "farm 7 grinds" in text
        assert "watches" not in text.lower(), element
        if "Flour is sold" in element:
            assert "Flour is sold" in text and "at the door" in text
        if "<tr>" in element:
            assert "| Rye | 2" in text and "| Oat | 3 |" in text


@pytest.mark.parametrize("shows", SHOWN)
def test_what_a_reader_sees_stays(shows):
    assert GHOST in with_element(f"<p {shows}>{GHOST}</p>")
    assert GHOST in with_element(f"<div {shows}><p>{GHOST}</p></div>")


NONE = 'style="display:none"'
OPENED = (
    f"<h3><button aria-expanded=false>Watches?</button></h3><div class=panel aria-hidden=true {NONE}><p>{{}}</p></div>",
    f"<h3><button>Watches?</button></h3><div {NONE}><p>{{}}</p></div>",
    f"<h3 aria-controls=a1>Watches?</h3><div id=a1 {NONE}><p>{{}}</p></div>",
    f"<a href='#a1'>Watches</a><p>On.</p><p>And on.</p><div id='a1' {NONE}><p>{{}}</p></div>",
    "<ul role=tablist><li>A<li>B</ul><div role=tabpanel><p>On.</p></div><div role=tabpanel hidden><p>{}</p></div>",
    f"<div class=tab-content><div>On and on.</div><div {NONE}><p>{{}}</p></div></div>",
    f"<div class=accordion><div><h4>Watches</h4><div {NONE}><p>{{}}</p></div></div></div>",
    f"<div id=c class=collapse {NONE}><p>{{}}</p></div>",
    f"<div data-bs-target='#x1' class=q>Q</div><p>Mill.</p><div id=x1 {NONE}><p>{{}}</p></div>",
    f"<p>On.</p><div class=extra {NONE}><p>{{}}</p></div><p>On.</p><script>$('.wide .extra').slideToggle()</script>",
    f"<p>On.</p><div class=extra {NONE}><p>{{}}</p></div><p>On.</p><script>show('extra')</script>",
    f"<p>On.</p><p id=rest {NONE}>{{}}</p><p>On.</p><script>document.getElementById('rest').style.display=''</script>",
    f"<p>Watches <span id=dots>...</span><span id=rest {NONE}>{{}}</span></p><a onclick=\"go('rest')\">Go on</a>",
    f"<p>Watches <span {NONE}>{{}}</span> <a href='#'>Go on</a></p>",
    f"<p>On.</p><div {NONE}><p>{{}}</p></div><button>Read on</button>",
    f"<b>Spoiler:</b> <input type=button value=Show><div><div {NONE}><p>{{}}</p></div></div>",
    f"<dl><dt>What?<dd {NONE}>{{}}<dt>Who?<dd {NONE}>The miller, he says himself.</dl>",
    f"<ol class=list><li class=e>A<li class=e>B<li class=e {NONE}>{{}}<li class=e {NONE}>C</ol>",
    "<div class='wow fadeIn' style='visibility:hidden'><p>{}</p></div>",
    f"<div x-show=open {NONE}><p>{{}}</p></div>",
    f"<div v-cloak {NONE}><p>{{}}</p></div>",
    "<details><summary>Watches</summary><p>{}</p></details>",
    '<div hidden id="S:1"><p>{}</p></div><script>$RC("B:1","S:1")</script>',  # React, as it streams a page
    "<div style='visibility:hidden'><p style='visibility:visible'>{}</p></div>",
)


@pytest.mark.parametrize("element", OPENED)
def test_what_the_page_opens_stays(element):
    assert " ".join(GHOST.split()) in with_element(element.format(GHOST))


def test_a_page_that_is_hidden_until_a_script_runs_is_read():
    for page in (
        f"<html><body style='visibility:hidden'><h1>The mill</h1>{STORY}</body></html>",
        f"<html><body><div id=app hidden><h1>The mill</h1>{STORY}</div></body></html>",
        f"<html><body><div style='display:none'><h1>The mill</h1>{STORY}</div><p>{MORE}</p></body></html>",
        f"<html hidden><body hidden><main hidden><h1>The mill</h1>{STORY}</main></body></html>",
    ):
        assert "farm 7 grinds" in main_text(page)


def test_a_table_that_is_hidden_for_the_most_part_stays():
    rows = "".join(f"<tr{' style=display:none' if i > 2 else ''}><td>Mill {i}<td>{i} sacks" for i in range(9))
    assert "| Mill 8 | 8 sacks |" in with_element(f"<table><tr><th>Mill<th>Sacks{rows}</table>")


def test_hidden_elements_take_linear_time():
    def seconds(count: int) -> float:
        page = MILL.format(STORY, "".join(f"<p id=n{i} class=c{i} hidden>a {i}</p>" for i in range(count)))
        start = time.thread_time()
        main_text(page)
        return time.thread_time() - start

    seconds(100)
    assert seconds(8000) < 24 * seconds(1000)


SHORT = "The mill is open from May to September, every day but Monday."
# As OneTrust, Cookiebot, Usercentrics, Didomi, Klaro and plug-ins of WordPress write them.
NOTICES = (
    "<div id=cookie-consent class='cookie-banner modal'><p>We use cookies and similar technologies to personalise "
    "content and ads and to analyse our traffic. By clicking Accept you agree to the storing of cookies on your device."
    "</p><button>Accept all</button></div>",
    "<div class=cc-window id=cookieconsent><span id='cookieconsent:desc'>This website uses cookies to ensure you get "
    "the best experience.</span> <a href=/p>Learn more</a><a href='#'>Got it!</a></div>",
    "<section class='gdpr'><h2>We value your privacy</h2><p>We and our partners store and access information on a "
    "device and process personal data, with your consent.</p></section>",
    "<div id='onetrust-banner-sdk'><p>Wir verwenden Cookies, um Inhalte zu personalisieren. Mit Klick auf Annehmen "
    "stimmen Sie der Nutzung zu.</p></div>",
    "<div class=cookieBar><p>Nous utilisons des cookies pour mesurer notre audience. Vous pouvez les accepter ou non."
    "</p></div>",
    "<p class='cookie-notice'>Usamos cookies propias y de terceros. Si continúa navegando, acepta su uso.</p>",
    "<aside class='cookie-law'><p>Мы используем куки, чтобы сайт работал лучше. Вы соглашаетесь с этим.</p></aside>",
    "<div class='cookie-popup'><p>当サイトはクッキーを使用しています。同意する場合は押してください。</p></div>",
)


@pytest.mark.parametrize("notice", NOTICES)
def test_a_notice_on_cookies_is_left_out_however_short_the_article(notice):
    page = "<html><body>{}<article><h1>The mill</h1>{}</article>{}</body></html>"
    for text in (f"<p>{SHORT}</p>", STORY):
        for before, behind in ((notice, ""), ("", notice), (f"<div class=wrap>{notice}</div>", "")):
            left = main_text(page.format(before, text, behind))
            assert left == main_text(page.format("", text, ""))
            assert "The mill" in left


def test_what_only_looks_like_a_notice_on_cookies_stays():
    baking = "Mix the butter with sugar, bake the cookies for twelve minutes, and let them rest on a rack until noon."
    page = f"<html><body><article><h1>Cookies</h1><div class=cookie-recipe><p>{baking}</p></div>{STORY}</article>"
    assert baking in main_text(page)
    use = "We use cookies of kind {} with your consent, as our privacy policy says: " + MORE
    chapter = f"<section id=cookies><h2>Cookies</h2><p>{use.format(0)}</p></section>"
    assert use.format(0) in main_text(f"<html><body><article><h1>Privacy policy</h1>{STORY}{chapter}{STORY}</article>")
    policy = "".join(f"<p>{use.format(kind)}" for kind in range(12))
    page = f"<html><body><div class=cookie-notice><h1>Cookies</h1>{policy}</div><div><p>{MORE}</p></div></body></html>"
    assert "kind 11 with your consent" in main_text(page)
    only = "We use cookies and similar technologies to personalise content. By clicking Accept you agree to this."
    for page in (f"<div class=cookie-consent><p>{only}</p></div>", f"<h1>The mill</h1><p class=consent>{only}</p>"):
        assert only in main_text(f"<html><body>{page}</body></html>")


PATH = "<ul class='breadcrumb'><li><a href=/>Home</a><li><a href=/m>Mills</a><li>Old mill</ul>"
PAGES = "<ul class=pagination><li><a href=1>1</a><li><a href=2>2</a><li><a href=3>Next »</a></ul>"


def test_controls_are_left_out_and_words_that_are_the_same_stay():
    text = main_text(f"<html><body><main>{PATH}<h1>Old mill</h1>{STORY}{PAGES}</main></body></html>")
    assert text == main_text(f"<html><body><main><h1>Old mill</h1>{STORY}</main></body></html>")
    one = "<div class=comment><b>Ann</b><p>" + MORE + "</p><a>{}</a></div>"
    for action in ("Reply", "Antworten", "Répondre", "回复"):
        page = MILL.format(STORY, "<section class=comments>" + one.format(action) * 2 + "</section>")
        assert action not in main_text(page).split("\n")
    assert "Reply" in main_text(MILL.format("<h2>Reply</h2>" + STORY, "<p>Reply</p>" + STORY)).split("\n")
    code = "<div class=code><button class=copy>Copy</button><pre><code>mill(1)\nmill(2)</code></pre></div>"
    text = main_text(MILL.format(STORY, code + STORY))
    assert "mill(1)\nmill(2)" in text and "Copy" not in text
    assert "Copy" in main_text(MILL.format(STORY, "<h2><button>Copy</button></h2>" + STORY))
    assert main_text(f"<html><body>{PATH}</body></html>")
