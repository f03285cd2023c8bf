"""From a plan and a number to a page: its text, its HTML, its record, and the truth about it.

A page is a function of the plan and its number alone, so that any process can make any page.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache
from html import escape
from itertools import accumulate
from random import Random
from typing import Any

from tests.planted import archive, charsets, duplicates, faults, hostile, leaks, others, personal, poor, sites, transfer
from tests.planted.plan import Plan
from tests.planted.templates import Content, render
from tests.planted.text import Block, blocks, joined, length, phrase
from tests.planted.words import SPACED

_FIRST_DAY = date(2008, 1, 1)
_UTF8 = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Text:
    """Main text of a page. `planted` are columns of the truth that say what is in it."""

    language: str
    title: str
    blocks: tuple[Block, ...]
    planted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page of the crawl: its record, the damage that is done to it, and its row of the truth, which lacks only
    where it lies."""

    message: archive.Message
    fault: faults.Fault | None
    truth: dict[str, Any]


def texts(plan: Plan, numbers: range | None = None) -> Iterator[tuple[int, str, Text]]:
    """(number, kind, text) of pages: for tests of what comes after extraction, three times as fast as with HTML."""
    for number in range(plan.pages) if numbers is None else numbers:
        kind, variant, index = plan.slot(number)
        yield number, kind, _text(plan, kind, variant, index)


def page(plan: Plan, number: int) -> Page:
    kind, variant, index = plan.slot(number)
    text = _text(plan, kind, variant, index)
    rng = Random(f"{plan.seed}/page/{number}")
    site, address = _address(plan, rng, text, number)
    if kind == "recrawl":
        of = plan.base(kind, index)
        earlier = plan.number("page", of)
        site, address = _address(plan, Random(f"{plan.seed}/page/{earlier}"), _ordinary(plan, of), earlier)
        if variant == "tracking":
            address = sites.respelt(rng, address)
    elif kind == "blocked":
        address = sites.blocked(rng, variant, number)
    elif plan.tracking and rng.random() < plan.tracking:
        address = sites.respelt(rng, address)
    snapshot = plan.snapshot(plan.file(number))
    day, second = divmod(int(rng.random() * 28 * 86_400), 86_400)
    truth = {
        "page": number,
        "kind": kind,
        "variant": variant,
        "yields": "page",
        "url": address.url,
        "canonical_url": address.canonical,
        "host": address.host,
        "domain": address.domain,
        "date": f"{snapshot}-{day + 1:02d}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z",
        "snapshot": snapshot,
        "status": 200,
        "language": "en" if text.language == "pydoc" else text.language,
        "charset": "utf-8",
        "title": text.title,
        "published": str(_FIRST_DAY + timedelta(days=int(rng.random() * 5800))),
        "text": joined(text.blocks),
        "blocks": [block.kind for block in text.blocks],
        "record_type": "response",
        "record_id": archive.record_id(rng),
        **text.planted,
    }
    if plan.container == "wet":
        truth["record_type"] = "conversion"
        message = _message(truth, site.ip, truth["text"].encode(), None, content_type="text/plain")
        return Page(message, None, truth)
    content = Content(text.title, text.blocks, text.language, address.canonical, truth["published"])
    return _SENT.get(kind, _plainly)(plan, rng, site, content, variant, truth)


# Texts


def _text(plan: Plan, kind: str, variant: str, index: int) -> Text:
    return _ordinary(plan, index) if kind == "page" else _TEXTS.get(kind, _own)(plan, kind, variant, index)


def _ordinary(plan: Plan, index: int) -> Text:
    """Text of an ordinary page, which copies of it begin with."""
    rng = Random(f"{plan.seed}/text/{index}")
    return _fresh(plan, rng, _language(plan, rng, plan.needs_spaces(index)))


_template_base = lru_cache(maxsize=16)(_ordinary)


def _own(plan: Plan, kind: str, variant: str, index: int) -> Text:
    rng = Random(f"{plan.seed}/{kind}/{index}")
    if kind == "charset":
        return _fresh(plan, rng, rng.choice(charsets.VARIANTS[variant].charset.languages))
    return _fresh(plan, rng, _language(plan, rng))


def _language(plan: Plan, rng: Random, spaced: bool = False) -> str:
    codes, ends = _languages(plan.languages, spaced)
    return codes[min(bisect_right(ends, rng.random() * ends[-1]), len(codes) - 1)]


@lru_cache
def _languages(shares: tuple[tuple[str, float], ...], spaced: bool) -> tuple[list[str], list[float]]:
    chosen = [(code, share) for code, share in shares if not spaced or code == "pydoc" or code in SPACED]
    return [code for code, _ in chosen], list(accumulate(share for _, share in chosen))


def _fresh(plan: Plan, rng: Random, language: str) -> Text:
    words = length(rng, plan.median_words, plan.sigma, plan.min_words, plan.max_words)
    return Text(language, phrase(rng, language, rng.randint(4, 9)), blocks(rng, language, words))


def _exact(plan: Plan, kind: str, variant: str, index: int) -> Text:
    of = plan.base(kind, index)
    base = _ordinary(plan, of)
    same = [plan.number("page", of), *(plan.number(kind, i) for i in plan.siblings(kind, index))]
    planted = {"base": same[0], "jaccard": 1.0, "pairs": [{"page": n, "jaccard": 1.0} for n in same]}
    return Text(base.language, base.title, base.blocks, planted)


def _near(plan: Plan, kind: str, variant: str, index: int) -> Text:
    base = _ordinary(plan, plan.base(kind, index))
    size, siblings = len(duplicates.grams(joined(base.blocks))), plan.siblings(kind, index)
    parts = _near_blocks(plan, base, size, index)
    others = [base.blocks, *(_near_blocks(plan, base, size, other) for other in siblings)]
    numbers = [plan.number("page", plan.base(kind, index)), *(plan.number(kind, other) for other in siblings)]
    planted = _similar(parts, numbers, others)
    wanted = plan.jaccards[index % len(plan.jaccards)]
    return Text(base.language, base.title, parts, planted | {"wanted_jaccard": wanted})


def _near_blocks(plan: Plan, base: Text, size: int, index: int) -> tuple[Block, ...]:
    rng, wanted = Random(f"{plan.seed}/near/{index}"), plan.jaccards[index % len(plan.jaccards)]
    return duplicates.near_copy(rng, base.blocks, size, base.language, wanted)


def _template(plan: Plan, kind: str, variant: str, index: int) -> Text:
    of = plan.base(kind, index)
    base = _template_base(plan, of)
    parts = duplicates.template_copy(Random(f"{plan.seed}/template/{index}"), base.blocks, base.language)
    return Text(base.language, base.title, parts, _similar(parts, [plan.number("page", of)], [base.blocks]))


def _recrawl(plan: Plan, kind: str, variant: str, index: int) -> Text:
    of = plan.base(kind, index)
    base = _ordinary(plan, of)
    parts = base.blocks
    if variant == "changed":
        parts = (*parts, *blocks(Random(f"{plan.seed}/recrawl/{index}"), base.language, 20)[:1])
    return Text(base.language, base.title, parts, _similar(parts, [plan.number("page", of)], [base.blocks]))


def _similar(parts: tuple[Block, ...], numbers: list[int], others: list[tuple[Block, ...]]) -> dict[str, Any]:
    """What the truth says of a copy: `others` are the texts of the pages `numbers`, the base first."""
    found = duplicates.jaccards(joined(parts), [joined(other) for other in others])
    pairs = [{"page": number, "jaccard": j} for number, j in zip(numbers, found, strict=True)]
    return {"base": numbers[0], "jaccard": found[0], "pairs": pairs}


def _personal(plan: Plan, kind: str, variant: str, index: int) -> Text:
    text = _own(plan, kind, variant, index)
    make = (personal.KINDS if kind == "personal" else personal.LOOKALIKES)[variant]
    rng = Random(f"{plan.seed}/{kind}/{index}/values")
    parts, spans = personal.insert(rng, text.blocks, variant, make)
    return Text(text.language, text.title, parts, {"personal" if kind == "personal" else "lookalikes": spans})


def _leak(plan: Plan, kind: str, variant: str, index: int) -> Text:
    text = _own(plan, kind, variant, index)
    item = index // len(plan.variants_of(kind)) % len(plan.items)
    rng = Random(f"{plan.seed}/leak/{index}/item")
    parts, spans = leaks.leak(rng, text.blocks, item, plan.items[item], variant == "edited")
    return Text(text.language, text.title, parts, {"leaks": spans})


def _poor(plan: Plan, kind: str, variant: str, index: int) -> Text:
    rng = Random(f"{plan.seed}/poor/{index}")
    return Text("en", phrase(rng, "en", 5), poor.poor(rng, variant))


_TEXTS = {
    "exact": _exact,
    "near": _near,
    "template": _template,
    "recrawl": _recrawl,
    "personal": _personal,
    "lookalike": _personal,
    "leak": _leak,
    "poor": _poor,
}


# Records


def _address(plan: Plan, rng: Random, text: Text, number: int) -> tuple[sites.Site, sites.Address]:
    site = sites.choose(rng, plan.seed, plan.pages)
    return site, sites.address(rng, site, text.title, number)


def _message(
    truth: dict, ip: str, body: bytes, http: tuple[str, archive.Headers] | None, **more: Any
) -> archive.Message:
    return archive.Message(
        truth["record_type"], truth["url"], truth["date"], truth["record_id"], body, http, ip=ip, **more
    )


def _response(truth: dict, ip: str, body: bytes, content_type: str | None, more: archive.Headers = (), **rest: Any):
    """An HTTP response; `rest`: `status` line, and `extra` WARC headers."""
    status = rest.pop("status", "200 OK")
    headers = (("Content-Type", content_type),) if content_type else ()
    headers = (("Server", "planted"), *headers, *more, ("Content-Length", str(len(body))))
    return _message(truth, ip, body, (status, headers), **rest)


def _html(rng: Random, site: sites.Site, content: Content, truth: dict, meta: str | None = "utf-8") -> str:
    truth["layout"], html = render(rng, site.key, content, meta)
    return html


def _plainly(plan: Plan, rng: Random, site: sites.Site, content: Content, variant: str, truth: dict) -> Page:
    body = _html(rng, site, content, truth).encode()
    return Page(_response(truth, site.ip, body, _UTF8), None, truth)


def _in_charset(plan: Plan, rng: Random, site: sites.Site, content: Content, variant: str, truth: dict) -> Page:
    declared = charsets.VARIANTS[variant]
    truth["charset"] = declared.charset.codec
    body = declared.encode(_html(rng, site, content, truth, declared.meta))
    kind = f"text/html; charset={declared.header}" if declared.header else "text/html"
    return Page(_response(truth, site.ip, body, kind), None, truth)


def _transferred(plan: Plan, rng: Random, site: sites.Site, content: Content, variant: str, truth: dict) -> Page:
    body, headers = transfer.VARIANTS[variant](rng, _html(rng, site, content, truth).encode())
    return Page(_response(truth, site.ip, body, _UTF8, tuple(headers)), None, truth)


def _otherwise(plan: Plan, rng: Random, site: sites.Site, content: Content, variant: str, truth: dict) -> Page:
    other = others.VARIANTS[variant]
    html = _html(rng, site, content, truth).encode()
    body = other.body(rng, html, truth["text"])
    truth |= {"yields": other.yields, "record_type": other.record_type, "status": int(other.status[:3])}
    if other.yields == "none" or variant == "robots":
        truth |= {"text": None, "blocks": None, "layout": None, "language": None}
    if not other.http:
        truth["status"] = None
        return Page(
            _message(truth, site.ip, body, None, content_type=other.content_type, extra=other.warc), None, truth
        )
    message = _response(truth, site.ip, body, other.content_type, other.headers, status=other.status, extra=other.warc)
    return Page(message, None, truth)


def _hostile(plan: Plan, rng: Random, site: sites.Site, content: Content, variant: str, truth: dict) -> Page:
    text = "</p><p>".join(escape(block.text, quote=False) for block in content.blocks)
    body, headers = hostile.VARIANTS[variant](text, plan.large_bytes)
    truth |= {"yields": "either", "text": None, "blocks": None}  # what a reader gives up on cannot be held against it
    return Page(_response(truth, site.ip, body, _UTF8, tuple(headers)), None, truth)


def _broken(plan: Plan, rng: Random, site: sites.Site, content: Content, variant: str, truth: dict) -> Page:
    fault = faults.VARIANTS[variant]
    body = _html(rng, site, content, truth).encode()
    truth["yields"] = fault.yields
    body = fault.body(rng, body) if fault.body else body
    return Page(_response(truth, site.ip, body, _UTF8, fault.headers), fault, truth)


_SENT = {
    "charset": _in_charset,
    "transfer": _transferred,
    "other": _otherwise,
    "hostile": _hostile,
    "broken": _broken,
}
