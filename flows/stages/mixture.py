"""`mixture`: the plan of the training data, shares of the sources within the token budget of the run."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.recipe import Recipe
from storage import files, token_shards
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.tokens.mixture import Mixture
from tasks.tokens.mixture_work import write_mixture


class Record(Settings):
    mixture: Mixture
    budget: int


@dataclass(frozen=True)
class MixturePlaces:
    """`sources`: the source of each shard; `train`, `heldout`: tokens of each shard; `shards`, `tokenizer`: the folders
    as they are seen from the mixture's; `token_bytes`: a path."""

    sources: tuple[str, ...]
    train: tuple[int, ...]
    heldout: tuple[int, ...]
    shards: str
    tokenizer: str
    token_bytes: str

    def listed(self, split: str, source: str) -> list[dict]:
        counts = {"train": self.train, "heldout": self.heldout}[split]
        return [
            {"path": token_shards.bin_path(self.shards, split, i), "tokens": counts[i]}
            for i, name in enumerate(self.sources)
            if name == source and counts[i]
        ]


def mixture(
    context: RunContext, recipe: Recipe, sources: tuple[str, ...], tokenizer: StageResult, tokens: StageResult
) -> StageResult:
    """`sources`: the source of each token shard."""
    record = Record(mixture=recipe.training_mixture(), budget=recipe.training.token_budget(recipe.model.seq_len))
    encoded = tokens.records("encode")
    places = MixturePlaces(
        sources,
        tuple(record["train"]["tokens"] for record in encoded),
        tuple(record["heldout"]["tokens"] for record in encoded),
        _beside(tokens),
        _beside(tokenizer),
        files.join(tokenizer.folder, "token_bytes.json"),
    )
    return context.build(
        StageSpec("mixture", _plan, record, {"tokens": tokens.key, "tokenizer": tokenizer.key}, places)
    )


def _plan(phases: PhaseRunner, record: Record, places: MixturePlaces) -> dict:
    """Plan the shares of the sources."""
    names = sorted(record.mixture.weights)
    given = {
        "tokens": {name: places.listed("train", name) for name in names},
        "heldout": {name: places.listed("heldout", name) for name in names},
        "tokenizer": f"{places.tokenizer}/tokenizer.model",
        "token_bytes": places.token_bytes,
        "budget": record.budget,
        "settings": record.mixture,
    }
    return phases.once("plan", write_mixture, given)


def _beside(stage: StageResult) -> str:
    """The stage's folder as seen from the folder of another stage: holds wherever the home is moved."""
    return f"../{stage.name}-{stage.key}"
