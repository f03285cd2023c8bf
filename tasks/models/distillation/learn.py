"""The model of the step `distill`: how it is trained and measured, the scores that it gives, and the cut by them.

It learns from annotated documents of all shards, which are sampled by a keyed hash. The documents of some hosts are
held out to measure it. Memory does not grow with the corpus: the jobs of shards write their samples, and the job that
trains reads these. The held-out annotations are also in the parts with scores, so that another cut can be replayed over
a finished run.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import Heldout, gather, select, uniform
from gristmill.tasks.documents.step import Bound
from gristmill.tasks.models import classifiers, heads
from gristmill.tasks.models.classifiers import BAD, GOOD, Classifier, Examples, line, ordered, probabilities
from gristmill.tasks.models.distillation.held_out import (
    CutError,
    choose,
    class_measures,
    grade_measures,
    grounds,
    reliability,
)
from gristmill.tasks.models.distillation.step import HELD_OUT, HOST, SCORE, WEIGHT, Learning, Thresholds, column_problem
from gristmill.tasks.models.embedders import vectors_of
from gristmill.tasks.models.host_intervals import group_numbers
from gristmill.tasks.models.percentiles import percentiles
from gristmill.tasks.url.canonical import host_columns, known_hosts

HELD_OUT_FILE = "held_out.parquet"
MODELS = {"fasttext": "model.bin", "head": "head.safetensors"}
_GATHERED = "gathered"


def gathered_folder(folder: str) -> str:
    """Where the annotated documents are while the stage is made."""
    return files.join(folder, _GATHERED)


def _annotated(
    documents: str, kept: str, signals: Sequence[str], of: str, weight: str | None, heldout: Heldout
) -> tuple[pa.Table, str]:
    """`id`, `label` and `weight`, float64, of the documents of a selection that have an annotation and that training
    may see; and what the annotations are: `bool`, `number`, or "" where the shard has none."""
    none = pa.array([], pa.float64())
    empty = pa.table({"id": pa.array([], pa.string()), "label": none, "weight": none})
    there = {name for part in signals for name in parquet.columns(part)}
    if of not in there:  # a source without the column
        return empty, ""
    table = gather(tuple(signals), kept, [of, *([weight] if weight in there else [])])
    table = table.filter(pc.is_valid(table[of]))
    if not len(table):
        return empty, ""
    kind = table[of].type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ValueError(f"the column {of} has values of the type {kind}; annotate with numbers or booleans")
    labels = table[of].cast(pa.float64())
    weights = _weights(table, of, weight)
    table = pa.table({"id": table["id"], "label": labels, "weight": weights}).filter(pc.is_finite(labels))
    sources = select(documents, kept, ["source"])
    there = heldout.without(sources.filter(pc.is_in(sources["id"], table["id"].combine_chunks())))
    table = table.filter(pc.is_in(table["id"], there["id"].combine_chunks()))
    return table, "bool" if pa.types.is_boolean(kind) else "number"


def _weights(table: pa.Table, of: str, weight: str | None) -> pa.ChunkedArray:
    """The weights of annotated documents. Raises ValueError for a document that has none above 0."""
    if weight is None:
        return pa.chunked_array([np.ones(len(table))])
    weights = table[weight].cast(pa.float64()) if weight in table.column_names else pa.nulls(len(table), pa.float64())
    missing = len(table) - (pc.sum(pc.and_(pc.is_finite(weights), pc.greater(weights, 0))).as_py() or 0)
    if missing:
        raise ValueError(
            f"{missing:,} documents have an annotation in {of} and no weight above 0 in {weight}. Set `weight` to the "
            "column of the step that annotates, or remove it"
        )
    return weights


def count_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    signals: Sequence[str],
    of: str,
    heldout: Heldout,
    weight: str | None = None,
) -> dict:
    """How many annotated documents a shard has, and of what kind the annotations are."""
    table, kind = _annotated(documents, kept, signals, of, weight, heldout)
    return {"annotated": len(table), "kind": kind if len(table) else ""}


def one_kind(counted: Iterable[Mapping[str, Any]], settings: Learning) -> tuple[int, str]:
    """How many annotated documents all shards have, and of what kind. Raises ValueError for none, for several kinds,
    and for one that does not fit the settings."""
    total, kinds = 0, set[str]()
    for each in counted:
        total += each["annotated"]
        kinds |= {each["kind"]} - {""}
    if not total:
        raise ValueError(
            f"no document has an annotation in the column {settings.of} at this step: annotate documents, or list the "
            "column in `columns` of a source"
        )
    if len(kinds) > 1:
        raise ValueError(f"the column {settings.of} has booleans in one source and numbers in another; use one of them")
    [kind] = kinds
    if problem := column_problem(settings, kind):
        raise ValueError(problem)
    return total, kind


def gather_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    signals: Sequence[str],
    settings: Learning,
    heldout: Heldout,
    share: float,
    vectors: str = "",
) -> dict:
    """Write `id`, `label`, `weight`, `host`, `length` (code points) and the line that fastText reads, or the `vector`,
    of a share of the annotated documents, drawn by a keyed hash of the id. A document without a host is its own.

    Holds the texts of one shard.
    """
    table, _ = _annotated(documents, kept, signals, settings.of, settings.weight, heldout)
    table = table.filter(pa.array(uniform(table["id"], settings.seed, "distill") < share))
    columns = list(dict.fromkeys(["source", "text", *host_columns(documents)]))
    some = select(documents, kept, columns)
    some = some.filter(pc.is_in(some["id"], table["id"].combine_chunks()))
    table = table.take(pc.index_in(some["id"], table["id"].combine_chunks()))
    own = pc.binary_join_element_wise(some["source"].cast(pa.string()), some["id"], "\n")
    gathered = {
        "id": table["id"],
        "label": table["label"],
        "weight": table["weight"],
        "host": pc.coalesce(known_hosts(some), own),
    }
    gathered["length"] = pc.utf8_length(some["text"])
    if settings.kind == "fasttext":
        texts, how = some["text"].to_pylist(), settings.fasttext
        gathered["line"] = pa.array([line(text, how.characters, how.lowercase) for text in texts], pa.string())
    else:
        of_all = parquet.read_table(vectors)
        gathered["vector"] = of_all["vector"].take(pc.index_in(some["id"], of_all["id"].combine_chunks()))
    parquet.write_table(layout.part(gathered_folder(folder), shard), pa.table(gathered))
    return {"rows": len(table)}


def train_model(
    folder: str, number: int, gathered: Sequence[str], settings: Learning, kind: str, embedder: Mapping[str, Any]
) -> dict:
    """Train on the gathered annotations of some hosts, and measure the model on the annotations of the others. Writes
    the model, and `held_out.parquet`: `id`, `host`, `label`, `length`, `score`, with the setting also `weight`, and
    whether the annotation is `good`, null for numbers without `positive`.

    Holds the vectors, or a model of fastText, and a line of each part. Raises ValueError for annotations of which
    nothing can be learned.
    """
    names = ["id", "label", "weight", "host", "length", *(["vector"] if settings.kind == "head" else [])]
    table = pa.concat_tables(parquet.read_table(part, names) for part in gathered).sort_by("id")
    held = uniform(table["host"], settings.seed, "distill-held-out") < settings.held_out
    threshold = 1.0 if kind == "bool" else settings.positive
    seen, unseen = table.filter(pa.array(~held)), table.filter(pa.array(held))
    _check(seen, unseen, threshold, kind, settings)
    if settings.kind == "fasttext":
        assert threshold is not None, "`column_problem` asks for `positive`"
        scores, trained = _fit_fasttext(folder, gathered, settings, threshold, seen, unseen)
    else:
        scores, trained = _fit_head(folder, settings, kind, embedder, seen, unseen)
    own = ["id", "host", "label", "length", *(["weight"] if settings.weight is not None else [])]
    scored = unseen.select(own).append_column("score", pa.array(scores))
    goods = pa.nulls(len(scored), pa.float64()) if threshold is None else _good(scored, threshold).cast(pa.float64())
    parquet.write_table(files.join(folder, HELD_OUT_FILE), scored.append_column("good", goods))
    return {
        "files": [MODELS[settings.kind], HELD_OUT_FILE],
        "annotations": len(table),
        "training": len(seen),
        "training_hosts": pc.count_distinct(seen["host"]).as_py(),
        **trained,
        **_measured(scored, scores, threshold, kind, settings),
    }


def _good(table: pa.Table, threshold: float) -> pa.ChunkedArray:
    return pc.greater_equal(table["label"], threshold)


def _check(seen: pa.Table, unseen: pa.Table, threshold: float | None, kind: str, settings: Learning) -> None:
    column, both = settings.of, pa.concat_tables([seen, unseen])
    if not len(seen) or not len(unseen):
        hosts = pc.count_distinct(both["host"]).as_py()
        if hosts == 1:
            raise ValueError(
                f"all {len(both):,} annotations in {column} are of one host, and other hosts are needed to measure the "
                "model: annotate documents of more hosts"
            )
        use = "hold out" if len(seen) else "learn from"
        raise ValueError(
            f"the {len(both):,} annotations in {column} are of {hosts:,} hosts, which leaves none to {use}: annotate "
            "documents of more hosts, or change `held_out`"
        )
    labels = seen["label"] if threshold is None else _good(seen, threshold)
    if pc.count_distinct(labels).as_py() > 1:
        return
    value = seen["label"][0].as_py()
    alike = f"{'true' if value else 'false'}" if kind == "bool" else f"{value:g}"
    if kind == "bool" or pc.count_distinct(both["label"]).as_py() == 1:
        raise ValueError(
            f"all {len(seen):,} documents to learn from are annotated {alike} in {column}, so a model learns nothing: "
            "annotate documents of both kinds"
        )
    kinds = "annotated alike" if threshold is None else "good" if labels[0].as_py() else "below `positive`"
    raise ValueError(
        f"all {len(seen):,} documents to learn from are {kinds} in {column}, so a model learns nothing: annotate "
        "documents of both kinds" + ("" if threshold is None else ", or change `positive`")
    )


def _fit_fasttext(
    folder: str, gathered: Sequence[str], settings: Learning, threshold: float, seen: pa.Table, unseen: pa.Table
) -> tuple[np.ndarray, dict[str, Any]]:
    """Write the classifier. Returns the scores of the unseen documents, and how it was trained."""
    own = Classifier(seed=settings.seed, **settings.fasttext.model_dump())
    wanted = seen["id"].combine_chunks()

    def fill(examples: Examples) -> None:
        for part in gathered:
            for some in parquet.groups(part, ["id", "label", "line"]):
                some = some.filter(pc.is_in(some["id"], wanted))
                for good, name in ((True, GOOD), (False, BAD)):
                    own_kind = some.filter(pc.equal(_good(some, threshold), good))
                    examples.add(own_kind["id"], own_kind["line"].to_pylist(), name)

    path = files.join(folder, MODELS["fasttext"])
    with ordered(own, fill) as examples:
        epochs = classifiers.train(examples, np.arange(len(examples.labels)), own, path)
    model = classifiers.load(RecordedFile(path, files.checksum(path)))
    by_id: dict[str, float] = {}
    for part in gathered:
        for some in parquet.groups(part, ["id", "line"]):
            some = some.filter(pc.is_in(some["id"], unseen["id"].combine_chunks()))
            by_id |= zip(some["id"].to_pylist(), probabilities(model, some["line"].to_pylist(), GOOD), strict=True)
    return np.array([by_id[id_] for id_ in unseen["id"].to_pylist()]), {"model": "fasttext", "epochs": epochs}


def _fit_head(
    folder: str, settings: Learning, kind: str, embedder: Mapping[str, Any], seen: pa.Table, unseen: pa.Table
) -> tuple[np.ndarray, dict[str, Any]]:
    """Write the head. Returns as `_fit_fasttext`."""
    form = "logistic" if kind == "bool" else "ridge"
    # folds by host: the penalty is to be the best for documents of other hosts
    labels = seen["label"].to_numpy()
    weight, bias, figures, _ = heads.train(form, seen["host"], vectors_of(seen), labels, settings.penalty)
    head = heads.Head(form, weight, bias, embedder, figures)
    heads.write(files.join(folder, MODELS["head"]), head)
    return heads.scores(head, vectors_of(unseen)), {"model": form, "penalty": figures["penalty"]}


def _measured(
    scored: pa.Table, scores: np.ndarray, threshold: float | None, kind: str, settings: Learning
) -> dict[str, Any]:
    labels, groups = scored["label"].to_numpy(), group_numbers(scored["host"].to_numpy())
    weights = scored["weight"].to_numpy() if settings.weight is not None else None
    graded = settings.kind == "head" and kind == "number"
    figures: dict[str, Any] = {"held_out": len(scored), "held_out_hosts": len(np.unique(groups))}
    if threshold is not None:
        good, lengths = labels >= threshold, scored["length"].to_numpy().astype(np.float64)
        figures |= {"good": int(good.sum())}
        figures |= class_measures(good, scores, groups, lengths, threshold if graded else 0.5, weights)
        labels = labels if graded else good.astype(np.float64)
    figures |= grade_measures(labels, scores, weights) if graded else {}
    return figures | reliability(labels, scores, groups, weights)


@lru_cache(1)
def _held_out(file: RecordedFile) -> pa.Table:
    names = parquet.columns(file.local())
    return parquet.read_table(file.local(), ["id", "host", "good", *(["weight"] if "weight" in names else [])])


def score_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    models: Sequence[RecordedFile],
    settings: Learning,
    vectors: str = "",
) -> dict:
    """Write `id`, the score of a selection's documents, and of those that were held out whether they are good, their
    host, and with the setting their weight. `models`: the model and the held-out annotations; `vectors`: the part with
    the vectors, for a head."""
    model, annotated = models
    if settings.kind == "fasttext":
        table, how = select(documents, kept, ["text"]), settings.fasttext
        lines = [line(text, how.characters, how.lowercase) for text in table["text"].to_pylist()]
        scores = probabilities(classifiers.load(model), lines, GOOD)
    else:
        table = parquet.read_table(vectors)
        scores = heads.scores(heads.load(model), vectors_of(table))
    held = _held_out(annotated)
    places = pc.index_in(table["id"], held["id"].combine_chunks())
    columns = {SCORE: scores, HELD_OUT: held["good"].take(places), HOST: held["host"].take(places)}
    if settings.weight is not None:
        columns[WEIGHT] = held["weight"].take(places)
    parquet.write_table(layout.part(folder, shard), pa.table({"id": table["id"], **columns}))
    return {"rows": len(table)}


def bounds(settings: Thresholds, scores: Sequence[str]) -> list[Bound]:
    """At least `min_score`; or at least the score that `keep_top` percent of all documents with a score have; or at
    least what the rule of `cut` chooses on the held-out annotations. `scores`: the parts with scores. Raises CutError.
    """
    if settings.cut is not None:
        return [Bound(settings.cut.name, SCORE, low=choose(settings.cut, *_annotations(scores)))]
    if settings.keep_top is not None:
        cuts = percentiles(scores, SCORE, [100 - settings.keep_top])
        return [Bound("keep_top", SCORE, low=low) for [low] in cuts.values()]
    return [] if settings.min_score is None else [Bound("min_score", SCORE, low=settings.min_score)]


def check_cut(settings: Thresholds, held: RecordedFile) -> None:
    """Raise CutError where the rule of `cut` chooses nothing on the held-out annotations of the model."""
    if settings.cut is None:
        return
    table = _held_out_scores(held)
    if table["good"].null_count:
        raise CutError("`cut` needs good documents, but the annotations are numbers; set `positive`, their threshold")
    numbers = group_numbers(table["host"].to_numpy())
    weights = table["weight"].to_numpy() if "weight" in table.column_names else None
    choose(settings.cut, table["good"].to_numpy() == 1, table["score"].to_numpy(), numbers, weights)


def _held_out_scores(held: RecordedFile) -> pa.Table:
    path = held.local()
    has_weight = "weight" in parquet.columns(path)
    return parquet.read_table(path, ["host", "score", "good", *(["weight"] if has_weight else [])])


def reasons(found_bounds: Sequence[Bound], scores: Sequence[str]) -> dict[str, Any]:
    """What the held-out annotations say of the bounds that `bounds` has found; empty without a bound, or annotations of
    good and other documents."""
    good, of_good, groups, weights = _annotations(scores)
    if not found_bounds or not len(good):
        return {}
    assert found_bounds[0].low is not None
    return grounds(good, of_good, groups, found_bounds[0].low, weights)


def _annotations(scores: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """The held-out annotations by id: whether they are good, their scores, numbers of their hosts, and their
    weights, None if they have none."""
    names = ["id", SCORE, HELD_OUT, HOST]
    if scores and WEIGHT in parquet.columns(scores[0]):
        names.append(WEIGHT)
    tables = [group.filter(pc.is_valid(group[HELD_OUT])) for part in scores for group in parquet.groups(part, names)]
    if not tables or not sum(map(len, tables)):
        none = np.empty(0)
        return none.astype(bool), none, none.astype(np.int64), None
    table = pa.concat_tables(tables).sort_by("id")
    weights = table[WEIGHT].to_numpy() if WEIGHT in names else None
    return table[HELD_OUT].to_numpy() == 1, table[SCORE].to_numpy(), group_numbers(table[HOST].to_numpy()), weights
