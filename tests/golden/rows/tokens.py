"""Rows of tokens: tokenizers, token shards, groups, halves, mixtures, their indexes, and exports."""

import json
from typing import Any
from unittest import mock

from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.export import export
from gristmill.flows.stages.heldout import Data
from gristmill.flows.stages.indexes import search_index_spec, trained_texts, word_index_spec
from gristmill.flows.stages.mixture import training_data
from gristmill.flows.stages.tokens import half_counts, half_tokens
from tests.golden.rows.row import BOOKS, EVALUATED, WEB, Row, Settings, placed, recipe
from tests.golden.run import Golden

LENGTH: Settings = {"step": "ccnet", "min_characters": 5}
SMALL: Settings = {"vocab_size": 400, "sample_bytes": 30_000}
MODEL: Settings = {"dim": 16, "layers": 1, "heads": 2, "seq_len": 32}
TRAINING: Settings = {
    "steps": 6,
    "batch": 4,
    "micro_batch": 2,
    "warmup_steps": 1,
    "eval_tokens": 3000,
    "eval_every": 3,
    "checkpoint_every": 6,
    "sample_tokens": 4,
}
COVERED = ("tokenizer", "tokens", "evaluation_tokens", "mixture", "heldout", "heldout_documents")
BY_WEIGHT: Settings = {"weights": {"web": 1, "books": 3}, "heldout_fraction": 0.1}


def data_of(golden: Golden, given: Settings) -> tuple[Recipe, Corpus, Data]:
    """All that training needs of a recipe."""
    loaded, corpus = golden.curated(placed(given, golden))
    return loaded, corpus, training_data(golden.context(), loaded, corpus)


def plain(
    mixture: Settings, tokenizer: Settings = SMALL, steps: tuple[Settings, ...] = (LENGTH,), **rest: Any
) -> Settings:
    given = {"tokenizer": tokenizer, "mixture": mixture, "model": MODEL, "training": TRAINING, **rest}
    return recipe([WEB, BOOKS], steps, **given)


def _row(name: str, given: Settings, *covers: str, slow: bool = False) -> Row:
    return Row(name, covers or COVERED, lambda golden: data_of(golden, given), json.dumps(given), slow)


def _taken(golden: Golden) -> None:
    """A tokenizer that another recipe has trained, as a file."""
    _, _, data = data_of(golden, plain(BY_WEIGHT, {**SMALL, "kind": "byte_bpe"}))
    file = f"{data.tokenizer.folder}/{data.tokenizer.result['tokenizer']['file']}"
    data_of(golden, plain(BY_WEIGHT, {"path": file}))


_BUCKETS: tuple[Settings, ...] = (
    {"step": "gopher_quality", "min_words": 3, "min_stop_words": 0},
    {"step": "quality_bucket", "scores": ["gopher_quality_words"], "buckets": 5},
)
_NEAR: tuple[Settings, ...] = (LENGTH, {"step": "minhash", "bands": 32, "rows": 4, "threshold": 0.5})


def _tokens() -> list[Row]:
    fim: Settings = {"rate": 0.5}
    held = {"heldout_fraction": 0.1}
    return [
        _row("tokens", plain(BY_WEIGHT)),
        _row(
            "tokens-unigram",
            plain(
                {"strategy": "proportional", **held},
                {**SMALL, "kind": "unigram", "vocab_size": 350, "character_coverage": 0.98},
            ),
        ),
        _row(
            "tokens-bytes",
            plain(
                {"strategy": "temperature", "temperature": 2, **held},
                {**SMALL, "kind": "byte_bpe", "symbols": ["<|user|>", "mill"]},
                evaluation={"own": "{fixture}/named.jsonl"},
            ),
        ),
        _row(
            "tokens-middle",
            plain({**BY_WEIGHT, "max_epochs": 1.5}, {**SMALL, "fim": fim}, seed=4),
            "tokens",
            "tokenizer",
            "mixture",
        ),
        Row("tokens-taken", ("tokenizer", "tokens"), _taken, "taken"),
        _row(
            "mixture-unimax",
            plain({"strategy": "unimax", "max_epochs": 2, "without": [], "tokens": {"web": 300}, **held}),
            "mixture",
        ),
        _row("mixture-packed", plain({**BY_WEIGHT, "packing": "best_fit"}), "mixture"),
        _row(
            "mixture-packed-proportional",
            plain({"strategy": "proportional", "packing": "best_fit", **held}, model={**MODEL, "seq_len": 64}),
            "mixture",
        ),
        _row(
            "mixture-phases",
            plain({**BY_WEIGHT, "phases": [{"share": 0.75, "weights": {"web": 1}}, {"share": 0.25}]}),
            "mixture",
        ),
        _row(
            "grouped",
            plain({"by": ["source", "sort"], "weights": {"web/essay": 2, "web": 1, "books": 1}, **held}),
            "grouped_tokens",
            "mixture",
        ),
        _row(
            "grouped-edges",
            plain(
                {
                    "by": [{"column": "count", "edges": [2, 5, 9]}],
                    "strategy": "proportional",
                    "without": [">=9"],
                    **held,
                }
            ),
            "grouped_tokens",
            "mixture",
        ),
        _row(
            "grouped-quantiles",
            plain(
                {
                    "by": ["source", {"column": "quality_bucket", "quantiles": 4}],
                    "strategy": "unimax",
                    "phases": [{"share": 0.5, "order": "ascending"}, {"share": 0.5}],
                    **held,
                },
                steps=_BUCKETS,
            ),
            "grouped_tokens",
            "mixture",
        ),
        _row(
            "grouped-upsampled",
            plain(
                {
                    "by": ["source", {"column": "grade", "quantiles": 5}],
                    "strategy": "proportional",
                    "upsample": {"max_copies": 3, "discard": 0.2},
                    **held,
                }
            ),
            "grouped_tokens",
            "mixture",
        ),
        _row(
            "grouped-expression",
            plain(
                {"by": ["case when grade > 0.5 then 'good' else 'rest' end"], "weights": {"good": 3, "rest": 1}, **held}
            ),
            "grouped_tokens",
            "mixture",
        ),
        _row(
            "grouped-rehydrated",
            plain({**BY_WEIGHT, "rehydrate": {1: 1, 2: 3, 4: 2}}, steps=_NEAR),
            "grouped_tokens",
            "mixture",
        ),
        _row(
            "tokens-taken-down",
            plain({**BY_WEIGHT}, takedowns=["{fixture}/lists/web_hosts.txt"]),
            "tokens",
            "takedowns",
        ),
    ]


def _halves(golden: Golden, first: int, end: int) -> None:
    """The tokens of halves of the hosts."""
    _, _, data = data_of(
        golden,
        recipe(
            [EVALUATED, BOOKS],
            [LENGTH],
            tokenizer=SMALL,
            mixture={"weights": {"evaluated": 1}, "heldout_fraction": 0.05},
            model=MODEL,
            training=TRAINING,
        ),
    )
    train = data.split.train
    half_counts(golden.context(), train, data.tokens, range(first, end))
    for number in range(first, end, 2):
        half_tokens(golden.context(), train, data.tokens, number)


def _searched(golden: Golden, given: Settings) -> None:
    loaded, _, data = data_of(golden, given)
    golden.context().build(search_index_spec(golden.context(), loaded, trained_texts(data)))


def _worded(golden: Golden, given: Settings) -> None:
    loaded, corpus = golden.curated(placed(given, golden))
    golden.context().build(word_index_spec(golden.context(), loaded, corpus))


def _exported(golden: Golden, name: str, given: Settings, steps: list[Settings]) -> None:
    whole = recipe([WEB, BOOKS], steps, export={**given, "to": f"{golden.home}/exports/{name}"})
    loaded, corpus = golden.curated(placed(whole, golden))
    # the card names the release, which must not change the table
    with mock.patch("gristmill.flows.stages.export.version", return_value="0.1.0"):
        export(golden.context(), loaded, corpus)


def _own(name: str, covers: tuple[str, ...], make: Any, *given: Any) -> Row:
    return Row(name, covers, lambda golden: make(golden, *given), json.dumps(given))


def _others() -> list[Row]:
    dropped = plain(
        BY_WEIGHT,
        steps=({"step": "ccnet", "min_characters": 150}, {"step": "content_dedup"}),
        takedowns=["{fixture}/lists/web_hosts.txt"],
    )
    words = recipe([WEB, BOOKS], [{"step": "ccnet", "min_characters": 150}, {"step": "line_dedup"}])
    best = [{"step": "language", "keep": ["en", "unknown"], "min_score": 0.2}, *_NEAR[1:]]
    return [
        _own("halves", ("half_counts", "half_tokens"), _halves, 0, 3),
        _own("halves-later", ("half_counts", "half_tokens"), _halves, 7, 12),
        _own("search", ("search_index",), _searched, plain(BY_WEIGHT)),
        _own("search-dropped", ("search_index",), _searched, dropped),
        _own("words", ("word_index",), _worded, words),
        _own("words-taken-down", ("word_index",), _worded, {**words, "takedowns": ["{fixture}/lists/web_hosts.txt"]}),
        _own("export", ("export",), _exported, "plain", {"format": "parquet"}, [LENGTH]),
        _own(
            "export-lines",
            ("export",),
            _exported,
            "lines",
            {"format": "jsonl", "where": "grade > 0.2 or sort == 'shop'"},
            best,
        ),
        _own(
            "export-chosen", ("export",), _exported, "chosen", {"format": "parquet", "where": "cluster_size > 1"}, best
        ),
    ]


ROWS = (*_tokens(), *_others())
