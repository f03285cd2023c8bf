"""What a planted crawl holds: how many pages of each kind, and which page is what."""

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import gcd
from random import Random
from typing import Literal

from tests.planted import charsets, faults, hostile, leaks, others, personal, poor, sites, transfer
from tests.planted.words import SPACED, WORDS

# In the order in which pages are numbered before they are shuffled. `page` comes first: the copies' bases are in it.
KINDS = (
    "page",
    "exact",
    "near",
    "template",
    "recrawl",
    "charset",
    "transfer",
    "personal",
    "lookalike",
    "leak",
    "poor",
    "blocked",
    "other",
    "hostile",
    "broken",
)
_EXACT_COPIES = 2
_HTTP_KINDS = ("charset", "transfer", "other", "hostile", "broken")

VARIANTS: dict[str, tuple[str, ...]] = {
    "charset": tuple(charsets.VARIANTS),
    "transfer": tuple(transfer.VARIANTS),
    "personal": tuple(personal.KINDS),
    "lookalike": tuple(personal.LOOKALIKES),
    "leak": leaks.VARIANTS,
    "poor": tuple(poor.VARIANTS),
    "recrawl": sites.RECRAWLS,
    "blocked": sites.BLOCKED,
    "other": tuple(others.VARIANTS),
    "hostile": tuple(v for v in hostile.VARIANTS if v != "large_page"),
    "broken": tuple(faults.VARIANTS),
}

Amount = int | float


def _amount(value: Amount, what: str):
    return field(default=value, metadata={"help": what})


@dataclass(frozen=True)
class Plan:
    """Settings of a planted crawl; with the seed they decide every byte of it.

    An amount is a number of pages if it is an int, a share of all pages if it is a float; what is left over is
    `page`. Variants of a kind take turns, so that n pages of a kind with v variants hold each n / v times;
    `variants={"broken": ("bit_flip",)}` chooses among those of `VARIANTS`. Raises ValueError for a plan that
    cannot be.
    """

    pages: int = field(default=1000, metadata={"help": "records of the crawl, without warcinfo and companions"})
    seed: int = field(default=1, metadata={"help": "another seed, another crawl"})
    files: int = field(default=4, metadata={"help": "archives that share the pages evenly"})
    container: Literal["gzip", "plain", "zstd", "lz4", "arc", "wet"] = field(
        default="gzip", metadata={"help": "gzip, zstd, lz4: each record by itself; arc: ARC 1, gzip; wet: texts, gzip"}
    )
    snapshots: tuple[str, ...] = field(
        default=("2024-10",), metadata={"help": "months of the crawls; each has its share of the files, in this order"}
    )
    languages: tuple[tuple[str, float], ...] = field(
        default=(
            ("en", 0.7),
            *((code, 0.04) for code in ("de", "fr", "es", "ru", "zh", "ja")),
            *((code, 0.015) for code in ("ar", "ko", "pl", "th")),
        ),
        metadata={"help": "language codes and their shares; `pydoc` is English prose from Python's help"},
    )
    median_words: int = field(default=400, metadata={"help": "median length of a main text; log-normal"})
    sigma: float = field(default=0.8, metadata={"help": "standard deviation of the logarithm of the length"})
    min_words: int = field(default=150, metadata={"help": "shortest main text of an ordinary page"})
    max_words: int = field(default=20_000, metadata={"help": "longest"})
    companions: float = field(default=0.1, metadata={"help": "share of pages with a request and a metadata record"})
    tracking: float = field(default=0.1, metadata={"help": "share of URLs that are not written canonically"})
    exact: Amount = _amount(0.04, "same main text as an ordinary page, at another URL, on another site")
    near: Amount = _amount(0.06, "edited copies of ordinary pages, at the Jaccard similarities of `jaccards`")
    jaccards: tuple[float, ...] = field(
        default=(0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99),
        metadata={"help": "wanted for the sets of word 5-grams of a copy and its base, in turn"},
    )
    cluster: int = field(default=3, metadata={"help": "near copies of one base"})
    template: Amount = _amount(0.02, "copies of one text in which three words differ")
    templates: int = field(default=1, metadata={"help": "texts that these copies share"})
    recrawl: Amount = _amount(0.02, "an ordinary page's URL again, its text the same or changed")
    charset: Amount = _amount(0.05, "pages in old encodings, well and badly declared")
    transfer: Amount = _amount(0.03, "bodies with content and transfer encodings")
    personal: Amount = _amount(0.03, "personal data in the main text")
    lookalike: Amount = _amount(0.02, "what looks like personal data and is none")
    leak: Amount = _amount(0.01, "items of a benchmark in the main text")
    benchmark: tuple[str, ...] = field(default=(), metadata={"help": "these items; none: made-up questions"})
    poor: Amount = _amount(0.06, "texts that fail a rule")
    blocked: Amount = _amount(0.01, "pages at addresses of a blocklist, and beside it")
    other: Amount = _amount(0.08, "records that are no pages, or other pages than HTML")
    hostile: Amount = _amount(0.0, "pages that eat memory or time; megabytes each once unpacked")
    large_bytes: int = field(default=50_000_000, metadata={"help": "size of the hostile variant large_page"})
    broken: Amount = _amount(0.02, "records that are damaged")
    clipped_files: int = field(default=0, metadata={"help": "archives that end inside their last record"})
    variants: dict[str, tuple[str, ...]] = field(
        default_factory=dict, hash=False, metadata={"help": "of a kind, only these"}
    )

    @classmethod
    def clean(cls, **settings) -> "Plan":
        """Ordinary pages only, one archive after the other whole; `settings` add what a test is about."""
        nothing = dict.fromkeys(KINDS[1:], 0) | {"companions": 0.0, "tracking": 0.0}
        return cls(**nothing | settings)

    def __post_init__(self):
        if self.container not in ("gzip", "plain", "zstd", "lz4", "arc", "wet"):
            raise ValueError(f"container {self.container!r} is none of gzip, plain, zstd, lz4, arc, wet")
        if unknown := {code for code, _ in self.languages} - {*WORDS, "pydoc"}:
            raise ValueError(f"no words of {sorted(unknown)}: languages are {', '.join(WORDS)} and pydoc")
        for kind, chosen in self.variants.items():
            known = hostile.VARIANTS if kind == "hostile" else VARIANTS.get(kind, ())
            if not chosen or (wrong := [v for v in chosen if v not in known]):
                raise ValueError(f"variants of {kind!r}: {wrong if chosen else 'none chosen'}; there are {list(known)}")
        if not 1 <= len(self.snapshots) <= self.files:
            raise ValueError(f"{len(self.snapshots)} snapshots need as many files, not {self.files}")
        if not self.files <= self.pages:
            raise ValueError(f"{self.files} files need at least one page each, not {self.pages}")
        if self.counts["page"] < 0:
            raise ValueError(f"more is planted than the {self.pages} pages hold: {self.counts}")
        if (bases := self._bases["end"]) > self.counts["page"]:
            raise ValueError(f"the copies have {bases} bases but only {self.counts['page']} pages are ordinary")
        if self.near + self.template > 0 and not any(code in {*SPACED, "pydoc"} for code, _ in self.languages):
            raise ValueError("near and template copies need a language that puts spaces between words")
        if self.container == "wet" and (inside := [k for k in _HTTP_KINDS if self.counts[k]]):
            raise ValueError(f"a WET file holds texts only; set to 0: {', '.join(inside)}")

    @cached_property
    def counts(self) -> dict[str, int]:
        """Pages of each kind; they add up to `pages`."""
        given = {k: getattr(self, k) for k in KINDS[1:]}
        counts = {k: v if isinstance(v, int) else round(v * self.pages) for k, v in given.items()}
        return {"page": self.pages - sum(counts.values()), **counts}

    @cached_property
    def items(self) -> tuple[str, ...]:
        """The benchmark that leaks."""
        return self.benchmark or leaks.made_up(self.seed)

    def variants_of(self, kind: str) -> tuple[str, ...]:
        """Those that take turns, as far as the container can hold them."""
        chosen = self.variants.get(kind, VARIANTS.get(kind, ("",)))
        if kind == "broken":
            if self.container == "arc":
                chosen = tuple(v for v in chosen if faults.VARIANTS[v].before is None)
            if self.container not in ("gzip", "arc"):
                chosen = tuple(v for v in chosen if not faults.VARIANTS[v].gzip_only)
        if kind == "other" and self.container == "arc":
            chosen = tuple(v for v in chosen if others.VARIANTS[v].in_arc)
        return chosen

    def slot(self, number: int) -> tuple[str, str, int]:
        """(kind, variant, index in the kind) of a page of the crawl."""
        factor, shift = self._shuffle
        place = (factor * number + shift) % self.pages
        at = bisect_right(self._starts, place) - 1
        kind, index = KINDS[at], place - self._starts[at]
        variants = self.variants_of(kind)
        return kind, variants[index % len(variants)], index

    def number(self, kind: str, index: int) -> int:
        """The page of the crawl that is this one of its kind: the inverse of `slot`."""
        factor, shift = self._shuffle
        place = self._starts[KINDS.index(kind)] + index
        return (place - shift) * pow(factor, -1, self.pages) % self.pages

    def base(self, kind: str, index: int) -> int:
        """Index of the ordinary page that a copy is a copy of."""
        of_kind = index % self.templates if kind == "template" else index // self._copies[kind]
        return self._bases[kind] + of_kind

    def siblings(self, kind: str, index: int) -> range:
        """Exact or near copies of the same base that come before this one."""
        return range(index // self._copies[kind] * self._copies[kind], index)

    def needs_spaces(self, index: int) -> bool:
        """Whether this ordinary page is the base of copies whose Jaccard similarity is planted."""
        return index < self._bases["exact"]

    def file(self, number: int) -> int:
        """Which archive a page is in."""
        return number * self.files // self.pages

    def pages_of(self, file: int) -> range:
        """The pages of an archive."""
        first, end = (-(-f * self.pages // self.files) for f in (file, file + 1))
        return range(first, end)

    def snapshot(self, file: int) -> str:
        return self.snapshots[file * len(self.snapshots) // self.files]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(self.counts[k] for k in KINDS[:-1])]

    @property
    def _copies(self) -> dict[str, int]:
        return {"exact": _EXACT_COPIES, "near": self.cluster, "recrawl": 1}

    @cached_property
    def _bases(self) -> dict[str, int]:
        """Ordinary page where the bases of each kind of copies begin; near and template come first."""
        c = self.counts
        sizes = {
            "near": -(-c["near"] // self._copies["near"]),
            "template": min(self.templates, c["template"]),
            "exact": -(-c["exact"] // _EXACT_COPIES),
            "recrawl": c["recrawl"],
        }
        return dict(zip([*sizes, "end"], accumulate(sizes.values(), initial=0), strict=True))

    @cached_property
    def _shuffle(self) -> tuple[int, int]:
        """place = factor * number + shift (mod pages) is a permutation if factor and pages have no common divisor."""
        rng = Random(f"{self.seed}/shuffle")
        factor = rng.randrange(1, self.pages + 1)
        while gcd(factor, self.pages) != 1:
            factor = rng.randrange(1, self.pages + 1)
        return factor, rng.randrange(self.pages)
