"""Settings of near-duplicate removal by MinHash-LSH, and what they promise.

Each phase reads a part of them, a class of its own: `Shingling` and `Banding` the signatures, `KeepOrder` and
`Verifying` the decisions.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from pydantic import Field, model_validator

from gristmill.storage import layout
from gristmill.storage.settings import Address
from gristmill.tasks.dedup.exchange import partition_bytes
from gristmill.tasks.dedup.order import Criterion, KeepOrder
from gristmill.tasks.documents.file_problems import file_problems, own_sentence
from gristmill.tasks.documents.step import CorpusStep, Problem, Settings, Signal
from gristmill.tasks.url.canonical import Canonical
from gristmill.tasks.url.lists import list_problems

# What a job that matches holds for a band hash of its partition, at most: 75 were measured.
HASH_BYTES = 90
# Of all documents, those that share a band with another one: 1 of 2.5 billion (gristmill.tasks.dedup.near.label).
CANDIDATES = 0.4


class Powers(Protocol):
    """A number, or an array of them."""

    def __pow__(self, exponent: int, /) -> Any: ...


Numbers = TypeVar("Numbers", bound=Powers)


class Shingling(Settings):
    """What a document's set of shingles is, and its signature."""

    shingle: int = Field(5, ge=1, le=64, description="Words, or characters, per shingle.")
    unit: Literal["words", "characters"] = Field(
        "words",
        description="Unit of a shingle. In scripts without spaces, such as Chinese and Thai, each character is a word.",
    )
    permutations: int = Field(128, ge=1, le=65536, description="Number of values in a signature.")
    seed: int = Field(1, ge=0, lt=2**32, description="Seed of datasketch's permutations.")


class Banding(Settings):
    """Settings of which documents are compared: those that share a band."""

    bands: int = Field(
        16,
        ge=1,
        le=65535,
        description="Number of bands, groups of signature values. Documents that share a band are candidates.",
    )
    rows: int = Field(8, ge=1, description="Signature values per band, all of which must be equal.")


class Verifying(Settings):
    """Which candidates are near-duplicates, and how many of them are compared."""

    threshold: float | None = Field(
        0.8,
        gt=0,
        le=1,
        description="Minimum Jaccard similarity at which a document is dropped. null: candidates are not "
        "compared, and one document of each group connected by shared bands is kept.",
    )
    verify: Literal["jaccard", "containment"] = Field(
        "jaccard",
        description="How candidates are compared. containment: a document is dropped only if a kept "
        "document of at least its length contains its word 3-grams, with guards for repetitive "
        "texts and texts with few words; `threshold` is not used.",
    )
    contained: float = Field(
        1.0,
        gt=0,
        le=1,
        description="With `verify: containment`, minimum fraction of its 3-grams that the kept document contains.",
    )
    comparisons: int = Field(
        128,
        ge=1,
        description="Maximum number of kept documents to compare a document with, the first in keep order. A document "
        "that shares bands with more, and is similar to none of these, is kept and counted as left_out.",
    )

    @property
    def least(self) -> float | None:
        """The minimum similarity to the representative, None if documents are not compared."""
        return self.contained if self.verify == "containment" else self.threshold


Within = Literal["source"]


class MinHash(Shingling, Banding, KeepOrder, Verifying, CorpusStep):
    """Near-duplicate removal with MinHash: a document is dropped if a similar document, with an overlapping set of
    shingles, is kept.

    Documents are processed in the order of `keep`. A document is dropped if and only if it shares a band of its
    signature with an earlier kept document, and the exact Jaccard similarity of their sets is at least `threshold`. Its
    representative is the first such document. So no document is dropped because of a document that it does not
    resemble, even if a chain of similar documents connects them. `s_curve` computes what fraction of the similar pairs
    shares a band.

    A document is only compared with the first `comparisons` kept documents that share a band with it.

    With `earlier`, kept documents of earlier crawls come before all others.

    With `threshold: null` documents are not compared. Documents that are connected by shared bands, directly or through
    others, are one cluster, and the first one in the order of `keep` is kept, as in FineWeb (arXiv:2406.17557),
    datatrove, text-dedup and NeMo Curator. `earlier` and `takedowns` need comparisons, since clusters depend on all
    documents of all crawls, including dropped ones.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "survivor": "`keep`",
        "memory": "the machine setting GRISTMILL_MEMORY",
    }

    signals: ClassVar = (
        Signal(
            "cluster_size",
            "int64",
            "documents",
            "tasks/dedup/near",
            description="The kept document and all that were dropped for it.",
        ),
    )

    step: Literal["minhash"] = "minhash"
    keep: tuple[Criterion, ...] = Field(("longest",), description=KeepOrder.model_fields["keep"].description)
    within: Within | None = Field(
        None,
        description="source: compare only documents of the same source. null: compare all documents. To exclude a "
        "source, use `except`.",
        exclude_if=lambda within: within is None,
    )
    earlier: tuple[Address, ...] = Field(
        (),
        description="Folders of finished `near_duplicates` stages of earlier crawls, oldest first. Each "
        "must have been built with those before it as its own `earlier`.",
    )
    takedowns: tuple[Address, ...] = Field(
        (),
        description="Addresses of lists with a document id, a URL, a host or a folder (https://example.org/a/*) per "
        "line. These documents are dropped, and their near-duplicates are decided again.",
    )
    partitions: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="Number of partitions of the exchanges. A worker holds one in memory. null: chosen so "
        "that a partition takes half a gigabyte. Does not change results.",
    )

    @model_validator(mode="after")
    def _compared(self) -> Self:
        for key in ("earlier", "takedowns"):
            if self.threshold is None and (value := getattr(self, key)):
                raise ValueError(
                    f"`{key}` is {', '.join(value)}, but `threshold` is null, which keeps one document of "
                    f"each group connected by shared bands: set a threshold, such as 0.8, or remove `{key}`"
                )
        return self

    @model_validator(mode="after")
    def _of_this_crawl(self) -> Self:
        if self.within is not None and self.earlier:
            raise ValueError(
                f"`within` is {self.within}, but `earlier` is {', '.join(self.earlier)}, and documents of earlier "
                "crawls are compared with those of all sources: remove one of them"
            )
        return self

    @model_validator(mode="after")
    def _longest_holds(self) -> Self:
        if self.verify == "containment":
            if self.threshold is None:
                raise ValueError(
                    "`verify` is containment, but `threshold` is null, which disables comparison: remove `verify`"
                )
            if self.keep[:1] != ("longest",):
                raise ValueError(
                    f"`verify` is containment and `keep` is [{', '.join(self.keep)}]: a document is "
                    "contained in a longer one, so `keep` must begin with longest"
                )
        elif self.contained != 1:
            raise ValueError(
                f"`contained` is {self.contained}, which needs `verify: containment`: add it, or remove this"
            )
        return self

    @model_validator(mode="after")
    def _bands_fit(self) -> Self:
        if self.bands * self.rows > self.permutations:
            raise ValueError(
                f"{self.bands} bands of {self.rows} rows need {self.bands * self.rows} permutations, but "
                f"there are {self.permutations}: raise permutations, or lower bands or rows"
            )
        return self

    def problems(self, deep: bool) -> Iterator[Problem]:
        for index, address in enumerate(self.takedowns):
            yield from list_problems(address, ("takedowns", index), deep, takedowns=Canonical())
        for index, folder in enumerate(self.earlier):
            yield from file_problems(folder, ("earlier", index), deep, partial(_check_earlier, folder), own_sentence)

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        hashes = documents * self.bands * HASH_BYTES
        yield partition_bytes(hashes, self.partitions), "band hashes of a partition"
        # 2 bits for each document and 4 bytes for each candidate
        yield round(documents * (1 / 4 + 4 * CANDIDATES)), "labels of all documents"


def _check_earlier(folder: str) -> None:
    manifest = layout.manifest(folder)
    if manifest is None or "inputs_layout" not in manifest["result"]:
        raise ValueError(
            f"{folder} is not a finished stage `near_duplicates`; give its folder in the home of an earlier crawl"
        )


def curve_message(settings: Banding) -> str:
    """The S-curve of bands and rows, in a line: which pairs become candidates."""
    bands, rows = settings.bands, settings.rows
    shares = [f"{s_curve(bands, rows, j):.1%} at {j}" for j in (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)]
    return (
        f"of pairs of documents with Jaccard similarity 0.8, {s_curve(bands, rows, 0.8):.1%} share a band: {bands} "
        f"bands of {rows} rows find {', '.join(shares)}"
    )


def s_curve(bands: int, rows: int, jaccard: Numbers) -> Numbers:
    """Probability that two sets of this Jaccard similarity share at least one band of their signatures."""
    return 1 - (1 - jaccard**rows) ** bands
