"""`mixture`: the plan of the training data, shares of the sources within the token budget of the run."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.recipe import Recipe
from storage import layout, token_shards
from storage.recorded_file import RecordedFile
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.tokens.encode import SPLITS
from tasks.tokens.mixture import Mixture
from tasks.tokens.mixture_work import write_mixture


class Record(Settings):
    mixture: Mixture
    budget: int


@dataclass(frozen=True)
class MixturePlaces:
    """`shards`: the source of each shard, and of each of its splits path, tokens and digest; `tokenizer`: its model.
    Paths of these are as they are seen from the mixture's folder."""

    shards: tuple[tuple[str, dict[str, tuple[str, int, str]]], ...]
    tokenizer: RecordedFile
    token_bytes: RecordedFile

    def listed(self, split: str, source: str) -> list[dict]:
        found = [splits[split] for name, splits in self.shards if name == source]
        return [{"path": path, "tokens": tokens, "digest": digest} for path, tokens, digest in found if tokens]


def mixture(
    context: RunContext, recipe: Recipe, sources: tuple[str, ...], tokenizer: StageResult, tokens: StageResult
) -> StageResult:
    """`sources`: the source of each token shard."""
    record = Record(mixture=recipe.training_mixture(), budget=recipe.training.token_budget(recipe.model.seq_len))

    def places() -> MixturePlaces:
        encoded = [part for part in layout.parts(tokens.folder, tokens.manifest) if part.phase == "encode"]
        shards = tuple(
            (source, {split: _listed(_beside(tokens), split, part) for split in SPLITS})
            for source, part in zip(sources, encoded, strict=True)
        )
        model = tokenizer.file("tokenizer.model")
        beside = RecordedFile(f"{_beside(tokenizer)}/tokenizer.model", model.digest)
        return MixturePlaces(shards, beside, tokenizer.file("token_bytes.json"))

    return context.build(
        StageSpec("mixture", _plan, record, {"tokens": tokens.key, "tokenizer": tokenizer.key}, places)
    )


def _listed(folder: str, split: str, part: layout.Part) -> tuple[str, int, str]:
    path = token_shards.bin_path(folder, split, part.number)
    return path, part.record[split]["tokens"], part.files[path.rsplit("/", 1)[1]]["content"]


def _plan(phases: PhaseRunner, record: Record, places: MixturePlaces) -> dict:
    """Plan the shares of the sources."""
    names = sorted(record.mixture.weights)
    given = {
        "tokens": {name: places.listed("train", name) for name in names},
        "heldout": {name: places.listed("heldout", name) for name in names},
        "tokenizer": places.tokenizer,
        "token_bytes": places.token_bytes,
        "budget": record.budget,
        "settings": record.mixture,
    }
    return phases.once("plan", write_mixture, given)


def _beside(stage: StageResult) -> str:
    """The stage's folder as seen from the folder of another stage: holds wherever the home is moved."""
    return f"../{stage.name}-{stage.key}"
