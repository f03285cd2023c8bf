"""Statements of pages and HTTP headers: what is read, and what is none."""

import pytest

from gristmill.tasks.rights.page import page_rights
from gristmill.tasks.rights.statements import Statement, read, usages, written
from gristmill.tasks.rights.step import judged, reservation

TRAINING = ("GPTBot", "CCBot")


def signals(head: str = "", *headers: tuple[str, str], body: str = "") -> list[str]:
    page = f"<!DOCTYPE html><html><head><title>t</title>{head}</head><body>{body}<p>x</p></body></html>"
    return (page_rights(page, headers)["rights_signals"] or "").split("\n")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("noai, noimageai", ["* noai", "* noimageai"]),
        ("NOAI", ["* noai"]),
        ("none", ["* noindex"]),
        ("googlebot: noindex, noai", ["googlebot noindex", "googlebot noai"]),
        ("unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT, noai", ["* noai"]),
        ("max-snippet:0, max-image-preview: large, noai", ["* noai"]),
        ("index, follow", []),
        ("noai\x00", []),
        ("", []),
    ],
)
def test_directives_of_a_header(value, expected):
    stated = [line.split(" ", 2)[2] for line in signals("", ("x-robots-tag", value)) if line]
    assert stated == expected


def test_each_line_of_a_header_has_its_own_agent():
    lines = signals("", ("x-robots-tag", "otherbot: noindex"), ("x-robots-tag", "noai"))
    assert lines == ["robots_tag header otherbot noindex", "robots_tag header * noai"]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<meta name="robots" content="noai">', "robots_tag meta * noai"),
        ("<META CONTENT=NOAI NAME=ROBOTS>", "robots_tag meta * noai"),
        ('<meta name="GPTBot" content="noai">', "robots_tag meta gptbot noai"),
        ('<meta name="robots" content="no&#97;i">', "robots_tag meta * noai"),
        ('<meta name="tdm-reservation" content="1">', "tdm meta * reservation=1"),
        ('<meta name="tdm-reservation" content="2">', ""),
        ('<meta property="robots" content="noai">', ""),
        ('<meta name="description" content="robots noai noindex">', ""),
        ('<!-- <meta name="robots" content="noai"> -->', ""),
        ('<script>"<meta name=robots content=noai>"</script>', ""),
        ('<template><meta name="robots" content="noai"></template>', ""),
        ('<meta name="theme" content="none">', ""),
        ('<meta http-equiv="Content-Usage" content="train-ai=n">', ""),
    ],
)
def test_meta_tags(head, expected):
    assert signals(head) == [expected]


def test_a_meta_tag_in_the_body_counts():
    assert signals(body='<meta name="robots" content="noai">') == ["robots_tag meta * noai"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("train-ai=n", ["train-ai=n"]),
        (" train-ai=n ,search=y", ["train-ai=n", "search=y"]),
        ("train-ai=n;a=1, other=y", ["train-ai=n"]),
        ("train-ai=n, train-ai=y", ["train-ai=y"]),  # RFC 9651: the last one
        ('train-ai="n"', []),
        ("train-ai", []),
        ("Train-AI=n", []),  # no key: the whole dictionary fails
        ("train-ai=n,", []),
        ("train-ai=n, \u00e9=1", []),
        ("(" * 5000, []),
        ("", []),
    ],
)
def test_values_of_content_usage(value, expected):
    assert usages(value) == expected


def test_lines_of_content_usage_are_one_dictionary():
    lines = signals("", ("content-usage", "train-ai=n"), ("content-usage", "search=y"))
    assert lines == ["content_usage header * train-ai=n", "content_usage header * search=y"]


def test_statements_are_read_as_they_were_written():
    given = [Statement("tdm", "header", "*", "policy=https://a.example/a b"), Statement("tdm", "meta", "*", "x")]
    assert read(written(given)) == given
    assert read(written([])) == []


def test_a_page_is_judged_by_its_agents_and_protocols():
    def reserved(protocols, *lines: str) -> list[str]:
        row = judged(TRAINING, protocols, ("noai",), read("\n".join(lines)), "")
        return [name for name, value in row.items() if value and name != "rights_granted"]

    every = ("robots_tag", "tdm", "content_usage")
    assert reserved(every, "robots_tag header gptbot noai") == ["rights_robots_tag"]
    assert reserved(every, "robots_tag header otherbot noai") == []
    assert reserved(every, "robots_tag header * noindex") == []
    assert reserved(("tdm",), "robots_tag header * noai", "tdm meta * reservation=1") == ["rights_tdm"]
    assert reserved(every, "content_usage header * train-ai=n") == ["rights_content_usage"]
    assert reserved(every, "content_usage header * search=n") == []


def test_a_tag_supersedes_a_header_field():
    assert reservation(read("tdm header * reservation=1\ntdm meta * reservation=0")) == ("0", "meta")
    assert reservation(read("tdm header * reservation=1\ntdm meta * policy=x")) == ("1", "header")
    assert reservation([]) is None


def test_a_page_of_many_statements_has_a_short_column():
    head = '<meta name="robots" content="noai">' * 500
    names = "".join(f'<meta name="bot{i}" content="noai">' for i in range(1000))
    assert len(signals(head + names)) == 50
    assert signals(head * 100) == ["robots_tag meta * noai"]  # of which the first are read
    assert len("\n".join(signals("", ("tdm-policy", "x" * 60_000)))) < 400
