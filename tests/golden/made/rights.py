"""A crawl whose pages and sites state how they may be used, and the lists of its sites' files."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.golden.made.archives import packed, record
from tests.golden.made.words import prose

BY = "https://creativecommons.org/licenses/by{}/4.0/"
HEADERS = (
    "X-Robots-Tag: noai, noimageai\r\n",
    "X-Robots-Tag: otherbot: noai\r\nX-Robots-Tag: gptbot: noindex, noai\r\n",
    "X-Robots-Tag: unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT, noai\r\n",
    "TDM-Reservation: 1\r\nTDM-Policy: https://a.example/policy.json\r\n",
    "tdm-reservation: 0\r\n",
    "tdm-reservation: 2\r\n",
    "Content-Usage: train-ai=n\r\nContent-Usage: search=y\r\n",
    "Content-Usage: train-ai=y, search=n\r\n",
    'Content-Usage: train-ai="n"\r\n',
    f'Link: <{BY.format("-sa")}>; rel="license"\r\n',
)
HEADS = (
    '<meta name="robots" content="index, noai">',
    '<meta name="robots" content="no&#97;i">',
    '<meta name="CCBot" content="noai"><meta name="otherbot" content="none">',
    '<meta name="tdm-reservation" content="1"><meta name="tdm-policy" content="https://a.example/p">',
    '<!-- <meta name="robots" content="noai"> --><template><meta name="robots" content="noai"></template>',
    f'<link rel="license" href="{BY.format("-nc")}">',
    f'<meta name="dcterms.rights" content="{BY.format("-nd")}">',
    f'<script type="application/ld+json">{{"@graph":[{{"@type":"Article","license":"{BY.format("")}"}}]}}</script>',
    f'<script type="application/ld+json">{{"@type":"ImageObject","license":"{BY.format("")}"}}</script>',
)
BODIES = (
    f'<p>This work is licensed under a <a rel="license" href="{BY.format("")}">license</a>.</p>',
    f'<footer>Site by Ann. <a href="{BY.format("-nc-sa")}">Some rights reserved</a></footer>',
    f'<figure><figcaption>Ann, <a href="{BY.format("")}">CC BY 4.0</a></figcaption></figure>',
    f'<p>The photos of this page are under <a href="{BY.format("")}">CC BY</a>.</p>',
    "<footer>The text is licensed under Creative Commons Attribution-ShareAlike 3.0.</footer>",
    "<p>Permission is granted to copy, distribute and/or modify this document under the terms of the GNU Free "
    "Documentation License, Version 1.2 or any later version.</p>",
    "<footer>Copyright &copy; 2001-2020 <b>Ann</b>. All rights reserved.</footer>",
    "".join(f'<a href="{BY.format(each)}">CC BY{each}</a> ' for each in ("", "-sa", "-nc", "-nd")),
)


def _pages() -> Iterator[tuple[str, str, str]]:
    """(header fields, elements of the head, elements of the body)."""
    yield from ((fields, "", "") for fields in HEADERS)
    yield from (("", head, "") for head in HEADS)
    yield from (("", "", body) for body in BODIES)
    yield HEADERS[4], HEADS[3], BODIES[0]
    yield HEADERS[3], '<meta name="tdm-reservation" content="0">', BODIES[1]
    yield from [("", "", "")] * 12


def write_rights(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for at, (fields, head, body) in enumerate(_pages()):
        page = (
            f"<html><head><title>{at}</title>{head}</head><body><p>{prose(f'right {at}', 1, 2)}</p>{body}</body></html>"
        )
        records.append(record(f"https://r{at % 4}.example/{at}", page.encode(), 500 + at, more=fields))
    (folder / "pages.warc.gz").write_bytes(packed(records))
    robots = {
        "r0.example": "User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /*8$\n\n"
        "User-agent: *\nDisallow: /3\nAllow: /32\n",
        "r1.example": "User-agent: *\nContent-Usage: /2 train-ai=y\nContent-Usage: train-ai=n\n",
        "r3.example:443/robots.txt": "User-agent: *\nDisallow: /27\n",
        "https://r2.example:443/robots.txt": "\ufeffUser-agent: *\rDisallow: /\u2028x\rDisallow: /30\r",
    }
    rules = [{"location": "/1*", "tdm-reservation": 1}, {"location": "/", "tdm-reservation": 0}]
    for name, texts in (("robots", robots), ("tdmrep", {"r3.example": json.dumps(rules), "r2.example": "{}"})):
        lines = [json.dumps({"host": host, "text": text}) for host, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    answers = [
        record("http://r0.example/robots.txt", b"", 1, status="301 Moved", more="Location: https://w.example/r\r\n"),
        record("https://w.example/r", b"User-agent: *\nDisallow: /2\n", 2, content_type="text/plain"),
        record("https://r1.example/robots.txt", b"User-agent: *\nDisallow: /none\n", 2),
        record("https://r1.example/robots.txt", b"User-agent: *\nDisallow: /\n", 3, status="503 Busy"),
        record("https://r2.example/robots.txt", b"", 4, status="301 Moved", more="Location: /robots.txt\r\n"),
        record("https://r3.example/robots.txt", b"User-agent: *\nDisallow: /\n", 5),
        record("https://r3.example/robots.txt", b"gone", 6, status="404 Not Found"),
        record("https://r3.example/.well-known/tdmrep.json", json.dumps(rules).encode(), 7),
    ]
    (folder / "sites.warc.gz").write_bytes(packed(answers))
    (folder / "hosts.txt").write_text("https://r3.example/31\nr9.example\n")
