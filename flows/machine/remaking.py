"""Finished stages that a user asks to make again, and stages that are reused although other code made them.

Users name a stage by its name (`signatures`), or by the step of the recipe that needs it (`minhash`).
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from gristmill.tasks.engine import code_version
from gristmill.tasks.engine.make import StageResult, start_over
from gristmill.tasks.engine.spec import StageSpec

ALL = "all"
# Stages without the name of a step. The caller passes those of learned filters, which follow from their steps.
STAGES = (
    *(
        "selection",
        "rewrites",
        "rewrites_sample",
        "documents",
        "signals",
        "edited",
        "rules",
        "quality_bucket",
        "takedowns",
    ),
    *("site_files", "site_rights"),
    *("content_duplicates", "url_duplicates", "substring_spans", "signatures", "candidates", "near_duplicates"),
    *("semantic_duplicates", "diversified", "embedding_vectors", "perplexity_bucket", "lost_text"),
    *("decontamination_index", "decontamination_hits", "group_losses", "pairs_of_copies", "search_index", "word_index"),
    *("heldout", "heldout_documents", "evaluation_documents", "evaluation_removal", "evaluation_tokens", "tokenizer"),
    *("tokens", "grouped_tokens", "half_counts", "half_tokens", "mixture", "model", "proxy", "doremi", "task_examples"),
    *("contained_examples", "task_losses", "annotate_sample", "annotate_cut"),
)

_asked: ContextVar[tuple[str, ...]] = ContextVar("remake", default=())


@contextmanager
def remake(names: Iterable[str]) -> Iterator[None]:
    """Runs within the block make the stages with these names again; `all` for all of them. The old stages stay in the
    home. If a new stage has the same contents, later stages are reused.

    >>> with gristmill.remake(["minhash"]):
    ...     gristmill.corpus("recipe.yaml")
    """
    token = _asked.set(tuple(names))
    try:
        yield
    finally:
        _asked.reset(token)


class Remaking:
    """The stages that a run makes again, each once, and stages that it reuses although other code made them. `steps`:
    names of the recipe's steps. `filters`: names of the stages of learned filters.

    Raises ValueError for a name that is neither a step of the recipe nor a stage.
    """

    def __init__(self, home: str, steps: Sequence[str] = (), filters: Iterable[str] = ()) -> None:
        self._home = home
        self._names = set(_asked.get())
        if unknown := sorted(self._names - {ALL, *STAGES, *steps, *filters}):
            raise ValueError(f"--remake {unknown[0]}: the recipe has no such step; it has {', '.join(steps)}")
        self._matched: set[str] = set()
        self._seen: dict[str, StageSpec] = {}
        self._other_code: dict[str, None] = {}
        self._releases: dict[str, dict[str, None]] = {}

    def begin(self, spec: StageSpec) -> None:
        """Give a stage a new folder, before it is looked up, if it is finished and the user asked to make it again."""
        if spec.key in self._seen or spec.at:
            return
        self._seen[spec.key] = spec
        if matched := self._names & {ALL, *_names(spec)}:
            self._matched |= matched
            start_over(self._home, spec)

    def reused(self, stage: StageResult) -> None:
        """Record a reused stage."""
        if stage.of_other_code:
            self._other_code[stage.name] = None
        if release := stage.made_by:
            self._releases.setdefault(release, {})[stage.name] = None

    def report(self, log: logging.Logger | logging.LoggerAdapter) -> None:
        """Log one line for each other release that made reused stages, and one for other code of a checkout."""
        for release, names in self._releases.items():
            log.info("reused from gristmill %s: %s", release, ", ".join(names))
        if self._other_code and code_version.is_editable():
            log.warning(
                "reused, although their code has changed: %s. If outputs changed, raise the version; to make "
                "a stage again: --remake %s",
                ", ".join(self._other_code),
                next(iter(self._other_code)),
            )

    def check(self) -> None:
        """Raise ValueError for a name that is not a stage of the run."""
        if unknown := sorted(self._names - self._matched):
            there = dict.fromkeys(name for spec in self._seen.values() for name in _names(spec))
            raise ValueError(f"--remake {unknown[0]}: the run has no such stage or step; it has {', '.join(there)}")


def _names(spec: StageSpec) -> list[str]:
    return [*dict.fromkeys((*spec.work.steps, *spec.work.versions, spec.name))]
