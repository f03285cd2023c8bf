"""Inputs that a careless change gets wrong: marks that models read, hosts with `www`, cells that span rows, scripts of
which bytes and characters differ."""

import random
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.made.archives import write_lines
from tests.golden.made.words import NOUNS, SENTENCES, paragraph, prose
from tests.tasks.models.embedding import test_static_model as static

_ROWS = (
    "<tr><th>Part</th><th>Size</th><th>Use</th></tr>"
    "<tr><td rowspan=2>Wheel</td><td>3</td><td>turns</td></tr><tr><td>4</td><td>drives</td></tr>"
    "<tr><td>Stone</td><td>5</td><td>grinds</td></tr><tr><td>Sack</td><td rowspan=3>6</td><td>holds</td></tr>"
    "<tr><td>Cart</td><td>carries</td></tr><tr><td>Mule</td><td>pulls</td></tr><tr><td>Barn</td><td>7</td><td>keeps</td></tr>"
)


def write_careless(folder: Path) -> None:
    """The sources, lists and models of the rows in `tests.golden.rows.careless`, in a folder that may be there."""
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "marked.jsonl", _marked())
    write_lines(folder / "hosts.jsonl", _hosts())
    write_lines(folder / "scripts.jsonl", _scripts())
    write_lines(folder / "long.jsonl", _long())
    write_lines(
        folder / "named.jsonl", [{"text": prose("careless named", 60, 5)}, {"text": prose("careless short", 1, 3)}]
    )
    for name, short in (("a", 1), ("b", 2), ("c", 18), ("d", 2)):
        write_lines(folder / f"loses_{name}.jsonl", _losing(name, short))
    (folder / "pages").mkdir(exist_ok=True)
    for at in range(3):
        (folder / "pages" / f"{at}.html").write_text(_page(at), encoding="utf-8")
    write_lines(folder / "tied.jsonl", _tied())
    write_lines(folder / "hosted.jsonl", _hosted())
    write_lines(folder / "numbers.jsonl", _numbers())
    (folder / "taken.txt").write_text("plain.example/page\nhttps://other.example/a/*\nwww3.third.example\n", "utf-8")
    (folder / "bad.txt").write_text("rotten\nrotten grain\nrotten grain sack\nmould\nmouldy\n", "utf-8")
    _scripts_without_ending(folder / "scripts")
    static.write(folder / "static", weights=static.WEIGHTS)
    done = np.array([1], np.uint8)
    (folder / "done").write_bytes(done.tobytes())


def _marked() -> list[dict[str, Any]]:
    """Texts with what fastText and mail addresses are marked by, in their middle."""
    draw = random.Random("careless marks")
    marks = ("</s>", "__label__mills", "__label__", "</S>", "</s >")
    texts = []
    for at in range(20):
        one, other = (" ".join(draw.choices(NOUNS[begin : begin + 20], k=30)) for begin in (0, 20))
        texts.append(f"{one} {marks[at % len(marks)]} {other}")
    texts += [
        f"Write to {name}{at}{host}{dot}{end} about the mill."
        for name, host in (("jane", "uni-bonn"), ("joe", "mill"))
        for at in (" {at} ", "{at}", " (at) ", " [at] ", " <at> ", " at ")
        for dot in (" {dot} ", " (dot) ", " [dot] ", ".")
        for end in ("de", "org")
    ]
    texts += [
        "\n".join([paragraph(f"counter {at}", 5), line, paragraph(f"counter {at} b", 5)])
        for at, line in enumerate(
            (
                "1.2B views",
                "3b likes",
                "4m shares",
                "5K",
                "6 k likes",
                "7t likes",
                "8 likes",
                "9,1 comments",
                "10 B views",
            )
        )
    ]
    texts += [
        f"{'good flour and bread ' * at}{bad} {'in the mill ' * (at % 3)}"
        for at in range(1, 7)
        for bad in ("rotten grain sack", "rotten grain", "a rotten sack", "mouldy", "mould mouldy rotten")
    ]
    texts += [
        "river river nothing mill mill unknown stone stone grain " + "odd " * at + "flour wheel" for at in range(6)
    ]
    return [{"text": text, "url": f"https://marks.example/{at}"} for at, text in enumerate(texts)]


def _hosts() -> list[dict[str, Any]]:
    """Pages of hosts that are one, or not, by what they begin with."""
    hosts = (
        *("plain.example", "www.plain.example", "www2.plain.example", "www10.plain.example", "wwwx.plain.example"),
        *("other.example", "www.other.example", "WWW.Other.example", "www.example", "www2.example", "third.example"),
        *("www3.third.example", "ww3.third.example", "www.www.third.example"),
    )
    return [
        {"text": prose(f"host {host} {path}", 2, 3), "url": f"https://{host}/{path}", "date": f"2024-01-0{1 + at % 9}"}
        for at, host in enumerate(hosts)
        for path in ("page", "a/1", "a/2", "b", "c", "d")
    ]


def _scripts() -> list[dict[str, Any]]:
    """Texts of many scripts, of which the bytes are one to four times the characters."""
    found = []
    for at, (language, sentence) in enumerate(sorted(SENTENCES.items()) * 3):
        text = f"{sentence} {at} " * (1 + at % 4) + ("ひらがな カタカナ 粉ひき " if at % 5 == 0 else "")
        text += "bars ▁ of ▁▁ blocks▁" if at % 3 == 0 else ""
        found.append({"text": text, "url": f"https://{language}.example/{at}"})
    return found


def _long() -> list[dict[str, Any]]:
    """Copies of a named text of more than 8,000 characters, whole and in part, and documents of their own."""
    whole = prose("careless named", 60, 5)
    texts = [whole, whole[:8_000], whole[8_000:], whole[4_000:12_000], whole + " " + prose("careless tail", 30, 5)]
    texts += [prose(f"careless own {at}", 2, 4) for at in range(30)]
    return [{"text": text, "url": f"https://long.example/{at}"} for at, text in enumerate(texts)]


def _hosted() -> list[dict[str, Any]]:
    """Documents that name a host of their own, which is not that of their URL."""
    return [
        {"text": prose(f"hosted {at}", 1, 3), "url": f"https://u{at % 7}.example/{at}", "host": f"own{at % 5}.example"}
        for at in range(40)
    ]


def _numbers() -> list[dict[str, Any]]:
    """Pages of a host with lines that differ in their numbers: rows of separated values, dates, a count of pages."""
    draw = random.Random("careless numbers")
    texts = [
        "\n".join(
            [f"Page {at + 1:02} of the list, written by the miller", "day;sacks;price;weight"]
            + [f"2024-03-{day:02};{draw.randrange(100, 1000)};{draw.randrange(10, 100)}.50" for day in range(1, 9)]
            + [f"Ground on 2024-03-{at + 10} at 10:{at + 10} by us"]
        )
        for at in range(12)
    ]
    return [{"text": text, "url": f"https://numbers.example/{at}"} for at, text in enumerate(texts)]


def _losing(name: str, short: int) -> list[dict[str, Any]]:
    """Twenty documents, of which so many are short."""
    return [
        {
            "text": f"{name} {at} short." if at < short else prose(f"loses {name} {at}", 1, 4),
            "url": f"https://{name}.example/{at}",
        }
        for at in range(20)
    ]


def _page(at: int) -> str:
    body = "".join(f"<p>{paragraph(f'table {at} {n}', 5)}</p>" for n in range(3))
    return f"<html><body><main><h1>Mill {at}</h1>{body}<table>{_ROWS}</table>{body}</main></body></html>"


def _tied() -> list[dict[str, Any]]:
    """Groups of equal texts, so that percentiles fall on scores that several documents have."""
    return [{"text": prose(f"tied {at // 8}", 1, 2 + at // 8), "url": f"https://tied.example/{at}"} for at in range(64)]


def _scripts_without_ending(folder: Path) -> None:
    """Programs that only their first line names."""
    folder.mkdir(exist_ok=True)
    first = {
        "dotted": "#!/usr/bin/env python3.11",
        "plain": "#!/usr/bin/python3",
        "bare": "#!/usr/bin/env python",
        "shell": "#!/bin/bash5.2",
        "lua": "#!/usr/bin/lua5.4",
        "other": "#!/usr/bin/env unknown9.1",
        "ruby": "#!/usr/bin/ruby2.7.1",
    }
    for name, line in first.items():
        (folder / name).write_text(f"{line}\n# A mill.\nx = 1\nprint(x)\n", encoding="utf-8")
