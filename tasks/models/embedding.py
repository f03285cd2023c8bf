"""Documents embedded once, and scored by small models on their vectors, the heads, as often as one likes.

After FineWeb-Edu (Penedo et al. 2024, arXiv 2406.17557): a regression on the vectors of a frozen embedder, trained on
grades that a large model gave some documents; and JQL (Ali et al. 2025, arXiv 2505.22232): several heads on one
embedder.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.settings import Address
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.step import Bound, Problem, Settings, Signal
from gristmill.tasks.engine.extras import MissingExtraError
from gristmill.tasks.models import embedders
from gristmill.tasks.models import heads as head_files
from gristmill.tasks.models.embedders import Embedder, vectors_of
from gristmill.tasks.models.filter import LearnedFilter
from gristmill.tasks.models.percentiles import percentiles

_NAME = r"[a-z][a-z0-9_]*"


def column_of(head: str) -> str:
    """The column with the scores of a head."""
    return f"embedding_{head}"


class HeadCuts(Settings):
    """Which documents are kept, by the scores of the heads."""

    min_score: dict[str, float] = Field({}, description="Lowest score that is kept, for each head.")
    keep_top: dict[str, float] = Field(
        {}, description="For each head, the percentage of the scored documents to keep: those with its highest scores."
    )

    @model_validator(mode="after")
    def _percents(self) -> Self:
        for name, percent in self.keep_top.items():
            if not 0 < percent <= 100:
                raise ValueError(f"has keep_top {percent} for {name}; give a percentage above 0, at most 100")
        if both := sorted({*self.min_score} & {*self.keep_top}):
            raise ValueError(f"has min_score and keep_top for {both[0]}; give one of them")
        return self


class HeadScoring(Settings):
    """What decides the scores, besides the vectors and the files of the heads. `model`, `tokenizer`: digests."""

    heads: tuple[str, ...]
    embedder: Embedder
    model: str
    tokenizer: str


class Embedding(HeadCuts, Embedder, LearnedFilter):
    """Embed documents, score the vectors with heads, and keep documents with high enough scores.

    Vectors are kept as a stage, so other heads and cuts do not embed again. A head without a cut only scores.
    """

    decision_fields: ClassVar = ("min_score", "keep_top")
    has_unknown_speed: ClassVar = True

    step: Literal["embedding"] = "embedding"
    model: Address = Field(
        min_length=1, description="Folder or address of a sentence embedder: (onnx/)model.onnx and tokenizer.json."
    )
    heads: dict[str, Address] = Field(
        {}, description="Path or address of each head, by name. `gristmill train head` trains heads."
    )
    reference: tuple[str, ...] = Field((), description="Names of sources that are kept and not embedded.")

    @model_validator(mode="after")
    def _known_heads(self) -> Self:
        for name in self.heads:
            if re.fullmatch(_NAME, name) is None:
                raise ValueError(f"has the head {name!r}; use lowercase letters, digits and underscores")
        for key in self.decision_fields:
            if strange := sorted({*getattr(self, key)} - {*self.heads}):
                there = ", ".join(sorted(self.heads)) or "none"
                raise ValueError(f"has {key} for {strange[0]}, which is not a head; its heads are {there}")
        return self

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        return self.part(Embedder).libraries

    @property
    def signals(self) -> tuple[Signal, ...]:  # type: ignore[override]  # they depend on the settings
        return tuple(
            Signal(
                column_of(name),
                "float64",
                "as the labels of the head; a probability where these are two",
                "Penedo et al. 2024, section 4",
                description=f"The score of the head {name} on the document's vector.",
            )
            for name in sorted(self.heads)
        )

    @property
    def named_models(self) -> tuple[str, ...]:
        return tuple(self.heads[name] for name in sorted(self.heads))

    def decision_settings(self) -> HeadCuts:
        return self.part(HeadCuts)

    def problems(self, deep: bool) -> Iterator[Problem]:
        try:
            if self.kind == "onnx":
                embedders.runtime(self.device)
        except (ImportError, MissingExtraError) as error:
            yield ("step",), str(error)
            return
        names: dict[str, Any] | None = None
        width = 0

        def check_embedder() -> None:
            nonlocal names, width
            settings = self.part(Embedder)
            embedder = embedders.embedder_files(self.model, self.kind)
            width = embedders.load(embedder, settings).dimension
            names = described(embedder.model.digest, embedder.tokenizer.digest, settings)

        def check_head(path: str) -> None:
            head = head_files.load(RecordedFile(path, files.checksum(path)))
            if names is not None:
                head_files.check_fits(path, head, names, width)

        yield from file_problems(self.model, ("model",), deep, check_embedder)
        for name, path in self.heads.items():
            yield from file_problems(path, ("heads", name), deep, partial(check_head, path))


def described(model: str, tokenizer: str, settings: Embedder) -> dict[str, Any]:
    """An embedder as heads name it: the digests of its files, and its settings but for the device, and the kind, which
    the file shows."""
    return {"model": model, "tokenizer": tokenizer, **settings.model_dump(mode="json", exclude={"device", "kind"})}


def score_shard(
    folder: str, shard: int, vectors: str, heads: Mapping[str, RecordedFile], settings: HeadScoring
) -> dict:
    """Write `id` and the column of each head. `vectors`: the part with the vectors of the shard's documents.

    Raises ModelFileError for a head that does not fit the vectors.
    """
    table = parquet.read_table(vectors)
    matrix = vectors_of(table)
    embedder = described(settings.model, settings.tokenizer, settings.embedder)
    columns: dict[str, Any] = {"id": table["id"]}
    for name in settings.heads:
        head = head_files.load(heads[name])
        head_files.check_fits(heads[name].path, head, embedder, matrix.shape[1])
        columns[column_of(name)] = head_files.scores(head, matrix)
    parquet.write_table(layout.part(folder, shard), pa.table(columns))
    return {"rows": len(table)}


def bounds(settings: HeadCuts, scores: Sequence[str]) -> list[Bound]:
    """For each head with a cut, in the order of their names, at least `min_score`; or at least the score that
    `keep_top` percent of all documents with a score have. `scores`: the parts with scores."""
    result = []
    for name in sorted((*settings.min_score, *settings.keep_top)):
        if name in settings.min_score:
            result.append(Bound(f"{name}_min_score", column_of(name), low=settings.min_score[name]))
            continue
        cuts = percentiles(scores, column_of(name), [100 - settings.keep_top[name]])
        result += [Bound(f"{name}_keep_top", column_of(name), low=low) for [low] in cuts.values()]
    return result
