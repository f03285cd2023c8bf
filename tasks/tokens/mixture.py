"""How much of each source a training run sees: weights, met as far as the cap on epochs allows.

The cap follows UniMax (Chung et al. 2023): a source that would be repeated more often than `max_epochs` gives
what it has that often, and the others share the rest in proportion to their weights.
"""

from pydantic import Field, field_validator

from tasks.documents.step import Settings


class Mixture(Settings):
    """Weights by source name; they need not sum to one. A source that is not named is not trained on."""

    weights: dict[str, float] = Field(
        min_length=1, description="of the tokens, by the names of the sources; they need not sum to one"
    )
    max_epochs: float = Field(4, gt=0, description="no source is repeated more often (Muennighoff et al. 2023: 4)")
    heldout_fraction: float = Field(0.01, gt=0, lt=1, description="of the documents, never trained on")

    @field_validator("weights")
    @classmethod
    def _positive(cls, weights: dict[str, float]) -> dict[str, float]:
        if bad := {name: w for name, w in weights.items() if not w > 0}:
            raise ValueError(f"weights must be positive, these are not: {bad}; leave the source out instead")
        return weights
