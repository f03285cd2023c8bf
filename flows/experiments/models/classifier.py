"""Classifiers for other runs: trained on labelled files, or on the sources that a finished recipe's step names."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.classifier_plots import confusion_file, curves_file
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.stages.corpus import Corpus, held_out
from gristmill.storage import files, leftovers
from gristmill.tasks.documents.step import CorpusStep
from gristmill.tasks.engine import options
from gristmill.tasks.models import quality
from gristmill.tasks.models.classifier import classifier_file
from gristmill.tasks.models.classifier.measures import label_measures, measures
from gristmill.tasks.models.classifier.training import (
    BAD,
    FOLDS,
    GOOD,
    Classifier,
    Examples,
    Ordered,
    cross_fit,
    ordered,
    train,
)
from gristmill.tasks.models.model_files import LABEL
from gristmill.tasks.models.quality import Quality
from gristmill.tasks.reading.charset import decode, detect
from gristmill.tasks.reading.sources import Source, format_of
from gristmill.tasks.reading.tables import records

_SOURCE: TypeAdapter[Source] = TypeAdapter(Source)
_MOST_BYTES = 1 << 30  # of a text
_BATCH = 1000
# Columns that say what a text comes from, the narrowest last.
GROUPS = ("group", "page", "page_id", "document", "document_id", "doc_id", "url")


def from_labels(
    out: str,
    kind: str,
    patterns: Sequence[str],
    good: Sequence[str],
    settings: Classifier,
    text: str,
    label: str,
    group: str | None = None,
) -> dict[str, Any]:
    """Train on the texts of `jsonl` or `parquet` files, of which those with a label in `good` are good examples, and
    all others bad ones; or, where `good` is empty, each label is one of the model's, with `_` for its spaces. Returns
    the counts and measures. Equal texts are in one fold, or, where it is known what they come from, all texts of it:
    lines of one page are so much like each other that a model which has seen some knows the others.

    `text`, `label`, `group`: the columns, or keys; of the group by default the first of GROUPS that the first file has.
    `folds_by` says which it is. Raises FileNotFoundError; ValueError for a row without a text or a label, and where a
    label has too few examples.
    """
    of_two = {True: GOOD, False: BAD}
    asked, group = group, group or grouped_by(kind, patterns, text, label)

    def fill(examples: Examples) -> None:
        batch: dict[str, list[tuple[str, str]]] = {}
        for each, its_label, its_group in _rows(kind, patterns, text, label, group):
            if asked and not its_group:
                raise ValueError(f"a text of {', '.join(patterns)} has no {asked}; name another key by --group-column")
            name = of_two[its_label in good] if good else LABEL + "_".join(its_label.split())
            texts = batch.setdefault(name, [])
            texts.append((each, its_group or each))
            if len(texts) == _BATCH:
                _add(examples, batch)
        _add(examples, batch)

    described = {"folds_by": group or text}
    return _make(out, settings, fill, described) if good else _make_topics(out, settings, fill, described)


def grouped_by(kind: str, patterns: Sequence[str], text: str, label: str) -> str | None:
    """The column, or key, that says what a text comes from, of those in GROUPS; None where the first file has none."""
    given = {"text_column": text, "id_column": label}
    for shard in _SOURCE.validate_python({"name": "labels", kind: patterns, **given}).shards()[:1]:
        there = format_of(shard.format).column_names(shard.path, shard.columns)
        return next((name for name in GROUPS if name in there and name not in (text, label)), None)
    return None


def from_recipe(out: str, name: str, machine: MachineSettings | None = None) -> dict[str, Any]:
    """Train on the documents that a recipe's step `quality` learns from, with its settings; returns the counts and
    measures. The steps ahead of it are finished. Raises NotFinishedError; ValueError for a recipe without such a step,
    or whose step names a model."""
    recipe = load(name)
    machine = machine or MachineSettings()
    step = next((step for step in recipe.steps if isinstance(step, Quality)), None)
    if step is None or step.model is not None:
        raise ValueError(f"the recipe {recipe.name} has no step `quality` with a `reference`; add one, or give --jsonl")
    options.configure(job_options(machine))
    corpus = arriving(recipe, step, machine)
    places = corpus.places
    parts = places.parts(step.reference), places.parts(step.raw(places.sources))
    heldout = held_out(recipe, corpus)
    settings = step.training_settings()
    return _make(out, settings, quality.sample(*parts, settings, heldout))


def arriving(recipe: Recipe, step: CorpusStep, machine: MachineSettings) -> Corpus:
    """The corpus as it arrives at a step."""
    missing = {each.step for each in recipe.after[: recipe.after.index(step)]}
    context, recipe = open_run(machine, recipe)
    for passed in curate(context, recipe):
        missing -= {each.step for each in passed.steps}
        if not missing:
            break
    return passed.left


def _make(
    out: str, settings: Classifier, fill: Callable[[Examples], None], told: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Train a classifier of good examples, and write it with its description and its curves."""
    with _trained(out, settings, fill, (GOOD, BAD)) as (examples, probabilities):
        scores = probabilities[:, examples.names.index(GOOD)]
        found = {"examples": len(scores), "good": int(examples.good.sum()), **measures(examples.good, scores)}
        found |= told or {}
        files.write_bytes(f"{out}.svg", curves_file(examples.good, scores))
    classifier_file.write(out, settings, found)
    return found


def _make_topics(
    out: str, settings: Classifier, fill: Callable[[Examples], None], told: Mapping[str, Any]
) -> dict[str, Any]:
    """Train a classifier of several labels, and write it with its description, and of each label the F1 and with which
    others it is confused."""
    with _trained(out, settings, fill) as (examples, probabilities):
        names = [name.removeprefix(LABEL) for name in examples.names]
        found = {"examples": len(probabilities), **label_measures(examples.labels, probabilities, names), **told}
        files.write_bytes(f"{out}.svg", confusion_file(found))
    classifier_file.write(out, settings, found)
    return found


@contextmanager
def _trained(
    out: str, settings: Classifier, fill: Callable[[Examples], None], wanted: tuple[str, ...] = ()
) -> Iterator[tuple[Ordered, np.ndarray]]:
    """The examples and the probabilities of their labels, float64 (n, labels), of a classifier that is trained on them
    all and written. The probabilities are by models of half of the examples, for the other half."""
    if files.exists(out):
        raise FileExistsError(f"{out} is there already: name another file, or remove it")
    with (
        ordered(settings, fill) as examples,
        tempfile.TemporaryDirectory(prefix=leftovers.scratch_prefix()) as scratch,
    ):
        halves = [files.join(scratch, f"{number}.bin") for number in range(FOLDS)]
        probabilities = cross_fit(examples, settings, halves, wanted)
        train(examples, np.arange(len(probabilities)), settings, out)
        yield examples, probabilities


def labelled(kind: str, patterns: Sequence[str], text: str, label: str) -> Iterator[tuple[str, str]]:
    """The texts of `jsonl` or `parquet` files with their labels, by the columns, or keys, `text` and `label`. Raises
    FileNotFoundError; ValueError for a row without one of them."""
    return ((each, its_label) for each, its_label, _ in _rows(kind, patterns, text, label, None))


def _rows(
    kind: str, patterns: Sequence[str], text: str, label: str, group: str | None
) -> Iterator[tuple[str, str, str]]:
    """As `labelled`, with what each text comes from; "" where that is not said."""
    given = {"text_column": text, "id_column": label, "url_column": group}
    source = _SOURCE.validate_python({"name": "labels", kind: patterns, **given})
    for shard in source.shards():
        for record in records(shard.path, shard.format, shard.columns, _MOST_BYTES):
            if record.problem is not None:
                raise ValueError(f"{shard.path} cannot be learned from: {record.problem[1]}; mend it, or leave it out")
            if not record.record_id:
                raise ValueError(
                    f"{shard.path}, row {record.offset + 1}, has no {label}; name its key by --label-column"
                )
            yield decode(record.payload, detect(record.payload, record.charset, False)), record.record_id, record.url


def _add(examples: Examples, batch: dict[str, list[tuple[str, str]]]) -> None:
    for name, given in batch.items():
        texts, groups = ([row[at] for row in given] for at in (0, 1))
        examples.add(pa.chunked_array([texts], pa.string()), texts, name, pa.chunked_array([groups], pa.string()))
        given.clear()
