"""A learned filter: models score documents, and documents are kept by score. Work that all such filters share.

The models are trained on the sources in `reference`, whose documents are kept unscored, or are files that the step
names. Every learned filter has a work module with the same three functions, which get a slice of the settings each:

    train_model(folder, shard, reference, raw, settings, heldout) -> dict   # writes `files`; `training_settings()`
    score_shard(folder, shard, documents, kept, models, settings) -> dict   # writes id, score; `scoring_settings()`
    bounds(settings, scores) -> list[Bound]                                 # by the scored parts; `decision_settings()`

`reference`, `raw`: (documents, selection) parts of the reference sources and of others; `files`: names of the models in
the record of the training; `models`: these, or the named ones, as recorded files; a step that `reads` signals is also
given `signals`, the parts that have them; `scores`: paths of parts. Models are loaded once a
process. A score depends only on a document's id, its text and the models, and a model only on the documents that it
is trained on, in any order and in any shards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import pyarrow as pa
from pydantic import Field

from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.selection import null_columns_shard, select
from gristmill.tasks.documents.step import Bound, CorpusStep, Settings
from gristmill.tasks.engine import own_code


def null_scores_shard(
    folder: str, shard: int, kept: str, signals: tuple[str, ...], groups: tuple[str, ...] = ()
) -> dict:
    """Write `id`, the signals and the groups, null, of a selection's documents: so that every shard has the columns."""
    columns = dict.fromkeys(signals, pa.float64()) | dict.fromkeys(groups, pa.string())
    return null_columns_shard(folder, shard, kept, columns)


def find_bounds(folder: str, number: int, work: str, settings: Settings, scores: Sequence[str]) -> dict:
    """`bounds`: what the module `work` finds by the parts with scores, as mappings; `reasons`: what they rest on, where
    the module has a function `reasons`."""
    module = import_module(work)
    bounds = bounds_by(module, settings, scores)
    reasons = getattr(module, "reasons", None)
    return {"bounds": [asdict(bound) for bound in bounds], **({"reasons": reasons(bounds, scores)} if reasons else {})}


def bounds_by(work: ModuleType, settings: Settings, scores: Sequence[str]) -> Sequence[Bound]:
    """The bounds that the work module of a filter finds. Raises OwnCodeError for what a user's does wrong."""
    return own_code.call(f"filter {work.__name__}", work.bounds, settings, scores, accept=_accepted_bounds)


def _accepted_bounds(result: Any) -> Sequence[Bound]:
    if not isinstance(result, list | tuple):
        raise own_code.Unacceptable(f"returned {own_code.shown(result)}; return a list of Bound")
    for each in result:
        if not isinstance(each, Bound):
            raise own_code.Unacceptable(f"returned a list with {own_code.shown(each)}; return a list of Bound")
    return result


def training_work(module: str) -> Callable[..., dict[str, Any]]:
    """`train_model` of a filter's work module. A user's raises OwnCodeError for what it does wrong."""
    function = import_module(module).train_model
    if not own_code.is_own(function):
        return function
    return own_code.OwnWork(f"filter {module}", function, _accepted_training)


def scoring_work(module: str, scores: tuple[str, ...], groups: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    """`score_shard` of a filter's work module, which writes the columns `id`, `scores` and `groups`. A user's raises
    OwnCodeError for what it does wrong."""
    function = import_module(module).score_shard
    if not own_code.is_own(function):
        return function
    return own_code.OwnWork(f"filter {module}", function, partial(_accepted_scores, scores, groups))


def _accepted_training(result: Any, folder: str, number: int, **_: Any) -> dict[str, Any]:
    names = result.get("files") if isinstance(result, dict) else None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise own_code.Unacceptable(f"returned {own_code.shown(result)}; return a dict with `files`, names of models")
    for name in names:
        if not files.exists(files.join(folder, name)):
            raise own_code.Unacceptable(f"has {name} in `files`, but did not write it to the folder")
    return result


def _accepted_scores(
    scores: tuple[str, ...], groups: tuple[str, ...], result: Any, folder: str, number: int, documents: str, kept: str,
    **_: Any,
) -> dict[str, Any]:  # fmt: skip
    if not isinstance(result, dict):
        raise own_code.Unacceptable(f"returned {own_code.shown(result)}; return a dict of counts, such as `rows`")
    path = layout.part(folder, number)
    if not files.exists(path):
        raise own_code.Unacceptable("has not written layout.part(folder, shard); write `id` and the scores there")
    columns = parquet.columns(path)
    if missing := [name for name in ("id", *scores, *groups) if name not in columns]:
        raise own_code.Unacceptable(f"writes no column {missing[0]}; it writes {', '.join(columns)}")
    table = parquet.read_table(path, ["id", *scores, *groups])
    for name in (*scores, *groups):
        kind = table.schema.field(name).type
        fits = pa.types.is_floating(kind) or pa.types.is_integer(kind) if name in scores else pa.types.is_string(kind)
        if not fits:
            raise own_code.Unacceptable(f"writes {name} as {kind}; write {'numbers' if name in scores else 'strings'}")
    ids = select(documents, kept, ["id"])["id"]
    if len(table) != len(ids):
        raise own_code.Unacceptable(f"writes {len(table):,} rows for {len(ids):,} documents; write one for each")
    if table["id"].to_pylist() != ids.to_pylist():
        raise own_code.Unacceptable("writes other ids than the documents have, or in another order; keep theirs")
    return result


def bounds_of(record: Mapping[str, Any]) -> tuple[Bound, ...]:
    """The bounds that `find_bounds` has recorded."""
    return tuple(Bound(**_with_pairs(bound)) for bound in record["bounds"])


def _with_pairs(bound: Mapping[str, Any]) -> dict[str, Any]:
    return {**bound, "languages": {name: (low, high) for name, (low, high) in bound["languages"].items()}}


class LearnedFilter(CorpusStep):
    """A step that keeps documents by the scores that models give them."""

    reference: tuple[str, ...] = Field(min_length=1, description="Names of the sources that the model is trained on.")

    @property
    def question(self) -> str:
        return "Should a model be trained on it?"

    @property
    def named_models(self) -> tuple[str, ...]:
        """Paths or addresses of the models that it names, instead of training some."""
        return ()

    def raw(self, sources: Sequence[str]) -> tuple[str, ...]:
        """The sources of the recipe that the reference is compared with in training: all others."""
        return tuple(sorted(set(sources) - set(self.reference)))

    @property
    def signal(self) -> str:
        """The name of the column with the scores."""
        return self.signals[0].name

    @property
    def scores(self) -> tuple[str, ...]:
        """The columns that its work module writes."""
        return (self.signal,)

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns of strings that its work module writes beside them: by which the scores are cut apart."""
        return ()

    def training_settings(self) -> Settings:
        """What decides the models, besides the documents."""
        raise NotImplementedError

    def scoring_settings(self) -> Settings:
        """What decides the scores, besides the documents and the models."""
        raise NotImplementedError

    def decision_settings(self) -> Settings:
        """The thresholds, which are the fields named in `decision_fields`."""
        raise NotImplementedError
