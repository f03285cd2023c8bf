"""Settings of near-duplicate removal by MinHash-LSH, and what they promise."""

from typing import Any, Literal

from pydantic import Field, model_validator

from tasks.step import Settings


class MinHash(Settings):
    """Documents whose sets of word n-grams overlap become one cluster, of which one document survives.

    Two documents are linked if they share a band of their signatures and the Jaccard similarity of their
    shingle sets, computed on the sets and not estimated, is at least `threshold`. Clusters are the connected
    components of the links. `s_curve` says how many of the pairs that are similar enough share a band.
    """

    step: Literal["minhash"] = "minhash"
    shingle: int = Field(5, ge=1, le=64, description="words of a shingle")
    permutations: int = Field(128, ge=1, le=65536, description="values of a signature")
    bands: int = Field(16, ge=1, le=65535)
    rows: int = Field(8, ge=1, description="signature values of a band, all of which must agree")
    threshold: float = Field(0.8, gt=0, le=1, description="least Jaccard similarity of a linked pair")
    seed: int = Field(1, ge=0, lt=2**32, description="seed of datasketch's permutations")
    survivor: Literal["longest", "first"] = Field(
        "longest", description="longest: most characters, then smallest id; first: smallest id"
    )
    comparisons: int = Field(
        128,
        ge=1,
        description="most sets of one bucket that a set is compared with; more are left out, and counted",
    )
    partitions: int = Field(4, ge=1, le=4096, description="pieces of the exchange; no result depends on it")

    @model_validator(mode="after")
    def _bands_fit(self) -> "MinHash":
        if self.bands * self.rows > self.permutations:
            raise ValueError(
                f"{self.bands} bands of {self.rows} rows need {self.bands * self.rows} permutations, "
                f"there are {self.permutations}: raise permutations or lower bands or rows"
            )
        return self

    def signature_settings(self) -> dict[str, Any]:
        """The slice on which signatures depend."""
        return self.model_dump(mode="json", include={"step", "shingle", "permutations", "seed"})

    def decision_settings(self) -> dict[str, Any]:
        """The slice on which, beside the signatures, the files of the exchange and the survivors depend."""
        return self.model_dump(mode="json", exclude=set(self.signature_settings()))


def s_curve(bands: int, rows: int, jaccard: float) -> float:
    """Probability that two sets of this Jaccard similarity share at least one band of their signatures."""
    return 1 - (1 - jaccard**rows) ** bands
