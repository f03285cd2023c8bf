"""Documents that are copies of each other: exactly, nearly at the very threshold, in chains, in parts, with ties."""

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from tests.golden.made.addresses import variants
from tests.golden.made.drawn import drawn_copies
from tests.golden.made.words import SENTENCES, fresh, paragraph

Row = dict[str, Any]
DATES = (None, "2024-01-01T00:00:00Z", "2024-01-01", "2023-12-31T23:59:59Z", "2024-06-01T12:00:00+02:00", "no date", "")


def copies() -> list[Row]:
    """Rows with id, text, url, date, score, and columns of their own; in an order that is no order of their ids."""
    found = [
        *_exact(),
        *_near(),
        *_chains(),
        *_contained(),
        *_passages(),
        *_spans(),
        *_addresses(),
        *_odd(),
        *drawn_copies(),
    ]
    for at, row in enumerate(found):
        row.setdefault("url", f"https://site{at % 7}.example/{at // 7}/page-{at}.html")
        row.setdefault("date", DATES[at % 4])
        row.setdefault("score", (at % 5) / 4)
        row.setdefault("nested", {"tags": ["a", str(at % 3)], "n": at} if at % 3 else None)
        row["id"] = f"{(at * 7919) % 10007:05d}"
    return found


def _exact() -> Iterator[Row]:
    """The same words in other marks, cases and forms; groups with ties in length, date and score."""
    base = paragraph("exact", 4)
    forms = (
        base,
        base.upper(),
        base.replace(" ", "\n"),
        base.replace(".", " ... !"),
        f"«{base}»",
        base.replace("e", "e\u00ad"),
        base.replace("mill", "mi\u200bll"),
        base + " ",
        base.replace("a", "á"),
        base.replace("a", "a\u0301"),
        base + " 1",
        base.replace(" ", "\u00a0"),
        base.replace("the", "th e"),
        base.replace(" ", "-"),
        base.replace(" ", "_"),
    )
    for form in forms:
        yield {"text": form}
    for group, size in product(range(12), (3,)):
        text = paragraph(f"tie {group}", 2)
        for at in range(size):
            yield {
                "text": text + "!" * (at if group % 3 == 0 else 0),
                "date": DATES[(group + at * (group % 2)) % len(DATES)],
                "score": None if group == 5 else 0.5 if group % 2 else at / 2,
            }
    for text in ("", " \n\t ", "!!!", "— …", "\u200b", "a", "A.", "ß", "SS", "ẞ", "ﬁ", "fi", "١٢", "12", "Ⅷ", "ⅷ"):
        yield {"text": text}
        yield {"text": text, "date": None}
    for line in SENTENCES.values():
        yield {"text": line}
        yield {"text": line.replace(" ", "  ")}


def _changed(words: list[str], count: int, seed: str) -> list[str]:
    """The last so many words are others."""
    return [*words[: len(words) - count], *fresh(f"changed {seed}", count)] if count else list(words)


def _near() -> Iterator[Row]:
    """Pairs whose shingles of five words have a Jaccard similarity around .8, .7, .9: with n shingles in common and m
    of each alone n / (n + 2m). n = 40, m = 5 is .8 exactly."""
    for total in (44, 49, 94, 124):
        for changed in (0, 1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15):
            words = fresh(f"near {total} {changed}", total)
            yield {"text": " ".join(words)}
            yield {"text": " ".join(_changed(words, changed, f"{total} {changed}"))}
    for count in (1, 2, 3, 4, 5, 6, 7):  # around the length of a shingle
        words = fresh(f"few {count}", count)
        yield {"text": " ".join(words)}
        yield {"text": " ".join(words).title() + "."}
        yield {"text": " ".join([*words, "more"])}
    long = fresh("added", 60)
    for at in (0, 30, 60):
        yield {"text": " ".join([*long[:at], *fresh(f"added {at}", 3), *long[at:]])}
    for code in ("zh", "ja", "th", "ko", "ar"):
        text = SENTENCES[code] * 3
        yield {"text": text}
        yield {"text": text[:-2]}
        yield {"text": text + text[:5]}


def _chains() -> Iterator[Row]:
    """a like b, b like c, a unlike c; and stars; of equal lengths, so that ids decide."""
    for chain in range(8):
        words = fresh(f"chain {chain}", 90)
        for link in range(6):
            yield {"text": " ".join(words), "date": DATES[chain % 4], "score": (chain % 2) * link / 5}
            words = [*words[5:], *fresh(f"chain {chain} {link}", 5)]
    for star in range(4):
        words = fresh(f"star {star}", 80)
        for ray in range(6):
            at = 13 * ray
            text = [*words[:at], *fresh(f"ray {star} {ray}", 3), *words[at + 3 :]]
            yield {"text": " ".join(text), "date": None if star == 1 else DATES[1 + (ray + star) % 3]}
    bucket = fresh("bucket", 30)
    for at in range(14):  # that share a band, perhaps, and are unlike
        yield {"text": " ".join([*bucket, *fresh(f"bucket {at}", 22)])}


def _contained() -> Iterator[Row]:
    """Documents of which others hold all, or nearly all, 3-grams; that repeat themselves; that are short."""
    whole = fresh("whole", 120)
    yield {"text": " ".join(whole)}
    for size in (3, 4, 10, 11, 12, 20, 60, 100, 110, 114, 118, 119):
        yield {"text": " ".join(whole[:size])}
        yield {"text": " ".join(whole[-size:])}
        if size > 10:
            yield {"text": " ".join(_changed(whole[:size], 1, f"held {size}"))}
            yield {"text": " ".join([*whole[: size // 2], *whole[size // 2 + 1 : size]])}
    yield {"text": " ".join(["so", "it", "goes"] * 30)}
    yield {"text": " ".join(["so", "it", "goes"] * 20)}
    yield {"text": " ".join(whole[:50] * 2)}
    yield {"text": " ".join(reversed(whole))}


def _passages() -> Iterator[Row]:
    """Lines, paragraphs and spans of sentences that repeat across documents and within; around 9, 10 and 11 letters."""
    shared = [paragraph(f"shared {at}", 1) for at in range(8)]
    for at in range(12):
        own = [paragraph(f"own {at} {n}", 1) for n in range(4)]
        yield {"text": "\n".join([own[0], shared[at % 8], own[1], shared[(at + 1) % 8].upper(), own[2]])}
        yield {"text": "\n\n".join([own[3], f"{shared[at % 8]}\n{shared[(at + 3) % 8]}", own[0] + " Once more."])}
        yield {"text": " ".join([own[1], *shared[at % 5 : at % 5 + 2 + at % 3], own[2], *shared[3:6]])}
    lines = (
        "abcdefghi",
        "abcdefghij",
        "abcdefghijk",
        "ab cd ef gh i",
        "ab cd ef gh ij",
        "1234567890",
        "0000000000",
        "12.34.5678",
        "{ } ( ) [ ]",
        "}",
        "àbcdefghij",
        "ABCDEFGHIJ",
        "abc-def-ghij!",
        "水車小屋は川のそば",
        "水車小屋は川のそばに",
        "é" * 10,
        "e" * 10,
    )
    for at, line in enumerate(lines):
        for again in range(2):
            yield {"text": f"{paragraph(f'line {at} {again}', 1)}\n{line}\n\n{paragraph(f'line {at} {again} b', 1)}"}
    for at in range(6):
        words = paragraph("left alone", 1)
        yield {"text": f"{words}\n" + " ".join(["so"] * at) + "\n" + "\n".join([words] * at)}
    for at in range(1, 8):
        yield {"text": " ".join(shared[:at])}
        yield {"text": "\n".join(shared[:at])}
    yield {"text": "\n".join(["again and again it is"] * 5)}
    yield {"text": "\r\n".join([shared[0], shared[1], "", shared[2]])}


def _spans() -> Iterator[Row]:
    """Spans in common of around 20 and 50 words, at the beginning, in the middle and at the end; and overlaps."""
    for size, place in product((18, 19, 20, 21, 48, 49, 50, 51, 75), ("begin", "middle", "end")):
        span = fresh(f"span {size} {place}", size)
        for again in range(2):
            own = fresh(f"beside {size} {place} {again}", 30)
            parts = {"begin": [span, own], "middle": [own[:15], span, own[15:]], "end": [own, span]}[place]
            yield {"text": " ".join(word for part in parts for word in part)}
    over = fresh("over", 120)
    for begin in (0, 20, 40, 60):
        yield {
            "text": " ".join([*fresh(f"over {begin}", 10), *over[begin : begin + 60], *fresh(f"over {begin} b", 10)])
        }
    yield {"text": " ".join(over[:60] + over[:60])}
    yield {"text": " ".join(["la"] * 130)}
    yield {"text": f"{' '.join(over[:55])}.\n\n{'-' * 40}\n"}
    for size in (49, 50, 51, 99, 100, 101):
        for again in range(2):
            text = "".join(random.Random(f"bytes {size}").choices("abcdefgh é水", k=size))
            yield {"text": f"<{again}{'xy'[again] * 9}>{text}<{'uv'[again] * 9}>"}


def _addresses() -> Iterator[Row]:
    """Pages of the same address in many spellings, crawled on other days; and pages without one."""
    for at, url in enumerate(variants()):
        yield {"text": paragraph(f"address {at}", 1), "url": url, "date": DATES[at % len(DATES)]}
    for at in range(6):
        url = "https://same.example/page" if at < 4 else None
        yield {
            "text": paragraph(f"same {at}", 1 + at % 2),
            "url": url,
            "date": "2024-02-02" if at else None,
            "score": 0.5,
        }


def _odd() -> Iterator[Row]:
    draw = random.Random("odd")
    for _ in range(40):
        words = draw.choices("mill stone river grain the of and".split(), k=draw.choice((4, 5, 6, 12, 40)))
        yield {"text": " ".join(words), "score": draw.choice((0.0, 0.25, 0.5, None))}
    yield {"text": "x" * 70_000 + " " + " ".join(fresh("very long", 3000))}
    yield {"text": "e" * 300 + "\n" + "\n".join(str(at) for at in range(2000))}
