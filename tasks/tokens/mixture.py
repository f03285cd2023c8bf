"""How much of each group of documents a training run sees: weights, met as far as the cap on epochs allows.

The groups are the sources, or the documents that share values of columns, or of expressions over columns. The cap
follows UniMax (Chung et al. 2023): a group that would be repeated more often than `max_epochs` gives what it has that
often, and the others share the rest in proportion to their weights.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from gristmill.tasks.documents.expressions import parsed, stored
from gristmill.tasks.documents.step import Settings

SOURCE = "source"
CLUSTER_SIZE = "cluster_size"


class Column(Settings):
    """A column of the documents, or an expression over columns, that groups them by its values, or by ranges of its
    values. Documents without a value are in the group `none`."""

    column: str = Field(
        description="`source`, a column that a step measures, or an SQL expression as in the step `where`: "
        "`case when quality > 0.7 then 'good' else 'rest' end`."
    )
    edges: tuple[float, ...] = Field(
        (), description="Boundaries of ranges of a number, ascending: `<0.3`, `0.3-0.7`, `>=0.7`."
    )
    quantiles: int | None = Field(
        None,
        ge=2,
        le=100,
        description="Number of ranges with the same number of tokens each, within each group of the "
        "columns before it: `q01`, `q02`, ....",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.edges and self.quantiles:
            raise ValueError(f"by: {self.column} has both edges and quantiles; give one of them")
        if list(self.edges) != sorted(set(self.edges)):
            raise ValueError(f"by: {self.column} has the edges {list(self.edges)}; give them ascending")
        return self

    def reads(self, there: Sequence[str]) -> list[str]:
        """The stored columns that it is made of; `there`: those that documents have. Raises ExpressionError if
        it is neither a column nor an expression."""
        if self.column in (*there, SOURCE):
            return [self.column]
        return list(dict.fromkeys(stored(name, there) for name in parsed(self.column).columns))


def _named(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


class Phase(Settings):
    """A part of training with its own weights or order."""

    share: float = Field(
        gt=0, le=1, description="Fraction of the training tokens. The fractions of all phases sum to 1."
    )
    weights: dict[str, float] = Field({}, description="Weights, as in the mixture. Empty: the mixture's weights.")
    order: Literal["ascending", "descending"] | None = Field(
        None,
        description="Order in which the ranges of the last column of `by`, which must have quantiles, are trained on.",
    )


class Upsampling(Settings):
    """How often documents are repeated by the range of the last column of `by`; the lowest ranges are not used. This is
    OLMo 3's curve (arXiv 2512.13961, A.2.4), and the defaults are its values."""

    max_copies: float = Field(7, gt=0, description="Maximum number of copies of the best range. Replaces `max_epochs`.")
    discard: float = Field(
        0.4, ge=0, lt=1, description="Fraction of the tokens of a group, the lowest, that is not trained on."
    )
    power: float | None = Field(
        None,
        ge=0,
        le=20,
        description="Exponent of the curve. null: the largest up to 8 with which the best range has at "
        "most max_copies. If you set it, the best range may have more.",
    )


class Mixture(Settings):
    """What the model is trained on, and how much of it.

    Weights are by group: by the names of the sources, or with `by: [source, language]` as `web/en`. `web` then
    means all of its groups without their own weight, in proportion to their tokens. A group without a weight is
    not trained on.
    """

    # as `_consistent` has it, for forms
    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"strategy": {"const": "weights"}}},
            "then": {"required": ["weights"], "properties": {"weights": {"minProperties": 1}}},
        }
    )

    weights: dict[str, float] = Field(
        {}, description="Weight of each source or group, in tokens. Weights need not sum to 1."
    )
    max_epochs: float = Field(
        4, gt=0, description="Maximum number of times a source is repeated (Muennighoff et al. 2023: 4)."
    )
    heldout_fraction: float = Field(
        0.01, gt=0, lt=1, description="Fraction of each source's documents that is held out and never trained on."
    )
    heldout_documents: int = Field(
        10_000,
        gt=0,
        description="Approximate maximum number of held-out documents per source. The fraction is halved "
        "until the number is at most this.",
    )
    by: tuple[Annotated[Column, BeforeValidator(_named, json_schema_input_type=str | Column)], ...] = Field(
        (Column(column=SOURCE),),
        min_length=1,
        description="Columns, or expressions over columns, whose values define the groups.",
    )
    strategy: Literal["weights", "proportional", "temperature", "unimax"] = Field(
        "weights",
        description="How weights are computed. weights: as set in `weights`. proportional: to tokens. temperature: to "
        "tokens^(1/temperature). unimax: as even as max_epochs permits (arXiv 2304.09151).",
    )
    temperature: float = Field(
        10 / 3, gt=0, description="Temperature of the strategy `temperature`; mT5 (arXiv 2010.11934): 1 / 0.3."
    )
    tokens: dict[str, int] = Field({}, description="Fixed token budgets of groups. The other groups share the rest.")
    without: tuple[str, ...] = Field(
        (), description="Groups to exclude from training, for strategies other than `weights`."
    )
    rehydrate: dict[int, int] = Field(
        {},
        description="How often a document counts, by the size of its cluster of near-duplicates. Each weight applies "
        "from its size up. As FineWeb-2's weights (arXiv 2506.20920); requires `minhash`.",
    )
    upsample: Upsampling | None = Field(
        None,
        description="Repeat better documents more often, within each group of the other columns of `by`. "
        "The last column must have quantiles of quality, 20 in OLMo 3.",
    )
    phases: tuple[Phase, ...] = Field((), description="Phases of training, in order.")
    packing: Literal["concatenate", "best_fit"] = Field(
        "concatenate",
        description="How documents are packed into training rows: concatenated and cut where a row ends, "
        "or best_fit, which cuts no document that fits into model.seq_len (arXiv 2404.10830).",
    )

    @field_validator("weights")
    @classmethod
    def _positive(cls, weights: dict[str, float]) -> dict[str, float]:
        if bad := {name: w for name, w in weights.items() if not w > 0}:
            raise ValueError(f"weights must be positive, but these are not: {bad}; remove the source instead")
        return weights

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.strategy == "weights") != bool(self.weights):
            raise ValueError(
                "mixture has no weights: give them, or another strategy (proportional, temperature, unimax)"
                if not self.weights
                else f"mixture.weights and the strategy {self.strategy} exclude each other; remove one of them"
            )
        if self.without and self.weights:
            raise ValueError(
                f"mixture.without has {', '.join(self.without)}; with weights, give these no weight instead"
            )
        if any(column.quantiles for column in self.by[:-1]):
            raise ValueError("mixture.by has quantiles in a column that is not its last; put that column last")
        if self.rehydrate and (min(self.rehydrate) != 1 or min(self.rehydrate.values()) < 1):
            raise ValueError(f"mixture.rehydrate is {self.rehydrate}; begin with size 1, and repeat at least once")
        if self.phases:
            self._check_phases()
        if self.upsample:
            self._check_upsampling()
        return self

    def _check_upsampling(self) -> None:
        if not self.by[-1].quantiles:
            raise ValueError(
                "mixture.upsample requires quality ranges: the last column of mixture.by must have quantiles"
            )
        for name in ("phases", "tokens", "rehydrate"):
            if getattr(self, name):
                raise ValueError(f"mixture.upsample and mixture.{name} exclude each other; remove one of them")
        if ranges := [name for name in self.named if name.count("/") >= len(self.by) - 1]:
            raise ValueError(
                f"mixture.upsample decides how much of each range is read, and {ranges[0]} is a range: use "
                "only the names of groups"
            )

    def _check_phases(self) -> None:
        if abs(sum(phase.share for phase in self.phases) - 1) > 1e-6:
            raise ValueError(f"the shares of mixture.phases are {[p.share for p in self.phases]}; make them sum to 1")
        if self.tokens:
            raise ValueError("mixture.tokens and mixture.phases exclude each other; give the phases weights instead")
        if any(phase.order for phase in self.phases) and not self.by[-1].quantiles:
            raise ValueError(
                "a phase of mixture.phases has an order; the last column of mixture.by must have quantiles"
            )
        if any(not w > 0 for phase in self.phases for w in phase.weights.values()):
            raise ValueError("weights of mixture.phases must be positive; remove the source instead")

    @property
    def by_source(self) -> bool:
        """Whether the groups are the sources as they are."""
        return self.by == (Column(column=SOURCE),) and not self.rehydrate

    @property
    def named(self) -> tuple[str, ...]:
        """The groups that it names, in order."""
        names = [*self.weights, *self.tokens, *self.without, *(name for phase in self.phases for name in phase.weights)]
        return tuple(dict.fromkeys(names))

    def source_weights(self, sources: Iterable[str]) -> dict[str, float]:
        """Weights of the sources that are trained on; equal if weights are not by source."""
        if self.by[0] != Column(column=SOURCE):
            return dict.fromkeys(sources, 1.0)
        if self.strategy != "weights":
            return {source: 1.0 for source in sources if source not in self.without}
        weights: dict[str, float] = {}
        for weights_of in (self.weights, *(phase.weights for phase in self.phases)):
            for name, weight in weights_of.items():
                source = name.split("/")[0]
                if weights_of is self.weights or source not in weights:
                    weights[source] = weights.get(source, 0) + weight
        return weights | {name.split("/")[0]: 1.0 for name in self.tokens if name.split("/")[0] not in weights}
