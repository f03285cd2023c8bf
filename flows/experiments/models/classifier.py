"""Classifiers and heads, trained on labels and named in recipes afterwards.

A classifier is trained on labeled files, or on the sources that a finished recipe's step names. A head scores the
vectors of an embedder; it is trained on labeled texts, or on labels of documents that a run has embedded.
"""

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.run_page.plots import confusion_file, curves_file
from gristmill.flows.stages.corpus import Corpus, held_out
from gristmill.flows.stages.learned_filters import embedding_vectors
from gristmill.storage import files, leftovers, parquet
from gristmill.tasks.documents.step import CorpusStep
from gristmill.tasks.engine import options
from gristmill.tasks.models import classifiers, embedders, heads, quality
from gristmill.tasks.models.classifiers import (
    BAD,
    GOOD,
    Classifier,
    Examples,
    FoldsError,
    Ordered,
    cross_fit,
    label_measures,
    measures,
    ordered,
    train,
)
from gristmill.tasks.models.distillation.held_out import MIN_HOSTS
from gristmill.tasks.models.embedders import Embedder, EmbedderFiles, embedder_files, vectors_of
from gristmill.tasks.models.embedding import Embedding, described
from gristmill.tasks.models.heads import Head
from gristmill.tasks.models.host_intervals import auc_estimate, auc_half_width, roc_auc_of_folds
from gristmill.tasks.models.model_files import LABEL
from gristmill.tasks.models.quality import Quality
from gristmill.tasks.reading.charset import decode, detect
from gristmill.tasks.reading.sources import Source, format_of
from gristmill.tasks.reading.tables import records
from gristmill.tasks.url.canonical import page_host

log = logging.getLogger(__name__)

_SOURCE: TypeAdapter[Source] = TypeAdapter(Source)
_MAX_BYTES = 1 << 30  # of a text
_BATCH = 1000
_SHOWN_LABELS = 10
# Columns that say what a text comes from. Of `url` the host counts: pages of one host are like each other.
GROUPS = ("group", "host", "page", "page_id", "document", "document_id", "doc_id", "url")
# Models of half of a few thousand examples are worse than the one that is written: in ten parts they have nine tenths.
FOLDS = 10


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
    group_option, group = group, group or grouped_by(kind, patterns, text, label)
    good_labels = {*map(_of_json, good)}

    def fill(examples: Examples, by_host: bool) -> None:
        batch: dict[str, list[tuple[str, str]]] = {}
        labels = Counter[str]()
        for each, its_label, its_group in _rows(kind, patterns, text, label, group):
            if by_host:
                its_group = page_host(its_group) or its_group
            if group_option and not its_group:
                raise ValueError(
                    f"a text of {', '.join(patterns)} has no {group_option}; choose another key with --group-column"
                )
            labels[_of_json(its_label)] += 1
            name = of_two[_of_json(its_label) in good_labels] if good else LABEL + "_".join(its_label.split())
            texts = batch.setdefault(name, [])
            texts.append((each, its_group or each))
            if len(texts) == _BATCH:
                _add(examples, batch)
        if good and labels and not labels.keys() & good_labels:
            raise ValueError(_no_good_label(good, labels))
        _add(examples, batch)

    make = _make if good else _make_topics
    pages = partial(fill, by_host=False)
    if group != "url":
        return make(out, settings, pages, {"folds_by": group or text})
    try:
        return make(out, settings, partial(fill, by_host=True), {"folds_by": "host of url"})
    except FoldsError:
        _warn_of_few_hosts()
        by_page = {"folds_by": "url"}
        return _make(out, settings, pages, by_page, _FEW_HOSTS) if good else _make_topics(out, settings, pages, by_page)


def _of_json(label: str) -> str:
    """A label as JSON writes it: Python's spelling of booleans differs."""
    return label.lower() if label in ("True", "False") else label


def _no_good_label(good: Sequence[str], labels: Counter[str]) -> str:
    shown = ", ".join(label for label, _ in labels.most_common(_SHOWN_LABELS))
    more = f" and {len(labels) - _SHOWN_LABELS:,} more" if len(labels) > _SHOWN_LABELS else ""
    return f"no label is {' or '.join(good)}; labels in the files: {shown}{more}. Name one of them with --good"


_FEW_HOSTS = "the examples of a label are of too few hosts, and pages of one host are alike: add examples of more hosts"


def _warn_of_few_hosts() -> None:
    log.warning(
        "the examples of a label are of too few hosts to divide them by host, so pages of one host are in several "
        "parts, and the figures are too high for other hosts: add examples of more hosts"
    )


def grouped_by(kind: str, patterns: Sequence[str], text: str, label: str) -> str | None:
    """The column, or key, that says what a text comes from, of those in GROUPS; None where the first file has none."""
    columns = {"text_column": text, "id_column": label}
    for shard in _SOURCE.validate_python({"name": "labels", kind: patterns, **columns}).shards()[:1]:
        there = format_of(shard.format).column_names(shard.path, shard.columns)
        return next((name for name in GROUPS if name in there and name not in (text, label)), None)
    return None


def from_recipe(out: str, name: str, machine: MachineSettings | None = None) -> dict[str, Any]:
    """Train on the documents that a recipe's step `quality` learns from, with its settings; returns the counts and
    measures. The steps before it are finished. Raises NotFinishedError; ValueError for a recipe without such a step,
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
    try:
        return _make(out, settings, quality.sample(*parts, settings, heldout, by_host=True), {"folds_by": "host"})
    except FoldsError:
        _warn_of_few_hosts()
        return _make(out, settings, quality.sample(*parts, settings, heldout), {"folds_by": "document"}, _FEW_HOSTS)


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
    out: str,
    settings: Classifier,
    fill: Callable[[Examples], None],
    told: Mapping[str, Any] | None = None,
    no_interval: str = "",
) -> dict[str, Any]:
    """Train a classifier of good examples, and write it with its description and its curves. `no_interval`: why its
    measures have no interval."""
    with _trained(out, settings, fill, (GOOD, BAD)) as (examples, probabilities):
        scores = probabilities[:, examples.names.index(GOOD)]
        figures = {"examples": len(scores), "good": int(examples.good.sum()), **measures(examples.good, scores)}
        figures |= _separation(examples, scores, no_interval)
        figures |= told or {}
        files.write_bytes(f"{out}.svg", curves_file(examples.good, scores))
    classifiers.write(out, settings, figures)
    return figures


def _separation(examples: Ordered, scores: np.ndarray, no_interval: str) -> dict[str, Any]:
    """The area under the ROC curve within folds, with its interval, and that of the length of texts, longer or shorter.
    `above_length`: how much larger the first is, at the lower end of the interval. Without an interval where a label
    has fewer than MIN_HOSTS groups, which are the independent examples, or where `no_interval` is the reason."""
    good, folds, groups = examples.good, examples.folds, examples.groups
    area, deviations = roc_auc_of_folds(good, scores, folds)
    lengths = examples.lengths.astype(np.float64)
    of_length, others = roc_auc_of_folds(good, lengths, folds)
    if of_length < 0.5:
        of_length, others = 1 - of_length, -others
    counts = [len(np.unique(groups[kind])) for kind in (good, ~good)]
    if min(counts) < MIN_HOSTS and not no_interval:
        no_interval = (
            f"the good examples are of {counts[0]:,} origins and the others of {counts[1]:,}, and {MIN_HOSTS} are "
            "needed of each: add examples of others"
        )
    if no_interval:
        return {"roc_auc": area, "length_roc_auc": of_length, "no_interval": no_interval}
    interval = auc_estimate(area, deviations, good, groups)
    above = area - of_length - auc_half_width(deviations - others, good, groups)
    ends = {"roc_auc_low": interval.low, "roc_auc_high": interval.high}
    return {"roc_auc": area, **ends, "length_roc_auc": of_length, "above_length": above}


def _make_topics(
    out: str, settings: Classifier, fill: Callable[[Examples], None], told: Mapping[str, Any]
) -> dict[str, Any]:
    """Train a classifier of several labels, and write it with its description, and of each label the F1 and with which
    others it is confused."""
    with _trained(out, settings, fill) as (examples, probabilities):
        names = [name.removeprefix(LABEL) for name in examples.names]
        figures = {"examples": len(probabilities), **label_measures(examples.labels, probabilities, names), **told}
        files.write_bytes(f"{out}.svg", confusion_file(figures))
    classifiers.write(out, settings, figures)
    return figures


@contextmanager
def _trained(
    out: str, settings: Classifier, fill: Callable[[Examples], None], wanted: tuple[str, ...] = ()
) -> Iterator[tuple[Ordered, np.ndarray]]:
    """The examples and the probabilities of their labels, float64 (n, labels), of a classifier that is trained on them
    all and written. The probabilities are by models of nine tenths of the examples, for the tenth that is left."""
    if files.exists(out):
        raise FileExistsError(f"{out} already exists: choose another file, or remove it")
    with (
        ordered(settings, fill, FOLDS) as examples,
        tempfile.TemporaryDirectory(prefix=leftovers.scratch_prefix()) as scratch,
    ):
        parts = [files.join(scratch, f"{number}.bin") for number in range(FOLDS)]
        probabilities = cross_fit(examples, settings, parts, wanted)
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
    columns = {"text_column": text, "id_column": label, "url_column": group}
    source = _SOURCE.validate_python({"name": "labels", kind: patterns, **columns})
    for shard in source.shards():
        for record in records(shard.path, shard.format, shard.columns, _MAX_BYTES):
            if record.problem is not None:
                raise ValueError(
                    f"{shard.path} cannot be used for training: {record.problem[1]}; fix it, or leave it out"
                )
            if not record.record_id:
                raise ValueError(
                    f"{shard.path}, row {record.offset + 1}, has no {label}; set its key with --label-column"
                )
            yield decode(record.payload, detect(record.payload, record.charset, False)), record.record_id, record.url


def _add(examples: Examples, batch: dict[str, list[tuple[str, str]]]) -> None:
    for name, rows in batch.items():
        texts, groups = ([row[field] for row in rows] for field in (0, 1))
        examples.add(pa.chunked_array([texts], pa.string()), texts, name, pa.chunked_array([groups], pa.string()))
        rows.clear()


def head_from_texts(
    out: str,
    model: str,
    labels: tuple[str, Sequence[str]],
    columns: tuple[str, str],
    good: Sequence[str],
    settings: Embedder,
    penalty: float | None = None,
) -> dict[str, Any]:
    """Train on labeled texts, which the embedder in the folder `model` embeds; returns what was measured. Beside a
    head of good examples go its curves, `<out>.svg`.

    `labels`: `jsonl` or `parquet`, and patterns of files; `columns`: of the texts and of the labels. `good`: the labels
    of good examples, against all others; none: labels are numbers. Equal texts are in one fold. Raises
    FileNotFoundError; ValueError for a row without a text or a label, and for labels that nothing can be learned from.
    """
    _check_free(out)
    model_files = embedder_files(model, settings.kind)
    embedder = embedders.load(model_files, settings)
    rows = [(text, _number(label, good)) for text, label in labelled(*labels, *columns)]
    vectors = np.array([embedder.vector(text) for text, _ in rows]).reshape(len(rows), embedder.dimension)
    return _make_head(out, rows, vectors, model_files, settings, good, penalty)


def head_from_recipe(
    out: str,
    name: str,
    labels: tuple[str, Sequence[str]],
    columns: tuple[str, str],
    good: Sequence[str],
    penalty: float | None = None,
    machine: MachineSettings | None = None,
) -> dict[str, Any]:
    """Train on labels of documents, whose vectors the recipe's step `embedding` has made; as `from_texts`, but that
    `columns` names that of the documents' ids. Labels of documents that the step did not embed are passed over, and
    counted as `without_vector`. Raises NotFinishedError."""
    _check_free(out)
    recipe = load(name)
    machine = machine or MachineSettings()
    step = next((step for step in recipe.steps if isinstance(step, Embedding)), None)
    if step is None:
        raise ValueError(f"the recipe {recipe.name} has no step `embedding`; add one, or give --model")
    options.configure(job_options(machine))
    context, recipe = open_run(machine, recipe)
    model_files = embedder_files(context.placed(step).model, step.kind)
    wanted = {id_: _number(label, good) for id_, label in labelled(*labels, *columns)}
    corpus = arriving(recipe, step, machine)
    stage = embedding_vectors(context, corpus, step, model_files)
    parts = [stage.part(i) for i in corpus.places.shards(without=step.reference)]
    ids, vectors = _vectors(parts, wanted)
    rows = [(id_, wanted[id_]) for id_ in ids]
    figures = _make_head(out, rows, vectors, model_files, step.part(Embedder), good, penalty)
    return {**figures, "without_vector": len(wanted) - len(rows)}


def _vectors(parts: Sequence[str], wanted: Mapping[str, float]) -> tuple[list[str], np.ndarray]:
    """The ids and vectors of the documents that are wanted. Holds these, and a row group."""
    names = pa.array(wanted, pa.string())
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    for part in parts:
        for confusion_rows in parquet.groups(part):
            some = confusion_rows.filter(pc.is_in(confusion_rows["id"], names))
            ids += some["id"].to_pylist()
            vectors.append(vectors_of(some))
    if not ids:
        raise ValueError("no label belongs to a document with an embedding; set the ids' key with --id-column")
    return ids, np.concatenate(vectors)


def _make_head(
    out: str,
    rows: Sequence[tuple[str, float]],
    vectors: np.ndarray,
    model_files: EmbedderFiles,
    settings: Embedder,
    good: Sequence[str],
    penalty: float | None,
) -> dict[str, Any]:
    kind = "logistic" if good else "ridge"
    ids = pa.chunked_array([[each for each, _ in rows]], pa.string())
    labels = np.array([label for _, label in rows], np.float64)
    weight, bias, figures, unseen = heads.train(kind, ids, vectors, labels, penalty)
    embedder = described(model_files.model.digest, model_files.tokenizer.digest, settings)
    heads.write(out, Head(kind, weight, bias, embedder, figures))
    if kind == "logistic":
        files.write_bytes(f"{out}.svg", curves_file(unseen[:, 0] == 1, unseen[:, 1]))
    return {"kind": kind, **figures}


def _number(label: str, good: Sequence[str]) -> float:
    if good:
        return float(_of_json(label) in {*map(_of_json, good)})
    try:
        return float(label)
    except ValueError:
        raise ValueError(f"the label {label!r} is not a number; list the labels of good examples with --good") from None


def _check_free(out: str) -> None:
    if files.exists(out):
        raise FileExistsError(f"{out} already exists: choose another file, or remove it")


def confusion_rows(figures: Mapping[str, Any]) -> Iterator[list[str]]:
    """The confusion matrix as rows of text: labels down, what the head makes of them across."""
    names = [str(each) for each in figures["labels"]]
    yield ["label", *names]
    for name, row in zip(names, figures["confusion"], strict=True):
        yield [name, *(f"{count:,}" for count in row)]
