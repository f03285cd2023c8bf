"""What a planted crawl holds: how many pages of each kind, and which page is what."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import gcd
from random import Random

from tests.planted import faults, leaks, personal, poor, sites
from tests.planted.records import CHARSETS, HOSTILE, OTHERS, TRANSFER, Sent

# How pages of these kinds are sent and stored otherwise than ordinary ones, by variant.
SENT: dict[str, dict[str, Sent]] = {
    "charset": CHARSETS,
    "transfer": TRANSFER,
    "other": OTHERS,
    "hostile": HOSTILE,
    "broken": faults.VARIANTS,
}
VARIANTS: dict[str, tuple[str, ...]] = {
    **{kind: tuple(variants) for kind, variants in SENT.items()},
    "personal": personal.KINDS,
    "lookalike": personal.LOOKALIKES,
    "leak": leaks.VARIANTS,
    "poor": tuple(poor.VARIANTS),
    "recrawl": sites.RECRAWLS,
    "blocked": sites.BLOCKED,
}
# Copies of an ordinary page that share it as their base.
COPIES = {"near": 3, "template": 10**9, "exact": 2, "recrawl": 1}
KINDS = ("page", *COPIES, *(kind for kind in VARIANTS if kind not in COPIES))
JACCARDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
_MAIN = ("de", "fr", "es", "ru", "zh", "ja")


@dataclass(frozen=True)
class Plan:
    """Settings of a planted crawl; with the seed they decide every byte of it.

    The kinds from `near` on are numbers of pages if they are ints, shares of all pages if they are floats; what is
    left over is `page`. Variants of a kind take turns, so that n pages of a kind with v variants hold each n / v
    times. Raises ValueError for a plan that cannot be.
    """

    pages: int = 1000  # records of the crawl, without warcinfo and companions
    seed: int = 1
    files: int = 4  # archives that share the pages evenly
    snapshots: tuple[str, ...] = ("2024-10",)  # months; each has its share of the files, in this order
    languages: tuple[tuple[str, float], ...] = (
        *(("en", 0.7), *((code, 0.04) for code in _MAIN)),
        *((code, 0.015) for code in ("ar", "ko", "pl", "th")),
    )
    median_words: int = 400  # of a main text; log-normal
    min_words: int = 150
    max_words: int = 20_000
    companions: float = 0.1  # share of pages with a request and a metadata record
    tracking: float = 0.1  # share of URLs that are not written canonically
    clipped_files: int = 0  # archives that end inside their last record
    near: float = 0.06  # edited copies of ordinary pages, wanted at JACCARDS in turn
    template: float = 0.02  # copies of one text in which three words differ
    exact: float = 0.04  # the main text of an ordinary page, at another URL
    recrawl: float = 0.02  # an ordinary page's URL again, its text the same or changed
    charset: float = 0.05  # pages in old encodings, well and badly declared
    transfer: float = 0.03  # bodies with content and transfer encodings
    other: float = 0.08  # records that are no pages, or other pages than HTML
    hostile: float = 0  # pages that eat memory or time; megabytes each once unpacked
    broken: float = 0.02  # records that are damaged
    personal: float = 0.03  # personal data in the main text
    lookalike: float = 0.02  # what looks like personal data and is none
    leak: float = 0.01  # items of a benchmark in the main text
    poor: float = 0.06  # texts that fail a rule
    blocked: float = 0.01  # pages at addresses of a blocklist, and beside it

    @classmethod
    def clean(cls, **settings) -> "Plan":
        """Ordinary pages only, one archive after the other whole; `settings` add what a test is about."""
        return cls(**dict.fromkeys((*KINDS[1:], "companions", "tracking"), 0) | settings)

    def __post_init__(self):
        if not 1 <= len(self.snapshots) <= self.files <= self.pages:
            raise ValueError(f"{len(self.snapshots)} snapshots, {self.files} files, {self.pages} pages: more each time")
        if sum(self.bases.values()) > self.counts["page"]:
            raise ValueError(f"more is planted than the {self.pages} pages hold: {self.counts}, bases {self.bases}")

    @cached_property
    def counts(self) -> dict[str, int]:
        """Pages of each kind; they add up to `pages`."""
        given = {kind: getattr(self, kind) for kind in KINDS[1:]}
        counts = {kind: n if isinstance(n, int) else round(n * self.pages) for kind, n in given.items()}
        return {"page": self.pages - sum(counts.values()), **counts}

    @cached_property
    def bases(self) -> dict[str, int]:
        """How many ordinary pages are the bases of each kind of copies; they are the first ones, in this order."""
        return {kind: -(-self.counts[kind] // copies) for kind, copies in COPIES.items()}

    @cached_property
    def slots(self) -> list[tuple[str, int]]:
        """(kind, index in the kind) of each page of the crawl.

        The kinds are spread by a stride of 0.38 of the pages or the next number without a common divisor, so that two
        damaged records are no neighbours: a reader may pass over both as one.
        """
        slots = [(kind, i) for kind, count in self.counts.items() for i in range(count)]
        stride = next(n for n in range(round(0.38 * self.pages) or 1, 2 * self.pages) if gcd(n, self.pages) == 1)
        shift = Random(f"{self.seed}/shift").randrange(self.pages)
        return [slots[(number * stride + shift) % self.pages] for number in range(self.pages)]

    @cached_property
    def numbers(self) -> dict[tuple[str, int], int]:
        """Of each (kind, index in the kind) the page of the crawl."""
        return {slot: number for number, slot in enumerate(self.slots)}

    def variant(self, kind: str, index: int) -> str:
        variants = VARIANTS.get(kind, ("",))
        return variants[index % len(variants)]

    def base(self, kind: str, index: int) -> int:
        """Index of the ordinary page that a copy is a copy of."""
        starts = dict(zip(COPIES, accumulate(self.bases.values(), initial=0), strict=False))
        return starts[kind] + index // COPIES[kind]

    def siblings(self, kind: str, index: int) -> range:
        """Exact or near copies of the same base that come before this one."""
        return range(index - index % COPIES[kind], index) if kind in ("near", "exact") else range(0)

    def needs_spaces(self, index: int) -> bool:
        """Whether this ordinary page is the base of copies whose Jaccard similarity is planted."""
        return index < self.bases["near"] + self.bases["template"]

    def pages_of(self, file: int) -> range:
        """The pages of an archive."""
        return range(-(-file * self.pages // self.files), -(-(file + 1) * self.pages // self.files))

    def snapshot(self, file: int) -> str:
        return self.snapshots[file * len(self.snapshots) // self.files]
