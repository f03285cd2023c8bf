"""Data of a finished recipe for trainings elsewhere: texts for the models of a language, tokens for other trainers."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import TypeAdapter

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.finished import finished
from gristmill.flows.stages.corpus import held_out
from gristmill.flows.stages.export import recipe_of_card
from gristmill.flows.stages.model import local_mixture
from gristmill.samples import SampleSource
from gristmill.samples.formats.export import TokenExport
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.documents.selection import gather, select
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.tasks.reading.charset import decode, detect
from gristmill.tasks.reading.sources import Source
from gristmill.tasks.reading.tables import records

_SOURCE: TypeAdapter[Source] = TypeAdapter(Source)
_MAX_BYTES = 1 << 30  # of a text


def texts_of_files(
    kind: str, patterns: Sequence[str], column: str = "text", passed_over: Counter[str] | None = None
) -> Iterator[str]:
    """The texts of files, in the order of their names. Rows without a text, and those that are damaged, are passed
    over and counted in `passed_over`, by what is wrong with them.

    `kind`: `text` (a file is a text), `jsonl` or `parquet`, with the texts in `column`. Raises FileNotFoundError.
    """
    counted = Counter() if passed_over is None else passed_over
    columned = {} if kind == "text" else {"text_column": column}
    source = _SOURCE.validate_python({"name": "texts", kind: patterns, **columned})
    for shard in source.shards():
        for record in records(shard.path, shard.format, shard.columns, _MAX_BYTES):
            if record.problem is None:
                yield decode(record.payload, detect(record.payload, record.charset, False))
            else:
                counted[record.problem[0]] += 1


def texts_of_recipe(
    name: str, sources: Sequence[str], language: str, settings: MachineSettings | None = None
) -> Iterator[str]:
    """The texts that a recipe's finished corpus keeps of some sources; where the recipe measures languages, only those
    in `language`. Held-out documents are left out.

    Holds a shard. Raises NotFinishedError; ValueError for a source that the recipe has not.
    """
    recipe = load(name)
    if unknown := sorted(set(sources) - {source.name for source in recipe.sources}):
        there = ", ".join(source.name for source in recipe.sources)
        raise ValueError(f"{recipe.name} has no source {', '.join(unknown)}; its sources are {there}")
    corpus = finished(recipe, settings).corpus
    places = corpus.places
    heldout = held_out(recipe, corpus)
    by_language = any(signal.name == "language" for step in recipe.steps for signal in step.signals)
    for i, source in enumerate(places.sources):
        if source not in sources:
            continue
        texts = heldout.without(select(places.documents[i], places.kept[i], ["source", "text"]))
        if by_language:
            languages = gather(places.signals[i], places.kept[i], ["language"])
            names = dict(zip(languages["id"].to_pylist(), languages["language"].to_pylist(), strict=True))
            texts = texts.filter([names[each] == language for each in texts["id"].to_pylist()])
        yield from texts["text"].to_pylist()


def token_export(name: str, settings: MachineSettings) -> TokenExport:
    """What there is to export of a recipe. Makes nothing; reads each token shard, and compares it with its digest.

    Raises NotFinishedError where the recipe's tokens are not there, ValueError for a training whose samples are no
    windows or rows of tokens, MissingFileError and DamagedFileError.
    """
    recipe = load(name)
    recipe.training_mixture()
    report = finished(recipe, settings)
    if report.data is None:
        raise NotFinishedError(
            f"the tokens of {recipe.name} are not finished: run `gristmill run {name} --tokens-only` first"
        )
    training, seq_len = recipe.training, recipe.model.seq_len
    if training.objective != "causal":
        raise ValueError(
            f"training.objective is {training.objective}, whose samples are created during training, so "
            "other trainers' formats cannot contain them; set `training.objective: causal` to export tokens"
        )
    path = local_mixture(settings, report.data.mixture.folder)
    samples = training.batches(seq_len).first(training.steps)  # with a ramp more than steps * batch
    source = SampleSource(path, seq_len, training.batch, training.data_seed, steps=samples // training.batch)
    card = recipe_of_card(recipe, {"tokenizer", "mixture", "model", "training"})
    return TokenExport(recipe.name, report.data.mixture.key, card, source, load_training_manifest(path))
