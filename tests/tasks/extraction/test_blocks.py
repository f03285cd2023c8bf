"""The scan of a page into blocks: no text is lost, whatever the bytes are, and it takes linear time."""

import html
import re
import time
from collections import Counter

import lxml.html
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from resiliparse.extract.html2text import extract_plain_text

from gristmill.tasks.extraction.blocks import DEPTH, scan
from gristmill.tasks.extraction.vocabulary import AROUND, CELL, HEADING, PREFORMATTED, TEXT, WORDS

WORD = re.compile(r"\w+")


def page_of(source):
    data = source if isinstance(source, bytes) else source.encode("utf-8", "replace")
    return scan(np.frombuffer(data, np.uint8))


def texts(source):
    page = page_of(source)
    text = page.text.tobytes()
    return [text[b:e].decode() for b, e in zip(page.blocks.begin, page.blocks.end, strict=True)]


def around(page, k):
    """Names of what is around a block."""
    names = [name for name, _ in WORDS] + AROUND
    return {name for bit, name in enumerate(names) if int(page.blocks.bits[k]) >> bit & 1}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("one<p>two<p>three</p>four", ["one", "two", "three", "four"]),
        ("<b>a</b>b <i> c</i>\n\n d", ["ab c d"]),
        ("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e", ["a", "b", "c", "d", "e"]),
        ("<table><tr><td>a<td>b<tr><td>c</table>d", ["a", "b", "c", "d"]),
        ("one<br>two<br><br>three", ["one\ntwo", "three"]),
        ("a <!-- b > c --> d <!--> e <!---> f", ["a d e f"]),
        ("a<!-- b --!> c", ["a c"]),
        ("a <!-- b", ["a"]),
        ("a<?php b ?>c</ d>e<!doctype f>g</>h", ["acegh"]),
        ("a < b << c <3 </ ", ["a < b << c <3"]),
        ("a<script>b<p></scripty></script >c<style>d</style>e<textarea>f</textarea>g", ["aceg"]),
        ("a<script>b", ["a"]),
        ("a<p title='<p>b</p>' x=\"'>\" y>c", ["a", "c"]),
        ("a<p title='b>c", ["a"]),
        ("a<svg><title>b</title><path d=''/><text>c</text></svg>d", ["ad"]),
        ("<select><option>a<option>b</select>c<template><p>d</template>e", ["c", "e"]),
        ("<title>a</title>b<title>c</title>", ["b"]),
        ("a&nbsp;b&#160;c&#xA0;d\u00a0e&amp;nbsp;", ["a b c d e&amp;nbsp;"]),
        ("<pre>\n  a\n\tb\r\n  c\n</pre>d", ["  a\n\tb\n  c", "d"]),
        ("a\x00b<p>\x00</p>", ["ab"]),
        ("<x-card>a</x-card><x-card>b</x-card>", ["ab"]),
        ("<x-card><p>a</p></x-card>b", ["a", "b"]),
        ("a<svg/>b<svg><path/><p>c</svg>d", ["ab", "cd"]),
        ("<svg><foreignObject><p>a</p></foreignObject><text>b</text></svg>c", ["c"]),
        ("<div>a<svg><g>b</div>c", ["a", "c"]),
        ("<div>a<video>b<p>c</p><source/></div>d", ["a", "d"]),
        ("<div>a<canvas/>b</div>c", ["a", "c"]),
        ("<p>a <script type='math/tex'>x < y</script> b<script>c</script>", ["a x < y b"]),
        ("<p><img class=tex alt='no'><img class='latex' alt='x^2'> a<img alt=b>", ["x^2 a"]),
        ("<p>a<div>b</p>c</div>d", ["a", "b", "c", "d"]),
        ("<p>a<img class=emoji alt='😀'>b<img alt='😀'><img class=emoji alt=':mill:'>", ["a😀b:mill:"]),
        ("<noscript>a<p>b</noscript>", ["a", "b"]),
        # raw text (13.2.6.4.7): that of some elements is shown as it stands, that of the others not at all
        ("a<xmp>b <i>c</i> &lt; </ xmp> </xmpx></XMP >d", ["a", "b <i>c</i> &lt; </ xmp> </xmpx>", "d"]),
        ("<p>a<xmp>b</p></xmp>c", ["a", "b</p>", "c"]),
        ("a<xmp>b<p>c", ["a", "b<p>c"]),
        ("a<xmp></xmp>b<xmp", ["a", "b"]),
        ("a<plaintext>b</plaintext><p>c &amp; <!-- d", ["a", "b</plaintext><p>c &amp; <!-- d"]),
        ("a<svg><xmp>b<g>c</xmp></svg>d<select><xmp><p>e</xmp></select>f", ["a", "d", "f"]),
        ("a<iframe><p>b</p></iframe>c<noembed><p>d</p></noembed>e<noframes><p>f</noframes>g", ["aceg"]),
        ("", []),
        ("<div> <p>&nbsp;</p> </div>", []),
    ],
)
def test_blocks(source, expected):
    assert texts(source) == expected


def test_kinds_rows_and_items():
    page = page_of(
        "<h2>a</h2><pre>b</pre><ol><li><p>c</p>d<li>e</ol><ul><li>f<ul><li>g</ul></ul>"
        "<table><tr><th>h<td>i</tr><tr><td>j</table>k"
    )
    blocks = page.blocks
    assert blocks.kind.tolist() == [HEADING, PREFORMATTED, TEXT, TEXT, TEXT, TEXT, TEXT, CELL, CELL, CELL, TEXT]
    assert blocks.bullet.tolist() == [0, 0, 1, 0, 1, 1, 2, 0, 0, 0, 0]
    assert blocks.row.tolist()[-4:] == [1, 1, 2, 0]
    assert blocks.cell.tolist()[-4:] == [1, 2, 3, 0]


def test_what_is_around_a_block():
    page = page_of(
        "<body class=sidebar><article><div class='post-Comments' id=x><p>a</p></div></article>"
        "<nav role=navigation><p style='color: red; DISPLAY : none'>b</p></nav><p hidden>c</p><div class=bypass>d</div>"
    )
    assert around(page, 0) == {"comment", "article", "p"} | ({"article"} & around(page, 0))
    assert around(page, 1) == {"navigation", "nav", "hidden", "p"}
    assert around(page, 2) == {"hidden", "p"}
    assert around(page, 3) == set()
    near = page.blocks.above[0]
    assert near[32 + AROUND.index("p")] == 0
    assert near[[name for name, _ in WORDS].index("comment")] == 1
    assert near[32 + AROUND.index("article")] == 2


def test_links_are_measured():
    blocks = page_of("<p>one <a href=/x>two</a> three</p><a href=y><div>four</div></a><p><a name=z>five</a></p>").blocks
    assert blocks.linked.tolist() == [3, 4, 0]
    assert blocks.links.tolist() == [1, 0, 0]


TAGS = (
    "p div span a b ul ol li table tr td th tbody h1 h2 pre br hr img script style title textarea select option svg "
    "nav article section form button body html head dl dt dd blockquote noscript x-y template object font"
).split()
PIECES = st.one_of(
    st.sampled_from([f"<{tag}>" for tag in TAGS] + [f"</{tag}>" for tag in TAGS]),
    st.sampled_from(["<a href=/x>", "<p class='a b' id=\"c\">", "<div hidden>", "<p title='", '<p title="', "<", ">"]),
    st.sampled_from(["<!--", "-->", "--", "<!", "</", "/>", "&", "&amp;", "&nbsp;", "&#x;", "\x00", "\r\n", "'", '"']),
    st.sampled_from([" word", "Worte", "слово", "言葉", "é", "😀", "\u2028", "\ud800", " 12 "]),
    st.text(max_size=8),
)
SOURCES = st.lists(PIECES, max_size=60).map("".join)


@pytest.mark.extended
@settings(max_examples=500, deadline=None)
@given(SOURCES)
@example("</" + "<p " * 20)
def test_any_page_gives_blocks_of_valid_text_in_order(source):
    page = page_of(source)
    blocks = page.blocks
    text = page.text.tobytes()
    last = 0
    for begin, end in zip(blocks.begin, blocks.end, strict=True):
        assert last <= begin < end <= len(text)
        assert text[begin:end].decode().strip(" \t\r\n\f")
        last = end
    assert ((blocks.linked >= 0) & (blocks.linked <= blocks.end - blocks.begin)).all()
    assert (page.nodes.parent[1:] < np.arange(1, len(page.nodes.parent))).all()
    assert (blocks.node < len(page.nodes.parent)).all()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_can_be_scanned(source):
    page_of(source)


WELL_FORMED = st.recursive(
    st.lists(st.sampled_from("alpha beta gamma delta &eacute;tude &lt;tag&gt; 42 漢字".split()), min_size=1).map(
        " ".join
    ),
    lambda inner: st.builds(
        lambda tag, parts: f"<{tag} class='x'>" + " ".join(parts) + f"</{tag}>",
        st.sampled_from("div p section article span b a ul li h2 blockquote td pre em".split()),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(WELL_FORMED)
def test_visible_words_are_those_of_other_parsers(body):
    ours = Counter(WORD.findall(html.unescape("\n".join(texts(f"<html><body><div>{body}</div></body></html>")))))
    tree = lxml.html.document_fromstring(f"<html><body><div>{body}</div></body></html>")
    assert ours == Counter(WORD.findall(" ".join(tree.itertext())))


def test_words_of_a_whole_page_are_those_of_resiliparse():
    source = (
        "<!doctype html><html><head><title>T</title><meta charset=utf-8><style>p{}</style></head><body>"
        "<header><h1>Head <em>ing</em></h1><nav><ul><li><a href=/>Home</a><li><a href=/b>About</a></ul></nav></header>"
        "<main><p>First &amp; second.<p>Third<br>fourth <b>bo</b>ld.<table><tr><td>x<td>y</table>"
        "<dl><dt>term<dd>meaning</dl><pre>code  here</pre><img alt=no></main>"
        "<script>var no = '<p>no</p>'</script><footer>end</footer></body></html>"
    )
    theirs = extract_plain_text(source, main_content=False, alt_texts=False)
    assert Counter(WORD.findall(html.unescape("\n".join(texts(source))))) == Counter(WORD.findall(theirs))


HOSTILE = {
    "nested": lambda n: b"<div>" * n,
    "nested and closed": lambda n: b"<div>" * (n // 2) + b"text" + b"</div>" * (n // 2),
    "lone brackets": lambda n: b"<" * n,
    "unclosed comments": lambda n: b"<!--" * n,
    "unclosed attributes": lambda n: b"<p title='" * n,
    "raw text never ends": lambda n: b"<script></scrip" * n,
    "end tags of nothing": lambda n: b"<b>" * 500 + b"</i></p></div>" * n,
    "end tags behind a wall": lambda n: b"<span>" + b"<div>" * 500 + b"</span>" * n,
    "items in a deep list": lambda n: b"<ul>" * 300 + b"<li>x" * n,
    "cells": lambda n: b"<table>" + b"<td>x" * n,
    "zeros": lambda n: b"\0" * n,
    "attributes": lambda n: b"<p " + b"a=b " * n + b">",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear_in_the_bytes(name):
    page_of(HOSTILE[name](10))

    def seconds(n):
        source = HOSTILE[name](n)
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            page_of(source)
            best = min(best, time.thread_time() - start)
        return best

    # Eight times the bytes: 64 times the time if it were quadratic.
    assert seconds(160_000) < 30 * max(seconds(20_000), 1e-3)


def test_depth_has_a_limit_and_is_reported():
    page = page_of(b"<div>" * 100_000 + b"deep" + b"</div>" * 100_000 + b"<p>after</p>")
    assert page.depth == 100_000
    assert len(page.nodes.parent) <= DEPTH + 1
    assert len(page.blocks.begin) == 2


@pytest.mark.slow
def test_fifty_megabytes_of_brackets():
    page_of(b"<" * 50_000_000)
