"""What the models of a run are evaluated on: held-out documents of the sources, and texts that the recipe names.

The held-out documents are a property of the sources, so that models of all recipes on the same sources are evaluated on
the same bytes. `survivors/SOURCE` are those of `heldout/SOURCE` that the recipe keeps: two recipes have two such sets,
and no measure of them is comparable. `evaluation/NAME` are texts of the recipe's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.variants import texts_alone
from gristmill.flows.stages.corpus import Corpus, held_out, heldout_full
from gristmill.flows.stages.evaluation.documents import CHARACTERS, SAMPLED, below, extracted, shards_of_sets
from gristmill.flows.stages.removal import takedown_lists
from gristmill.storage import files
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.evaluation.documents import choose_documents, sample_shard, sampled_folder
from gristmill.tasks.evaluation.similar import THRESHOLD
from gristmill.tasks.url.step import Url

BYTES_A_TOKEN = 4  # of English: `training.eval_tokens` so many times are the bytes of a set
_LEAST_BYTES = 64  # of a document, for which a set has room for all


class Record(Settings):
    """`most`, `most_bytes`: of a set, documents and bytes of the part of their texts that is evaluated, `characters`
    code points at most; `below`: of each set, documents whose keyed hash, in [0, 1), is below this are looked at;
    `heldout`: which documents are candidates, None: all; `takedowns`: lists of documents that are none."""

    below: dict[str, float]
    most: int
    most_bytes: int
    characters: int
    shingling: Shingling
    threshold: float
    heldout: Heldout | None = None
    takedowns: Url | None = None


@dataclass(frozen=True)
class Places:
    """By shard the set, the part with its candidates among others, and that which names what the recipe keeps, if
    survivors are a set of their own, else an empty address; `full`: how many times as large the sources may become
    until no more of their documents are candidates."""

    sets: tuple[str, ...]
    documents: Sequence[str]
    kept: Sequence[str]
    full: int = 1


def heldout_documents(context: RunContext, recipe: Recipe, corpus: Corpus, drawn: StageResult) -> StageResult:
    """The held-out documents that models are evaluated on, as sets `heldout/SOURCE` and `survivors/SOURCE`.

    `drawn`: the stage with the held-out documents among others, as the sources have them. Raises ValueError where
    nothing is held out.
    """
    chosen = held_out(recipe, corpus)
    # a stage that has the held-out documents alone has no others to draw them from
    shares = chosen.fractions if drawn.name == "documents" else dict.fromkeys(chosen.fractions, 1.0)
    counts = {name: shares[name] * of["documents"] for name, of in drawn.result["sources"].items()}
    sets = tuple(f"heldout/{source}" for source in corpus.sources)
    places = Places(
        sets, tuple(drawn.part(i) for i in corpus.places.shards()), corpus.places.kept, heldout_full(recipe, corpus)
    )
    record = _record(recipe, {f"heldout/{name}": count for name, count in counts.items()})
    record = record.model_copy(update={"heldout": chosen, "takedowns": takedown_lists(context, recipe)})
    inputs = {"drawn": drawn, "kept": corpus.kept}
    return context.build(StageSpec("heldout_documents", _choose, record, inputs, places, version=1))


def named_texts(context: RunContext, recipe: Recipe) -> StageResult | None:
    """The texts that the recipe's `evaluation` names, as sets `evaluation/NAME`; None for a recipe without any.

    Raises NothingLeftError for one without a text, FileNotFoundError for one that is not there.
    """
    if not recipe.evaluation:
        return None
    corpus = extracted(context, texts_alone(recipe, recipe.evaluation))
    counts = corpus.documents.result["sources"]
    record = _record(recipe, {f"evaluation/{name}": float(of["documents"]) for name, of in counts.items()})
    sets = tuple(f"evaluation/{name}" for name in corpus.sources)
    places = Places(sets, corpus.places.documents, ("",) * len(sets))
    inputs = {"documents": corpus.documents}
    return context.build(StageSpec("evaluation_documents", _choose, record, inputs, places, version=1))


def _record(recipe: Recipe, counts: Mapping[str, float]) -> Record:
    """`counts`: of each set, how many candidates there are, about."""
    most_bytes = BYTES_A_TOKEN * recipe.training.eval_tokens
    most = max(1, most_bytes // _LEAST_BYTES)
    return Record(
        below={name: below(count, SAMPLED * most) for name, count in counts.items()},
        most=most,
        most_bytes=most_bytes,
        characters=CHARACTERS,
        shingling=Shingling(),
        threshold=THRESHOLD,
    )


def _choose(phases: PhaseRunner, record: Record, places: Places) -> dict:
    """Choose the documents that models are evaluated on."""
    given: dict[str, Any] = {
        "most": SAMPLED * record.most,
        "characters": record.characters,
        "seed": 0,
        "heldout": record.heldout,
        "takedowns": record.takedowns,
        "apart": record.heldout is None,
    }

    def job(i: int) -> dict[str, Any]:
        return {"documents": places.documents[i], "kept": places.kept[i], "below": record.below[places.sets[i]]}

    shards_there = range(len(places.sets))
    sampled = phases.map("sample", sample_shard, Each(shards_there, job), temporary=True, common=given)
    full = SAMPLED * record.most * len(record.below) / max(1, sum(counts["sampled"] for counts in sampled.values()))
    sets = {}
    for name, shards in shards_of_sets(places.sets).items():
        if any(sampled[i]["sampled"] for i in shards):
            sets[name] = record.most, (shards.start, shards.stop)
        else:
            phases.message(f"no document is in the set {name}: models are not evaluated on it")
    if not sets and record.heldout is not None:
        raise ValueError(nothing_held_out(record.heldout, "no document with a word"))
    if not sets:
        raise ValueError("no text of `evaluation` has a word: name others, or leave it out")
    chosen = phases.once(
        "choose",
        choose_documents,
        {
            "sets": sets,
            "characters": record.characters,
            "shingling": record.shingling,
            "threshold": record.threshold,
            "least": 1,
            "most_bytes": record.most_bytes,
            "survivors": {name: name.replace("heldout/", "survivors/", 1) for name in sets if any(places.kept)},
        },
        full=min(full, places.full),
    )
    files.remove(sampled_folder(phases.folder))
    return {"sets": chosen}


def nothing_held_out(heldout: Heldout, what: str) -> str:
    """The sentence that ends a run in which nothing is held out."""
    return (
        f"{what} is held out, of a share of {max(heldout.fractions.values()):g} of a source: raise "
        "mixture.heldout_fraction or mixture.heldout_documents, or give the sources more documents"
    )
