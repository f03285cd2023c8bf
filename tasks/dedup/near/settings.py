"""Settings of near-duplicate removal by MinHash-LSH, and what they promise.

Each phase reads a part of them, a class of its own: `Shingling` and `Banding` the signatures, `KeepOrder` and
`Verifying` the decisions.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from pydantic import Field, model_validator

from gristmill.storage import layout
from gristmill.storage.address import Address
from gristmill.tasks.dedup.exchange import partition_bytes
from gristmill.tasks.dedup.order import Criterion, KeepOrder
from gristmill.tasks.documents.file_problems import file_problems, own_sentence
from gristmill.tasks.documents.step import CorpusStep, Problem, Settings, Signal
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

    shingle: int = Field(5, ge=1, le=64, description="words, or characters, of a shingle")
    unit: Literal["words", "characters"] = Field(
        "words", description="words; in scripts without spaces, as Chinese and Thai, each character is one"
    )
    permutations: int = Field(128, ge=1, le=65536, description="values of a signature")
    seed: int = Field(1, ge=0, lt=2**32, description="seed of datasketch's permutations")


class Banding(Settings):
    """Which documents are candidates of each other: those that share a band."""

    bands: int = Field(
        16, ge=1, le=65535, description="groups of signature values; documents that share one are candidates"
    )
    rows: int = Field(8, ge=1, description="signature values of a band, all of which must agree")


class Verifying(Settings):
    """Which candidates are near-duplicates, and how many of them are compared."""

    threshold: float | None = Field(
        0.8,
        gt=0,
        le=1,
        description="least Jaccard similarity for which a document is dropped; null: documents are not compared, and "
        "of all that are connected by shared bands one is kept",
    )
    verify: Literal["jaccard", "containment"] = Field(
        "jaccard",
        description="containment: a document is dropped only if a kept one, no shorter, holds its word 3-grams, with "
        "guards for texts that repeat themselves or have few words; `threshold` is not used then",
    )
    contained: float = Field(
        1.0, gt=0, le=1, description="with `verify: containment`, least share of its 3-grams that the kept one holds"
    )
    comparisons: int = Field(
        128,
        ge=1,
        description="most kept documents that a document is compared with, the first in keep order; documents that "
        "share bands with more, and are like none of these, are kept and counted as left_out",
    )

    @property
    def least(self) -> float | None:
        """What the similarity to the representative must reach, None where nothing is compared."""
        return self.contained if self.verify == "containment" else self.threshold


class MinHash(Shingling, Banding, KeepOrder, Verifying, CorpusStep):
    """Of documents whose sets of shingles overlap, those are dropped for which a like one is kept.

    Documents are taken in the order of `keep`. One is dropped if, and only if, it shares a band of its signature with
    one before it that is kept and the Jaccard similarity of their sets, computed on the sets and not estimated, is at
    least `threshold`; its representative is the first such document. So nothing is dropped for a document that it
    does not resemble, however long a chain of likenesses leads there. `s_curve` says how many of the pairs that are
    similar enough share a band.

    A document is compared with the first `comparisons` kept documents with which it shares a band, and with no more:
    a bucket of more kept documents, all unlike each other, is not compared in full.

    With `earlier`, kept documents of earlier crawls come before all others.

    With `threshold: null` documents are not compared. All that are connected by shared bands, directly or through other
    documents, are one cluster, of which the first in the order of `keep` is kept (FineWeb, arXiv:2406.17557; datatrove,
    text-dedup and NeMo Curator do so). `earlier` and `takedowns` need comparisons: which clusters there are depends on
    all documents of all crawls, also on those that were dropped.
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
    earlier: tuple[Address, ...] = Field(
        (),
        description="folders of finished stages `near_duplicates` of earlier crawls, the oldest first, each of them "
        "made with those before it as its own `earlier`",
    )
    takedowns: tuple[Address, ...] = Field(
        (),
        description="addresses of lists with a document id, a URL, a host or a folder (https://example.org/a/*) a "
        "line: they are dropped, and what was dropped for them is judged again",
    )
    partitions: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="pieces of the exchanges, of which a worker holds one; null: as many as there is to exchange, so "
        "that it holds half a gigabyte; no result depends on it",
    )

    @model_validator(mode="after")
    def _compared(self) -> Self:
        for key in ("earlier", "takedowns"):
            if self.threshold is None and (value := getattr(self, key)):
                raise ValueError(
                    f"`{key}` is {', '.join(value)}, but `threshold` is null, which keeps one document of all that are "
                    f"connected by shared bands: give a threshold, such as 0.8, or remove `{key}`"
                )
        return self

    @model_validator(mode="after")
    def _longest_holds(self) -> Self:
        if self.verify == "containment":
            if self.threshold is None:
                raise ValueError("`verify` is containment, but `threshold` is null, which compares nothing: remove it")
            if self.keep[:1] != ("longest",):
                raise ValueError(
                    f"`verify` is containment and `keep` is [{', '.join(self.keep)}]: a document is held by a longer "
                    "one, so let `keep` begin with longest"
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
                f"{self.bands} bands of {self.rows} rows need {self.bands * self.rows} permutations, "
                f"there are {self.permutations}: raise permutations or lower bands or rows"
            )
        return self

    def problems(self, deep: bool) -> Iterator[Problem]:
        for index, address in enumerate(self.takedowns):
            yield from list_problems(address, ("takedowns", index), deep)
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
