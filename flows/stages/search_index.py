"""`search_index`: where every phrase is, in the token shards and in the documents that were dropped."""

from dataclasses import dataclass

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import work_of_steps
from gristmill.flows.stages.evaluation.heldout import Data
from gristmill.flows.stages.removal import takedown_lists
from gristmill.flows.stages.tokenizer import tokenizer_of
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.search.index import PHASE, index_shard
from gristmill.tasks.url.step import Url

NAME = "search_index"


class Record(Settings):
    """`takedowns`: the lists whose documents are in no index, tied to the content that they have now."""

    takedowns: Url


@dataclass(frozen=True)
class IndexPlaces:
    """`extracted`: the parts with the texts of all documents; `kept`: those that name what is trained on; `tokens`: the
    folder of the token shards; `deciding`: of the stages that dropped documents, in their order."""

    extracted: Parts
    kept: Parts
    tokens: str
    deciding: tuple[str, ...]
    tokenizer: RecordedFile


def search_index(context: RunContext, recipe: Recipe, data: Data) -> StageSpec:
    """The stage of a recipe's index."""
    train = data.split.train
    deciding = [stage for stage in train.stages if stage.step_counts]
    shards = train.places.shards()
    given = takedown_lists(context, recipe)
    inputs = {"tokens": data.tokens, "tokenizer": data.tokenizer, "documents": train.extracted, "kept": train.kept}
    inputs |= {f"deciding {at}": stage for at, stage in enumerate(deciding)}
    work = work_of_steps((given,))
    work["libraries"] = ("gigatoken",)  # by whose ids dropped texts are indexed

    def places() -> IndexPlaces:
        return IndexPlaces(
            Parts(train.extracted.folder, shards),
            Parts(train.kept.folder, shards),
            data.tokens.folder,
            tuple(stage.folder for stage in deciding),
            tokenizer_of(data.tokenizer),
        )

    return StageSpec(
        "search_index",
        _index,
        Record(takedowns=given),
        inputs,
        places,
        version=1,
        **work,
    )


def _index(phases: PhaseRunner, record: Record, places: IndexPlaces) -> dict:
    """Index the texts, kept and dropped."""
    jobs = Each(places.kept.shards, lambda i: {"documents": places.extracted[i], "kept": places.kept[i]})
    given = {"tokens": places.tokens, "deciding": places.deciding, "takedowns": record.takedowns}
    counts = phases.map(PHASE, index_shard, jobs, common=given | {"tokenizer": places.tokenizer}).values()
    splits = ("train", "dropped")
    found = {split: {"documents": 0, "tokens": 0} for split in splits}
    for each in counts:
        for split in splits:
            for name in found[split]:
                found[split][name] += each[split][name]
    return found
