"""Elements that mean what their names do not say, and signs of Markdown in text."""

import numpy as np
import pytest

from gristmill.tasks.extraction.blocks import scan
from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.extraction.meanings import with_meanings
from gristmill.tasks.extraction.rendering.markdown_signs import escaped

BEFORE = (
    "Anyone who owns a tall case clock knows that it loses a few seconds a day when the weather is hot. The reason is "
    "neither the oil nor the spring but the rod that carries the bob, which grows by a hair when it warms up."
)
AFTER = (
    "Clockmakers fought the effect with rods of dry wood, with jars of mercury and finally with an alloy that hardly "
    "expands at all. A simple wooden rod, sealed with varnish, is still a good choice for a clock at home."
)


def text_of(html: str, markdown: bool = False) -> str:
    """What is between two paragraphs of an article."""
    page = f"<!DOCTYPE html><html lang=en><body><article><h1>Clocks</h1><p>{BEFORE}</p>{html}<p>{AFTER}</p></article>"
    return main_text(page, markdown).partition(BEFORE)[2].partition(AFTER)[0].strip()


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (
            "<div role=table><div role=row><span role=columnheader>Key</span>"
            "<span role=columnheader>Action</span></div>"
            "<div role=row><span role=cell>F5</span><span role=cell>run</span></div></div>",
            "| Key | Action |\n| F5 | run |",
        ),
        ("<div role=list><span role=listitem>flour</span><a href=/s role=listitem>salt</a></div>", "- flour\n- salt"),
        ("<p>It ends here.</p><div role=separator></div><p>It begins.</p>", "It ends here.\n\nIt begins."),
        ("<p>The inn has <span role=img aria-label='4 stars'></span> in it.</p>", "The inn has 4 stars in it."),
        ("<p>It was <del>ten</del> <ins>nine</ins> crowns.</p><del><p>Gone.</p></del>", "It was nine crowns."),
        ("<textarea readonly>&lt;b&gt;x&lt;/b&gt;\n  y</textarea>", "<b>x</b>\n  y"),
        ("<textarea>My comment here</textarea>", ""),
        ("<div class=poem><div class=line>Roses are red,</div><div class=line>violets blue</div></div>",)
        + ("Roses are red,\nviolets blue",),
        ("<p>To <i aria-hidden=true>arrow_forward</i> the next one.</p>", "To the next one."),
        ("<a href=#main>Skip to main content</a><p>A text of words.</p>", "A text of words."),
        ("<div role=code style='white-space: pre'>a;\n  b</div>", "a;\n  b"),
        ("<p>The bob<span role=tooltip hidden>a weight</span> is of brass.</p>", "The bob is of brass."),
        (
            "<ul role=table><li role=row><span role=cell>F5</span><span role=cell>run</span></li>"
            "<li role=row><span role=cell>F6</span><span role=cell>stop</span></li></ul>",
            "| F5 | run |\n| F6 | stop |",
        ),
        (
            "<pre class=diff><del>- a = 1</del>\n<ins>+ a = 2</ins></pre><p>It was <del>ten</del> nine.</p>",
            "- a = 1\n+ a = 2\n\nIt was nine.",
        ),
        (
            "<div role=grid><div role=row><div role=gridcell><button>1</button></div>"
            "<div role=gridcell><button>2</button></div></div></div><p>Choose a day.</p>",
            "Choose a day.",
        ),
        (
            "<div role=grid><div role=row><div role=gridcell>Rod</div><div role=gridcell>ash</div></div>"
            "<div role=row><div role=gridcell>Bob</div><div role=gridcell><button>brass</button></div></div></div>",
            "| Rod | ash |\n| Bob | brass |",
        ),
    ],
)
def test_elements_mean_what_they_say(html, text):
    assert text_of(html) == text


def test_headings_of_a_level():
    assert text_of("<p role=heading aria-level=3>The rod</p><p>It is of wood.</p>", True).startswith("### The rod\n")


def test_pages_without_such_elements_are_not_changed():
    for html in (
        "<p role=note>a</p>",
        "<ul role=list><li>a</ul>",
        "<p>line",
        "<div class=headline>a</div>",
        "<div role=row>a",
    ):
        data = html.encode()
        assert with_meanings(data, scan(np.frombuffer(data, np.uint8))) is None


def test_answers_after_questions_stay_and_hidden_menus_go():
    faq = "<div class=q>Where is it?</div><div class=a hidden>In the old town.</div>"
    faq += "<div class=q>When is it?</div><div class=a hidden>On Friday at nine.</div>"
    assert "In the old town." in text_of(faq) and "On Friday at nine." in text_of(faq)
    menu = "<ul class=dropdown-menu style='display:none'><li><a href=/a>Alpha</a></li><li><a href=/b>Beta</a></li></ul>"
    assert text_of(f"<p>A text of words.</p>{menu}") == "A text of words."


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("as ~~perhaps~~ or *finis*", r"as \~~perhaps\~~ or \*finis\*"),
        ("2 * 3, snake_case, __init__", r"2 * 3, snake_case, \_\_init\_\_"),
        ("[x] done, [a](b), [1]", r"\[x] done, \[a](b), [1]"),
        ("a $x_{1}*y*$ `b`", r"a $x_{1}*y*$ \`b\`"),
    ],
)
def test_signs_of_markdown_are_escaped(text, written):
    assert escaped(text) == written
