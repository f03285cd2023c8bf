"""From a page to its main text: the engines, the text's form, a page's metadata, and the drops."""

import time

import numpy as np
import pytest
import trafilatura
from pydantic import ValidationError
from safetensors import safe_open

from gristmill.tasks.extraction import classifier
from gristmill.tasks.extraction.classifier import MODEL, SECOND, best_f1, choose
from gristmill.tasks.extraction.engines import ENGINES, MAX_DEPTH
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.features import FEATURES
from gristmill.tasks.extraction.page import extract_page, metadata
from tools.train_blocks.gold import covered, score, word_f1

STORY = (
    "The old mill stands where the river leaves the forest, and its wheel has not been still for two hundred years.",
    "Every morning the miller opens the gate, listens to the stones, and writes the level of the water into a book.",
    "In dry summers the village waits for rain, because without the mill there is no bread in any of its houses.",
    "When the last miller retired, three neighbours bought the building, repaired the roof and learned the trade.",
    "Visitors may watch the stones at work on Saturdays; the flour, still warm, is sold at the door in paper bags.",
)
MENU = ("Home", "News", "Sport", "Weather", "Subscribe", "Contact", "Imprint", "Privacy policy", "Log in")
COMMENTS = ("Great read, thanks for sharing this with us!", "I was there last summer, it was closed. Pity.")


def article(paragraphs=STORY, container="article") -> str:
    links = "".join(f'<li><a href="/{i}">{name}</a></li>' for i, name in enumerate(MENU))
    related = "".join(f'<div class="teaser"><a href="/r{i}"><h3>Ten mills to see</h3></a></div>' for i in range(4))
    comments = "".join(f'<li class="comment"><p class="comment-body">{text}</p></li>' for text in COMMENTS)
    return (
        "<html><head><title>The mill</title><script>var hidden = 'a script';</script></head><body>"
        f'<header><nav class="navbar"><ul>{links}</ul></nav></header>'
        f"<{container}><h1>The mill</h1>" + "".join(f"<p>{p}</p>" for p in paragraphs) + f"</{container}>"
        f'<div class="related-posts"><h2>Related stories</h2>{related}</div>'
        f'<div id="comments"><h2>2 comments</h2><ol class="comment-list">{comments}</ol></div>'
        '<div class="cookie-banner">We use cookies to give you the best experience. <button>Accept all</button></div>'
        f"<footer><ul>{links}</ul><p>Copyright 2024 The Mill. All rights reserved.</p></footer></body></html>"
    )


@pytest.mark.parametrize("engine", ["blocks", "trafilatura", "resiliparse"])
@pytest.mark.parametrize("container", ["article", "div class='entry-content'"])
def test_an_article_is_kept_and_what_surrounds_it_is_not(engine, container):
    text = ENGINES[engine].read(article(container=container).replace(f"</{container}>", f"</{container.split()[0]}>"))
    assert all(paragraph in text for paragraph in STORY)
    assert not any(word in text for word in ("Imprint", "Privacy policy", "cookies", "All rights", "a script"))
    if engine == "blocks":
        assert not any(comment in text for comment in COMMENTS)
        assert "Ten mills" not in text


def test_every_engine_gives_the_text():
    page = article([" ".join(STORY)] * 2)
    for name, engine in ENGINES.items():
        text = engine.read(page)
        assert STORY[1] in " ".join(text.split())
        assert engine.read("") == "", name
    assert ENGINES["plain"].read(article()).count("Imprint") == 2


def test_the_default_is_deterministic():
    pages = [article(STORY[i:]) for i in range(4)]
    first = [ENGINES["blocks"].read(page) for page in pages]
    assert [ENGINES["blocks"].read(page) for page in reversed(pages)] == first[::-1]


def test_pages_of_many_blocks_are_classified_as_in_one_piece():
    page = article(STORY * 4)
    whole = choose(page)
    pieces = choose(page, batch=7)
    assert len(whole.kept) > 20
    assert np.array_equal(whole.likely, pieces.likely)
    assert np.array_equal(whole.kept, pieces.kept)


def test_best_choice_is_that_of_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = 8
        likely, words = rng.random(n).astype(np.float32), rng.integers(1, 30, n).astype(np.float32)
        kept = best_f1(likely, words)
        choices = [np.array([c >> i & 1 for i in range(n)], bool) for c in range(1, 2**n)]
        f1 = [2 * (likely * words)[c].sum() / (words[c].sum() + (likely * words).sum()) for c in choices]
        assert np.array_equal(kept, choices[int(np.argmax(f1))])
    assert best_f1(np.zeros(3, np.float32), np.ones(3, np.float32)).sum() == 0
    assert len(best_f1(np.zeros(0, np.float32), np.zeros(0, np.float32))) == 0


def test_the_model_is_plain_arrays_that_fit_the_features():
    assert MODEL.stat().st_size < 1_000_000
    with safe_open(MODEL, "np") as file:
        assert file.metadata() == {"features": f"{len(FEATURES)} {len(SECOND)}"}
    for name, width in (("first", len(FEATURES)), ("second", len(SECOND))):
        trees = classifier.load(MODEL, name)
        inner = trees.feature >= 0
        assert trees.feature.max() < width
        assert (trees.right[inner] > np.flatnonzero(inner) + 1).all()
        assert trees.right.max() < len(trees.feature)
    with pytest.raises(ValueError, match="third.feature"):
        classifier.load(MODEL, "third")


def test_trees_answer_as_by_hand():
    trees = classifier.Forest(
        np.array([1, -1, 0, -1, -1, -1], np.int16),
        np.array([0.5, 0, 2.0, 0, 0, 0], np.float32),
        np.array([2, 0, 4, 0, 0, 0], np.int32),
        np.array([0, 1.0, 0, -1.0, 3.0, 0.25], np.float32),
        np.array([0, 5], np.int32),
        np.array([0.5], np.float32),
    )
    rows = np.array([[9, 0.5], [2, 0.6], [2.1, 0.6]], np.float32)
    out = np.empty(3, np.float32)
    classifier.probability(classifier.masks(trees), np.ascontiguousarray(rows.T), out)
    assert out == pytest.approx(1 / (1 + np.exp(-(np.array([1.0, -1.0, 3.0]) + 0.75))))


def test_a_tree_of_too_many_leaves_is_refused():
    def tree(leaves: int) -> classifier.Forest:
        # each test's left child is a leaf, its right child the next test
        feature = np.array([0, -1] * (leaves - 1) + [-1], np.int16)
        right = np.where(feature < 0, 0, np.arange(len(feature)) + 2).astype(np.int32)
        limits = np.repeat(np.arange(leaves), 2)[: len(feature)].astype(np.float32)
        value = np.where(feature < 0, limits, 0).astype(np.float32)
        return classifier.Forest(feature, limits, right, value, np.zeros(1, np.int32), np.zeros(1, np.float32))

    out = np.empty(40, np.float32)
    classifier.probability(classifier.masks(tree(32)), np.arange(-1, 39, dtype=np.float32)[None], out)
    assert out == pytest.approx(1 / (1 + np.exp(-np.clip(np.arange(-1, 39), 0, 31))))
    with pytest.raises(ValueError, match="33 leaves"):
        classifier.masks(tree(33))


def test_trees_answer_as_the_library_that_grew_them():
    lightgbm = pytest.importorskip("lightgbm")
    from tools.train_blocks.train import flatten

    rng = np.random.default_rng(1)
    rows = rng.integers(-3, 9, (400, 5)).astype(np.float32) / np.float32(3)
    labels = (rows[:, 0] * rows[:, 1] > rows[:, 2]).astype(float)
    settings = {"objective": "cross_entropy", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 2}
    booster = lightgbm.train(settings, lightgbm.Dataset(rows, labels, params=settings), 20)
    out = np.empty(len(rows), np.float32)
    classifier.probability(classifier.masks(classifier.Forest(**flatten(booster))), np.ascontiguousarray(rows.T), out)
    assert out == pytest.approx(booster.predict(rows), abs=1e-5)


URL = "https://mill.example/a/b?c=1"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("<title> The\n mill </title>", {"title": "The mill"}),
        ("<title>No</title><meta content='Yes &amp; no' property='og:title'>", {"title": "Yes & no"}),
        ("<body><h1 class=x>Only <i>this</i></h1>", {"title": "Only this"}),
        ("<body><svg><title>icon</title></svg>", {"title": None}),
        ("<title></title><h1> </h1>", {"title": None}),
        ("<body bgcolor=white><head><title>Mill</title></head><h1>Welcome</h1>", {"title": "Mill"}),
        ("<!-- <title>no</title> --><TITLE>yes</TITLE>", {"title": "yes"}),
        ("<link rel=canonical href=/x>", {"canonical_url": "https://mill.example/x"}),
        ("<link href='//o.example/x#y' rel='alternate canonical'>", {"canonical_url": "https://o.example/x"}),
        ("<link rel=canonical href='javascript:void(0)'>", {"canonical_url": None}),
        ("<link rel=canonical href='http://[bad'>", {"canonical_url": None}),
        (
            "<link rel=stylesheet href=/x><meta property=og:url content='http://m.example/'>",
            {"canonical_url": "http://m.example/"},
        ),
        ("<!--<link rel=canonical href=/x>-->", {"canonical_url": None}),
        ("<meta property='article:published_time' content='2021-03-04T23:59:00-05:00'>", {"published": "2021-03-04"}),
        ("<meta itemprop=datePublished content=2021-03-04>", {"published": "2021-03-04"}),
        ("<meta name=date content='4 March 2021'>", {"published": None}),
        ("<meta name=date content='2021-13-04'>", {"published": None}),
        ("<meta name=pubdate content='Thu, 04 Mar 2021 10:00:00 GMT'>", {"published": "2021-03-04"}),
        (
            '<body><script type="application/ld+json">{"@graph": [{"datePublished" : "2021-03-04T10:00Z"}]}</script>',
            {"published": "2021-03-04"},
        ),
        ('<body><script>var a = {"datePublished": "2021-03-04"}</script>', {"published": None}),
        ("<body><p>on <span itemprop='datePublished' content='2021-03-04'>March 4</span>", {"published": "2021-03-04"}),
        ("<body><time datetime='2021-03-04T10:00'>now</time>", {"published": "2021-03-04"}),
        ("<body><p>Published on 2021-03-04.", {"published": None}),
        ("<body><abbr class='published updated' title='2021-03-04T10:00:00Z'>then</abbr>", {"published": "2021-03-04"}),
        ("<body><time class=dt-published datetime='2021-03-04'>then</time>", {"published": "2021-03-04"}),
        ("<body><i class=published>March</i><i class=unpublished title=2021-03-04>", {"published": None}),
        ("<body><span property='dc:date dc:created' content='2021-03-04T10:00'>x</span>", {"published": "2021-03-04"}),
        ("<body><meta itemprop='datePublished dateCreated' content=2021-03-04>", {"published": "2021-03-04"}),
        ("<meta name=OriginalPublicationDate content='2021/3/4 10:00:00'>", {"published": "2021-03-04"}),
        ("<meta name=dcterms.created content='2021-03-04'>", {"published": "2021-03-04"}),
        ("", {"title": None, "canonical_url": None, "published": None}),
    ],
)
def test_metadata(head, expected):
    page = f"<html><head>{head}"
    found = metadata(page, page.encode(), URL)
    assert set(found) == {"title", "canonical_url", "published"}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "piece",
    ["<meta ", "<meta a='", '<link rel="', "<!--", "<title", "<time ", "datePublished<", "<a class=published "],
)
def test_metadata_of_hostile_heads_takes_no_longer_than_reading_them(piece):
    page = piece * (2_000_000 // len(piece)) + "application/ld+json" * 1000
    start = time.thread_time()
    metadata(page, page.encode(), URL)
    assert time.thread_time() - start < 10


def test_a_page_becomes_plain_data():
    source = article().replace("<title>", "<link rel=canonical href=/mill><title>")
    found = extract_page(source.encode("latin-1"), "text/html", "iso-8859-1", URL, "blocks", "plain")
    assert found.pop("text").count(STORY[0]) == 1
    assert found == {
        "charset": "cp1252",
        "charset_declared": "cp1252",
        "content_type": "text/html",
        "title": "The mill",
        "canonical_url": "https://mill.example/mill",
        "published": None,
        "engine": "blocks",
    }


def test_types_are_sniffed_and_plain_text_is_passed_as_it_is():
    assert extract_page(article().encode(), "", None, URL, "blocks", "plain")["content_type"] == "text/html"
    assert extract_page(article().encode(), "application/xhtml+xml", None, URL, "blocks", "plain")["engine"] == "blocks"
    plain = extract_page(b"  a <b>text</b> &amp;\n more\n", "text/plain", "utf-8", URL, "blocks", "plain")
    assert plain["text"] == "  a <b>text</b> &amp;\n more"
    assert plain["engine"] == "text"
    assert plain["title"] is None


@pytest.mark.parametrize(
    "beginning", ["<meta charset=utf-8>", "<link rel=icon href=/i.png>", "<MAIN>", "\n <section\n class=a>", "<ul><li>"]
)
def test_pages_of_no_type_that_begin_with_any_element_are_pages(beginning):
    found = extract_page(f"{beginning}{article()}".encode(), "", None, URL, "blocks", "plain")
    assert found["content_type"] == "text/html" and "<" not in found["text"]
    listing = extract_page(b"<mainframe> is a name here, and <urls> too.\n" * 9, "", None, URL, "blocks", "plain")
    assert listing["content_type"] == "text/plain"


def test_markdown_is_a_format_of_our_engine_alone():
    page = article().replace("<p>", "<h2>Grist</h2><p>", 1)
    found = extract_page(page.encode(), "text/html", None, URL, "blocks", "markdown")
    assert "## Grist" in found["text"]
    assert "## Grist" not in extract_page(page.encode(), "text/html", None, URL, "blocks", "plain")["text"]
    with pytest.raises(ValidationError, match="with the engine blocks, not trafilatura"):
        Extract(engine="trafilatura", format="markdown")


def test_the_first_line_of_a_text_keeps_its_indentation():
    code = "".join(f"    line_{n} = mill({n})\n" for n in range(60))
    assert (
        extract_page(f"<body><pre>{code}".encode(), "text/html", None, URL, "blocks", "plain")["text"] == code.rstrip()
    )


def test_drops_name_their_rule():
    assert extract_page(b"%PDF-1.4", "application/pdf", None, URL, "blocks", "plain")["rule"] == "content_type"
    assert extract_page(b"%PDF-1.4 \x00\x01", "", None, URL, "blocks", "plain")["rule"] == "content_type"
    assert extract_page(b"<html><p> </p></html>", "text/html", None, URL, "blocks", "plain") == {
        "rule": "empty_text",
        "detail": URL,
    }
    assert extract_page(b"", "text/html", None, URL, "blocks", "plain")["rule"] == "empty_text"
    deep = b"<div>" * (MAX_DEPTH + 1) + STORY[0].encode()
    for engine in ("trafilatura", "justext"):
        assert extract_page(deep, "text/html", None, URL, engine, "plain")["rule"] == "too_deep"
    assert extract_page(deep, "text/html", None, URL, "blocks", "plain")["text"] == STORY[0]


@pytest.mark.extended
def test_words_of_the_gold_text_are_found_in_order_or_in_runs():
    page = "home news the mill stands by the river home and the wheel turns".split()
    assert covered(page, "the mill stands by the river".split()).tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    moved = "c d e f g x a b h i j k l".split()
    assert covered(moved, "h i j k l c d e f g".split()).sum() == 10
    assert not covered([], ["a"]).size
    assert not covered(["a"], []).any()


def test_metrics_are_those_of_the_benchmarks():
    assert word_f1("A b c c", "a c d") == pytest.approx((0.5, 2 / 3, 4 / 7))
    assert word_f1("", "") == (1, 1, 1)
    assert word_f1("a", "") == word_f1("", "a") == (0, 0, 0)
    # runs of four: "a b c d", "b c d e" against "a b c d": 1 of 2, 1 of 1; then an empty text against one run
    aeb = score("aeb", [("a b c d e", "a b c d"), ("", "a b c d")])
    assert aeb == pytest.approx((0.5, 0.5, 0.5))
    assert score("wcxb", [("a b", "a b"), ("a", "b")]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("options", [{}, {"favor_precision": True}, {"favor_recall": True, "include_tables": False}])
def test_trafilatura_with_its_fallbacks_and_options_is_as_its_own_program_gives_it(options):
    page = article([*STORY, "<table><tr><td>A cell that has enough words to be kept</td></tr></table>"])
    right = trafilatura.extract(page, include_comments=True, **options).strip()
    step = Extract(engine="trafilatura", fast=False, include_comments=True, **options)
    found = extract_page(
        page.encode(), "text/html", None, URL, "trafilatura", "plain", options=step.options("trafilatura")
    )
    assert (found["text"], found["engine"]) == (right, "trafilatura")


def test_options_are_those_of_the_engines_that_are_asked():
    assert Extract(engine="union", fast=False).options("trafilatura") == {"fast": False}
    assert Extract(engine="union", fast=False).options("blocks") == {}
    assert "fast" not in Extract(engine="trafilatura").model_dump()  # so that stages made before keep their keys
    for wrong, said in (
        ({"fast": False}, "fast is an option of the engine trafilatura, but the engine is blocks"),
        ({"engine": "trafilatura", "stop_list": "German"}, "stop_list is an option of the engine justext"),
        ({"engine": "trafilatura", "favor_precision": True, "favor_recall": True}, "exclude each other"),
        ({"engine": "justext", "stop_list": "Gristish"}, "stop_list is 'Gristish'; give one of Afrikaans"),
    ):
        with pytest.raises(ValidationError, match=said):
            Extract(**wrong)


def test_justext_takes_a_page_by_the_stop_words_of_its_language():
    german = "Die alte Mühle steht dort, wo der Fluss den Wald verlässt, und ihr Rad hat sich seit zweihundert Jahren "
    german += "nicht mehr ausgeruht, weil das Dorf ohne sie in keinem seiner Häuser ein Brot auf dem Tisch hätte."
    page = article([german] * 3).encode()
    texts = [
        extract_page(page, "text/html", None, URL, "justext", "plain", options=options).get("text", "")
        for options in ({}, {"stop_list": "German"})
    ]
    assert german not in texts[0] and german in texts[1]


@pytest.mark.parametrize("engine", ["blocks", "trafilatura", "resiliparse", "plain"])
@pytest.mark.parametrize(
    "start",
    [
        '<template shadowrootmode="open">',
        "<template shadowrootmode=open shadowrootclonable>",
        "<TEMPLATE id='a>b' shadowrootmode='closed'>",
        '<template shadowroot = "open">',
    ],
)
def test_what_a_declarative_shadow_root_holds_is_content(engine, start):
    inert = "<template><p>A row that a script would copy, and that no browser shows to anybody at all.</p></template>"
    story = "".join(f"<p>{paragraph}</p>" for paragraph in STORY)
    inner = f"<x-inner>{start}<article><h1>The mill</h1>{story}</article>{inert}</template></x-inner>"
    page = f"<html><body><main><x-a>{start}<style>p{{color:red}}</style>{inner}</template></x-a></main>"
    page += f"{inert}<footer><p>Copyright 2024 The Mill. All rights reserved.</p></footer></body></html>"
    text = extract_page(page.encode(), "text/html", None, URL, engine, "plain")["text"]
    assert all(paragraph in text for paragraph in STORY)
    assert "color:red" not in text and "script would copy" not in text


def test_a_template_that_is_no_shadow_root_is_not_shown():
    hidden = f"<template data-shadowrootmode='open'><p>{STORY[0]}</p></template><template shadowrootmode=other>"
    page = f"<html><body>{hidden}<p>{STORY[1]}</p></template><p>{STORY[2]}</p></body></html>"
    assert extract_page(page.encode(), "text/html", None, URL, "plain", "plain")["text"].strip() == STORY[2]
