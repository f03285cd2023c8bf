"""Heads on the vectors of an embedder: trained on labelled texts, or on labels of documents that a run has embedded."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.experiments.models.classifier import arriving, labelled
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.classifier_plots import curves_file
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.stages.embedding import embedding_vectors
from gristmill.storage import files, parquet
from gristmill.tasks.engine import options
from gristmill.tasks.models.embedding import heads, sentence_embedder
from gristmill.tasks.models.embedding.embedder import Embedder, vectors_of
from gristmill.tasks.models.embedding.embedding import Embedding, described
from gristmill.tasks.models.embedding.heads import Head, train
from gristmill.tasks.models.embedding.sentence_embedder import EmbedderFiles, embedder_files


def from_texts(
    out: str,
    model: str,
    labels: tuple[str, Sequence[str]],
    columns: tuple[str, str],
    good: Sequence[str],
    settings: Embedder,
    penalty: float | None = None,
) -> dict[str, Any]:
    """Train on labelled texts, which the embedder in the folder `model` embeds; returns what was measured. Beside a
    head of good examples go its curves, `<out>.svg`.

    `labels`: `jsonl` or `parquet`, and patterns of files; `columns`: of the texts and of the labels. `good`: the labels
    of good examples, against all others; none: labels are numbers. Equal texts are in one fold. Raises
    FileNotFoundError; ValueError for a row without a text or a label, and for labels that nothing can be learned from.
    """
    _check_free(out)
    given = embedder_files(model, settings.kind)
    embedder = sentence_embedder.load(given, settings)
    rows = [(text, _number(label, good)) for text, label in labelled(*labels, *columns)]
    vectors = np.array([embedder.vector(text) for text, _ in rows]).reshape(len(rows), embedder.dimension)
    return _make(out, rows, vectors, given, settings, good, penalty)


def from_recipe(
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
    given = embedder_files(context.placed(step).model, step.kind)
    wanted = {id_: _number(label, good) for id_, label in labelled(*labels, *columns)}
    corpus = arriving(recipe, step, machine)
    stage = embedding_vectors(context, corpus, step, given)
    parts = [stage.part(i) for i in corpus.places.shards(without=step.reference)]
    ids, vectors = _vectors(parts, wanted)
    rows = [(id_, wanted[id_]) for id_ in ids]
    found = _make(out, rows, vectors, given, step.part(Embedder), good, penalty)
    return {**found, "without_vector": len(wanted) - len(rows)}


def _vectors(parts: Sequence[str], wanted: Mapping[str, float]) -> tuple[list[str], np.ndarray]:
    """The ids and vectors of the documents that are wanted. Holds these, and a row group."""
    names = pa.array(wanted, pa.string())
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    for part in parts:
        for table in parquet.groups(part):
            some = table.filter(pc.is_in(table["id"], names))
            ids += some["id"].to_pylist()
            vectors.append(vectors_of(some))
    if not ids:
        raise ValueError("no label is of a document that the step `embedding` has embedded; name ids by --id-column")
    return ids, np.concatenate(vectors)


def _make(
    out: str,
    rows: Sequence[tuple[str, float]],
    vectors: np.ndarray,
    given: EmbedderFiles,
    settings: Embedder,
    good: Sequence[str],
    penalty: float | None,
) -> dict[str, Any]:
    kind = "logistic" if good else "ridge"
    ids = pa.chunked_array([[each for each, _ in rows]], pa.string())
    labels = np.array([label for _, label in rows], np.float64)
    weight, bias, found, unseen = train(kind, ids, vectors, labels, penalty)
    embedder = described(given.model.digest, given.tokenizer.digest, settings)
    heads.write(out, Head(kind, weight, bias, embedder, found))
    if kind == "logistic":
        files.write_bytes(f"{out}.svg", curves_file(unseen[:, 0] == 1, unseen[:, 1]))
    return {"kind": kind, **found}


def _number(label: str, good: Sequence[str]) -> float:
    if good:
        return float(label in good)
    try:
        return float(label)
    except ValueError:
        raise ValueError(f"the label {label!r} is no number; name the labels of good examples by --good") from None


def _check_free(out: str) -> None:
    if files.exists(out):
        raise FileExistsError(f"{out} is there already: name another file, or remove it")


def table(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """The confusion matrix as rows of text: labels down, what the head makes of them across."""
    names = [str(each) for each in found["labels"]]
    yield ["label", *names]
    for name, row in zip(names, found["confusion"], strict=True):
        yield [name, *(f"{count:,}" for count in row)]
