"""From a plan and a number to a page: its text, its HTML, its record, and the truth about it.

A page is a function of the plan and its number alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache
from random import Random
from typing import Any

from tests.planted import duplicates, leaks, personal, sites
from tests.planted.plan import COPIES, JACCARDS, SENT, Plan
from tests.planted.poor import poor
from tests.planted.records import Sent
from tests.planted.templates import render
from tests.planted.text import Block, blocks, joined, phrase, prose
from tools.harvest.texts import UNSPACED


@dataclass(frozen=True)
class Text:
    """Main text of a page. `planted` are columns of the truth about what is in it."""

    language: str
    title: str
    blocks: tuple[Block, ...]
    planted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page of the crawl: how it is sent, its HTTP headers and body, and its row of the truth, which lacks only its
    place in the archive."""

    sent: Sent
    headers: tuple[tuple[str, str], ...]
    body: bytes
    truth: dict[str, Any]


def texts(plan: Plan) -> Iterator[tuple[int, str, Text]]:
    """(number, kind, text) of pages: for tests of what comes after extraction."""
    for number, (kind, index) in enumerate(plan.slots):
        yield number, kind, _text(plan, kind, index)


def page(plan: Plan, number: int) -> Page:
    kind, index = plan.slots[number]
    variant, text, rng = plan.variant(kind, index), _text(plan, kind, index), Random(f"{plan.seed}/page/{number}")
    file = next(f for f in range(plan.files) if number in plan.pages_of(f))
    second = int(rng.random() * 28 * 86_400)
    sent = SENT.get(kind, {}).get(variant, Sent())
    content = joined(text.blocks)
    truth = {
        "page": number,
        "kind": kind,
        "variant": variant,
        "yields": sent.yields,
        **_address(plan, kind, variant, index),
        "date": f"{plan.snapshot(file)}-{second // 86_400 + 1:02d}"
        f"T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z",
        "snapshot": plan.snapshot(file),
        "status": int(sent.status[:3]) if sent.http else None,
        "language": text.language,
        "charset": sent.codec,
        "title": text.title,
        "published": str(date(2008, 1, 1) + timedelta(days=int(rng.random() * 5800))),
        "text": content if sent.yields == "page" else None,
        "record_type": sent.record_type,
        **text.planted,
    }
    html = render(rng, truth, text.blocks, sent.meta)
    body = sent.body(rng, sent.mark + html.encode(sent.codec, "xmlcharrefreplace"), content)
    named = (("Content-Type", sent.content_type),) if sent.content_type else ()
    return Page(sent, (("Server", "planted"), *named, *sent.headers, ("Content-Length", str(len(body)))), body, truth)


def _address(plan: Plan, kind: str, variant: str, index: int) -> dict[str, str]:
    number = plan.numbers[kind, index]
    rng = Random(f"{plan.seed}/address/{number}")
    if kind == "blocked":
        return sites.blocked(rng, variant, number)
    if kind == "recrawl":
        earlier = _address(plan, "page", "", plan.base(kind, index))
        return sites.respelt(rng, earlier) if variant == "tracking" else earlier
    address = sites.address(rng, plan.pages, _text(plan, kind, index).title, number)
    return sites.respelt(rng, address) if rng.random() < plan.tracking else address


@lru_cache(maxsize=256)
def _text(plan: Plan, kind: str, index: int) -> Text:
    rng, variant = Random(f"{plan.seed}/{kind}/{index}"), plan.variant(kind, index)
    if kind in COPIES:
        return _copy(plan, rng, kind, variant, index)
    if kind == "poor":
        return Text("en", phrase(rng, "en", 5), poor(rng, variant))
    shares = dict(plan.languages)
    if kind == "page" and plan.needs_spaces(index):
        shares = {code: share for code, share in shares.items() if code not in UNSPACED}
    if kind == "charset":
        shares = {SENT[kind][variant].language: 1}
    [language] = rng.choices(list(shares), list(shares.values()))
    words = min(plan.max_words, max(plan.min_words, rng.lognormvariate(0, 0.8) * plan.median_words))
    title, parts = phrase(rng, language, rng.randint(4, 9)), blocks(rng, language, int(words))
    spans = []
    if kind in ("personal", "lookalike"):
        parts, spans = personal.insert(rng, parts, variant)
    elif kind == "leak":
        parts, spans = leaks.leak(rng, parts, index // 2 % len(leaks.ITEMS), variant)
    return Text(language, title, parts, {kind: spans} if spans else {})


def _copy(plan: Plan, rng: Random, kind: str, variant: str, index: int) -> Text:
    of = plan.base(kind, index)
    base = _text(plan, "page", of)
    original, planted = joined(base.blocks), {}
    copy = original
    if kind == "near":
        planted = {"wanted_jaccard": JACCARDS[index % len(JACCARDS)]}
        copy = duplicates.near_copy(rng, original, base.language, planted["wanted_jaccard"])
    elif kind == "template":
        copy = duplicates.template_copy(rng, original, base.language)
    elif variant == "changed":
        copy += "\n\n" + prose(rng, base.language, 20)[0]
    earlier = {plan.numbers["page", of]: original}
    earlier |= {plan.numbers[kind, i]: joined(_text(plan, kind, i).blocks) for i in plan.siblings(kind, index)}
    pairs = [{"page": number, "jaccard": duplicates.jaccard(copy, text)} for number, text in earlier.items()]
    planted |= {"base": pairs[0]["page"], "jaccard": pairs[0]["jaccard"], "pairs": pairs}
    kinds = [*(block.kind for block in base.blocks), "p"]
    parts = tuple(Block(kind, text) for kind, text in zip(kinds, copy.split("\n\n"), strict=False))
    return Text(base.language, base.title, parts, planted)
