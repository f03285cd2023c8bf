"""Settings of near-duplicate removal by MinHash-LSH, and what they promise."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasks.dedup.order import Criterion, Ordered
from tasks.documents.step import CorpusStep, Signal


class MinHash(Ordered, CorpusStep):
    """Of documents whose sets of shingles overlap, those are dropped for which a like one survives.

    Documents are taken in the order of `survivor`. One is dropped if, and only if, it shares a band of its signature
    with one before it that survived and the Jaccard similarity of their sets, computed on the sets and not estimated,
    is at least `threshold`; its representative is the first such document. So nothing is dropped for a document that it
    does not resemble, however long a chain of likenesses leads there. `s_curve` says how many of the pairs that are
    similar enough share a band.

    With `earlier`, documents of earlier crawls that survived then come before all others.
    """

    signals: ClassVar = (Signal("cluster_size", "int64", "documents", "tasks/dedup/near"),)

    step: Literal["minhash"] = "minhash"
    shingle: int = Field(5, ge=1, le=64, description="words, or characters, of a shingle")
    unit: Literal["words", "characters"] = "words"
    permutations: int = Field(128, ge=1, le=65536, description="values of a signature")
    bands: int = Field(16, ge=1, le=65535)
    rows: int = Field(8, ge=1, description="signature values of a band, all of which must agree")
    threshold: float = Field(0.8, gt=0, le=1, description="least Jaccard similarity for which a document is dropped")
    seed: int = Field(1, ge=0, lt=2**32, description="seed of datasketch's permutations")
    survivor: tuple[Criterion, ...] = Field(("longest",), description=Ordered.model_fields["survivor"].description)
    comparisons: int = Field(
        128, ge=1, description="most survivors that a document is compared with; documents that met more are counted"
    )
    earlier: tuple[str, ...] = Field(
        (),
        description="folders of finished stages `near_duplicates` of earlier crawls, the oldest first, each of them "
        "made with those before it as its own `earlier`",
    )
    takedowns: tuple[str, ...] = Field(
        (),
        description="addresses of lists with a document id, a URL, a host or a folder (https://example.org/a/*) a "
        "line: they are dropped, and what was dropped for them is judged anew",
    )
    partitions: int = Field(16, ge=1, le=65536, description="pieces of the exchanges, at most; no result depends on it")
    memory: int = Field(
        1 << 30,
        ge=1 << 20,
        description="bytes of shingle sets, or of edges, that one process holds; no result depends on it",
    )

    @model_validator(mode="after")
    def _bands_fit(self) -> Self:
        if self.bands * self.rows > self.permutations:
            raise ValueError(
                f"{self.bands} bands of {self.rows} rows need {self.bands * self.rows} permutations, "
                f"there are {self.permutations}: raise permutations or lower bands or rows"
            )
        return self

    def signature_settings(self) -> dict[str, Any]:
        """The slice on which signatures depend."""
        return self.model_dump(mode="json", include={"step", "shingle", "unit", "permutations", "seed"})

    def candidate_settings(self) -> dict[str, Any]:
        """The slice on which, beside the signatures, it depends who may be compared with whom."""
        return self.model_dump(mode="json", include={"bands", "rows", "partitions"})

    def decision_settings(self) -> dict[str, Any]:
        """The slice on which, beside the candidates, the survivors depend."""
        return self.model_dump(mode="json", include={"survivor", "best", "threshold", "comparisons"})


def curve_told(settings: MinHash) -> str:
    """The S-curve of a step, in a line."""
    bands, rows = settings.bands, settings.rows
    told = [f"{s_curve(bands, rows, j):.1%} at {j}" for j in (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)]
    return (
        f"of pairs of a Jaccard similarity share one of {bands} bands of {rows} rows: {', '.join(told)}; "
        f"at the threshold, {settings.threshold}: {s_curve(bands, rows, settings.threshold):.1%}"
    )


def s_curve(bands: int, rows: int, jaccard: float) -> float:
    """Probability that two sets of this Jaccard similarity share at least one band of their signatures."""
    return 1 - (1 - jaccard**rows) ** bands
