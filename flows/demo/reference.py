"""Edited prose: where a machine has it, and what distinguishes a page of it from a list of signatures."""

import gzip
import html
import json
import re
from collections.abc import Iterator
from hashlib import sha1
from importlib.util import find_spec
from pathlib import Path
from pydoc_data import topics

from resiliparse.extract.html2text import extract_plain_text

from gristmill.flows.demo.archive import MANUAL, SERVICES, Page, html_page, preformatted

PARAGRAPH = re.compile(r"\n\s*\n")
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
SENTENCE_END = re.compile(r"[.!?:][\"')\]]*$")
NO_PROSE = re.compile(r"[^\w\s.,;:'’()\"`-]|[\d_]")
FIELD = re.compile(r"^\s*(?:>>>|\.\.|[-=~*^]{3}|:\w+|\S+ : )", re.MULTILINE)
FUNCTION_WORDS = frozenset(
    "a an and are as at be been but by can for from has have if in into is it its may must no not of on or "
    "should so such than that the their then there these they this to use used was when where which will "
    "with you".split()
)


MAX_SERVICE = 45_000
"""Bytes of a service's page: the few longer ones would be half the text of all."""


def manual_pages() -> Iterator[Page]:
    """Chapters of the Python language reference, which the interpreter carries for `help('topics')`."""
    for topic, text in sorted(topics.topics.items()):
        yield Page(
            f"{MANUAL}{topic}.html",
            "modules",
            "text/html; charset=utf-8",
            preformatted(topic, text),
            edited=True,
        )


def service_pages() -> Iterator[Page]:
    """One page for each web service that botocore describes: overview and operations, in botocore's own HTML.

    The newest description of each service, its operations in the order of their names. Nothing where botocore
    is not installed. One service's description is held in memory.
    """
    spec = find_spec("botocore")
    if spec is None or spec.origin is None:
        return
    for folder in sorted((Path(spec.origin).parent / "data").iterdir()):
        described = sorted(folder.glob("*/service-2.json*"))
        if not described:
            continue
        data = described[-1].read_bytes()
        service = json.loads(gzip.decompress(data) if described[-1].suffix == ".gz" else data)
        parts = [
            f"<h1>{html.escape(service['metadata']['serviceFullName'])}</h1>",
            service.get("documentation", ""),
        ]
        for name, operation in sorted(service["operations"].items()):
            parts += [f"<h2>{html.escape(name)}</h2>", operation.get("documentation", "")]
        payload = html_page(service["metadata"]["serviceFullName"], "\n".join(parts))
        if len(payload) <= MAX_SERVICE:
            yield Page(f"{SERVICES}{folder.name}.html", "packages", "text/html; charset=utf-8", payload, edited=True)


def main_text(page: Page) -> str:
    """The text a reader of the page sees."""
    charset = page.content_type.rpartition("charset=")[2]
    text = page.payload.decode(charset, "replace")
    return extract_plain_text(text, main_content=True) if page.content_type.startswith("text/html") else text


def prose_words(text: str) -> tuple[int, int]:
    """Words that stand in running English prose, and all words.

    A paragraph is prose if it has 15 words or more, ends like a sentence, has no field, underline, directive
    or prompt at a line's start, if at least a quarter of its words are function words, and if digits,
    operators and the like are at most a twentieth of it.
    """
    prose = total = 0
    for paragraph in PARAGRAPH.split(text):
        words = WORD.findall(paragraph)
        total += len(words)
        if len(words) < 15 or not SENTENCE_END.search(paragraph.rstrip()) or FIELD.search(paragraph):
            continue
        function = sum(word.lower() in FUNCTION_WORDS for word in words)
        if function >= len(words) / 4 and len(NO_PROSE.findall(paragraph)) <= len(paragraph) / 20:
            prose += len(words)
    return prose, total


def is_reference(page: Page, text: str, share: float) -> bool:
    """Whether an edited page becomes reference: 150 words and 30% of all or more are prose, and it is drawn.

    `share` of such pages, drawn by the digest of their address, become reference. The others stay where they
    were: good pages are found among the raw ones too, and a classifier cannot win by the style of a source alone.
    """
    if not page.edited:
        return False
    prose, total = prose_words(text)
    draw = int.from_bytes(sha1(page.url.encode()).digest()[:4], "big") / 2**32
    return prose >= 150 and prose >= 0.3 * total and draw < share
