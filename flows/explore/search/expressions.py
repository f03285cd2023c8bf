"""Where a regular expression matches in the texts that are kept. No index helps: all of them are read."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.experiments.models.evaluation import trained_model
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.search.phrases import Count, FoundDocument, PhraseMatches
from gristmill.tasks.documents.selection import select_groups
from gristmill.training.evaluate.sample import sample_text

TOP_K = 50


def written(target: str, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """The text, without the prompt. Raises what `trained_model` raises."""
    saved = trained_model(target).saved
    return sample_text(
        saved.load(),
        Path(saved.tokenizer.local()),
        tokens,
        prompt=prompt,
        temperature=temperature,
        top_k=TOP_K,
        seed=seed,
    )


_CONTEXT = 200  # characters on either side of a match that is shown
_COLUMNS = ["id", "source", "url", "file", "offset", "length", "record_id", "text"]


def find_expression(recipe: Recipe, expression: str, n: int, settings: MachineSettings | None = None) -> PhraseMatches:
    """The matches of an expression of RE2 (https://github.com/google/re2/wiki/Syntax) in the curated texts, those of a
    document apart from each other. `n`: how many documents are shown.

    Reads every text, in a time that is linear in its length. Raises ValueError for what is no such expression. Holds
    the texts of a row group for each thread.
    """
    try:
        pc.match_substring_regex(pa.array(["text"]), expression)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{expression!r} is not an expression of RE2: {error}") from None
    corpus = finished(recipe, settings).corpus
    times = documents = 0
    shown: list[FoundDocument] = []
    with ThreadPoolExecutor() as pool:
        work = partial(_in_shard, corpus.places.documents, corpus.places.kept, expression, n)
        for counts, found in pool.map(work, range(len(corpus.sources))):
            times += counts.times
            documents += counts.documents
            shown += found[: n - len(shown)]
    return PhraseMatches(expression, Count(times, documents), Count(), {}, tuple(shown))


def _in_shard(
    documents: Sequence[str], kept: Sequence[str], expression: str, n: int, shard: int
) -> tuple[Count, list[FoundDocument]]:
    times = found = 0
    shown: list[FoundDocument] = []
    for group in select_groups(documents[shard], kept[shard], _COLUMNS):
        counts = pc.count_substring_regex(group["text"], expression).to_numpy()
        times += int(counts.sum())
        matching = np.flatnonzero(counts)
        found += len(matching)
        rows = group.take(pa.array(matching[: n - len(shown)]))
        shown += _shown(rows, counts[matching], expression, shard)
    return Count(times, found), shown


def _shown(rows: pa.Table, counts: np.ndarray, expression: str, shard: int) -> Iterator[FoundDocument]:
    parts = pc.split_pattern_regex(rows["text"], expression, max_splits=1).to_pylist()
    for row, count, (before, after) in zip(rows.to_pylist(), counts.tolist(), parts, strict=False):
        text = row.pop("text")
        yield FoundDocument(
            row["id"],
            True,
            "",
            "",
            count,
            shard,
            None,
            before[-_CONTEXT:],
            text[len(before) : len(text) - len(after)],
            after[:_CONTEXT],
            row,
        )
