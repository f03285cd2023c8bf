"""`evaluation_documents`: the documents that recipes are compared on, of each source and of a clean text set.

They are drawn from all documents as the recipes extract them, before every filter, using only ids and hosts. So they do
not depend on the steps of a compared recipe, the tokenizer or the model. `judge` defines the sets and which of them
count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import floor, log2
from typing import Any

import pyarrow as pa
from pydantic import Field

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.variants import unfiltered
from gristmill.flows.stages.corpus import Corpus, check_sources
from gristmill.flows.stages.documents import documents
from gristmill.flows.stages.evaluation.judge import CLEAN, clean_recipe, source_sets
from gristmill.storage import files, parquet
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.evaluation.documents import (
    EVALUATION,
    choose_documents,
    evaluation_file,
    sample_shard,
    sampled_folder,
)
from gristmill.tasks.evaluation.similar import THRESHOLD

# Of a set: screening looks at every fourth document, the test at the others, and a variance takes two of each.
MIN_DOCUMENTS = 5
MAX_SHARE = 0.1  # of a source's documents: the rest is there to be trained on
SAMPLED = 4  # times as many documents of a shard as a set takes at most, since near copies among them count once
# Times as many documents of a set are looked at as are taken, since copies count once, and at least so many.
_LOOKED_AT = 16
_MIN_SAMPLED = 1_000
CHARACTERS = 8_000  # of a text: 2,000 tokens of English, eight contexts of a small proxy


class EvaluationChoice(Settings):
    """`read`: of each set the input that has its documents, and the source there; `shares`: of each set the largest
    share of its documents that may be taken; `below`: of each set, documents whose keyed hash, in [0, 1), is below this
    are looked at; `characters`: code points of a text that are evaluated; `seed`: of the keyed hash; `threshold`:
    Jaccard similarity of documents that count as one; `apart`: the sets that are of no source of the recipes."""

    read: dict[str, str]
    per_source: int = Field(ge=MIN_DOCUMENTS)
    shares: dict[str, float]
    below: dict[str, float]
    apart: tuple[str, ...] = ()
    characters: int = Field(gt=0)
    seed: int
    shingling: Shingling
    threshold: float


@dataclass(frozen=True)
class EvaluationDocumentsPlaces:
    """By shard the set and the part that has its candidates, with other documents; if survivors are a set of their own,
    `kept`: the part that names what the recipe keeps. `full`: how many times as large the sources may become until no
    more of their documents are candidates."""

    sets: tuple[str, ...]
    documents: Sequence[str]
    kept: Sequence[str] = ()
    full: int = 1


def unfiltered_documents(context: RunContext, recipe: Recipe) -> Corpus:
    """All documents of a recipe's sources as it extracts them: no filter has seen them, not even one of URLs."""
    corpus = documents(context, unfiltered(recipe), ())
    check_sources(corpus)
    return corpus


def evaluation_documents(
    context: RunContext,
    recipes: Sequence[Recipe],
    per_source: int,
    clean: str | None = None,
    characters: int = CHARACTERS,
    seed: int = 0,
) -> StageResult:
    """`per_source` documents of each source of the recipes, at most a tenth of it, and of the clean text set: one of
    each host, then second ones. A source of which a tenth, near copies counted once, is fewer than MIN_DOCUMENTS has no
    set.

    `clean`: a path or address of JSON lines or Parquet with a column `text`, a folder of .txt files, or `reference`;
    it is normalized as the first recipe normalizes. The result's `sets` have documents and bytes by set; `read` gives
    the documents. Raises NothingLeftError or ValueError for a source without a text, or a set with too few documents,
    FileNotFoundError for a clean set that is not there.
    """
    sets = source_sets(recipes)
    shares = {each.name: MAX_SHARE for each in sets}
    whole = {
        index: unfiltered_documents(context, recipes[index]) for index in dict.fromkeys(each.recipe for each in sets)
    }
    sources = [(each.name, whole[each.recipe], each.source) for each in sets]
    if clean is not None:
        sources.append((CLEAN, unfiltered_documents(context, clean_recipe(context.settings, recipes[0], clean)), CLEAN))
        shares[CLEAN] = 1.0
    counts = {name: corpus.documents.result["sources"][own]["documents"] for name, corpus, own in sources}
    named: dict[str, str] = {}  # what the inputs are called, by label
    inputs: dict[str, StageResult] = {}
    for name, corpus, _ in sources:
        number = f" {len(named) + 1}" if named else ""
        called = named.setdefault(corpus.documents.label, CLEAN if name == CLEAN else f"documents{number}")
        inputs.setdefault(called, corpus.documents)
    record = EvaluationChoice(
        read={name: f"{named[corpus.documents.label]}/{own}" for name, corpus, own in sources},
        per_source=per_source,
        shares=shares,
        below={name: below(count, _LOOKED_AT * per_source) for name, count in counts.items()},
        apart=(CLEAN,) if clean is not None else (),
        characters=characters,
        seed=seed,
        shingling=Shingling(),
        threshold=THRESHOLD,
    )
    parts = [(name, part) for name, corpus, own in sources for part, _ in corpus.places.parts((own,))]
    spec = StageSpec(
        name="evaluation_documents",
        version=1,
        body=_choose,
        record=record,
        inputs=inputs,
        places=EvaluationDocumentsPlaces(tuple(name for name, _ in parts), tuple(part for _, part in parts)),
    )
    return context.build(spec)


def _choose(phases: PhaseRunner, record: EvaluationChoice, places: EvaluationDocumentsPlaces) -> dict:
    """Choose the documents that recipes are compared on."""
    common = {"most": SAMPLED * record.per_source, "characters": record.characters, "seed": record.seed}

    def job(i: int) -> dict[str, Any]:
        name = places.sets[i]
        return {"documents": places.documents[i], "apart": name in record.apart, "below": record.below[name]}

    shards_there = range(len(places.sets))
    sampled = phases.map("sample", sample_shard, Each(shards_there, job), temporary=True, common=common)
    sets: dict[str, tuple[int, tuple[int, int]]] = {}
    of_sets = shards_of_sets(places.sets)
    for name, share in record.shares.items():
        shards = of_sets[name]
        there = sum(sampled[i]["documents"] for i in shards)
        if not there:
            raise ValueError(
                f"no document of the source {name} has a text with a word, so recipes cannot be compared on "
                "it: use other files, or remove the source from the recipe"
            )
        # the product may lie below a whole number by the last bit
        count = min(record.per_source, int(share * there + 1e-9))
        description = f"{share:.0%} of its {there:,} documents" if share < 1 else f"all of its {there:,} documents"
        if count < MIN_DOCUMENTS:
            if name == CLEAN:
                raise ValueError(
                    f"the clean text set has {there:,} documents with a word; give {MIN_DOCUMENTS} or more"
                )
            phases.message(f"the source {name} has no evaluation set: {description} is fewer than {MIN_DOCUMENTS}")
            continue
        if count < record.per_source:
            phases.message(
                f"the evaluation set {name} has {count:,} documents instead of {record.per_source:,}: {description}"
            )
        sets[name] = count, (shards.start, shards.stop)
    if not sets:
        raise ValueError(
            f"every source has too few documents to evaluate on, because at most {MAX_SHARE:.0%} of a source "
            f"is used and a set needs {MIN_DOCUMENTS}: add documents, or a clean text set"
        )
    alike = {"characters": record.characters, "shingling": record.shingling, "threshold": record.threshold}
    chosen = phases.once("choose", choose_documents, alike | {"sets": sets, "least": MIN_DOCUMENTS})
    for name, (count, _) in sets.items():
        unlike = chosen[name]["documents"] if name in chosen else 0
        if not unlike and (name == CLEAN or not chosen):
            raise ValueError(
                f"the evaluation set {name} has fewer than {MIN_DOCUMENTS} different texts (near-duplicates "
                "count once): add documents"
            )
        if not unlike:
            phases.message(
                f"the source {name} has no evaluation set: fewer than {MIN_DOCUMENTS} of its documents differ"
            )
        elif unlike < count:
            phases.message(f"the evaluation set {name} has {unlike:,} documents, because near-duplicates count once")
    files.remove(sampled_folder(phases.folder))
    return {"sets": chosen}


def read(evaluation: StageResult, columns: list[str] | None = None) -> pa.Table:
    """The evaluation documents, by set and then by id: the columns of EVALUATION."""
    return parquet.read_table(evaluation_file(evaluation.folder), columns or EVALUATION.names)


def sets_of(evaluation: StageResult) -> tuple[str, ...]:
    """The names of the sets, sorted."""
    return tuple(sorted(evaluation.result["sets"]))


def below(count: float, wanted: int) -> float:
    """Up to which keyed hash at least so many of `count` documents are looked at, and `_MIN_SAMPLED`, as a power of
    two: a count that is known better does not change it."""
    wanted = max(wanted, _MIN_SAMPLED)
    return 1.0 if count <= wanted else 2.0 ** -floor(log2(count / wanted))


def shards_of_sets(sets: Sequence[str]) -> dict[str, range]:
    """The shards of each set, which follow each other. `sets`: the set of each shard."""
    counts = Counter(sets)
    begins = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
    return {name: range(begins[name], begins[name] + count) for name, count in counts.items()}
