"""Rows on what a careless change gets wrong: see `tests.golden.made.careless`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gristmill.flows.stages.tokens import half_counts, half_tokens
from tests.golden.made.careless import write_careless
from tests.golden.rows.evaluation import _split
from tests.golden.rows.near import _looked_at
from tests.golden.rows.row import ANY, BOOKS, Row, Settings, curated, recipe
from tests.golden.rows.tokens import MODEL, TRAINING, _worded, data_of
from tests.golden.run import Golden


def _lines(name: str, **more: Any) -> Settings:
    return {"name": name, "jsonl": [f"{{fixture}}/careless/{name}.jsonl"], "url_column": "url", **more}


MARKED, HOSTS, SCRIPTS, LONG, TIED, NUMBERS = map(_lines, ("marked", "hosts", "scripts", "long", "tied", "numbers"))
SHORT: Settings = {"step": "ccnet", "min_characters": 1}
SMALL: Settings = {"dimensions": 4, "buckets": 500}


def _row(name: str, covers: tuple[str, ...], make: Callable[..., Any], *given: Any) -> Row:
    def run(golden: Golden) -> None:
        write_careless(Path(golden.path("careless")))
        make(golden, *given)

    return Row(f"careless-{name}", covers, run, json.dumps(given, default=str))


def _curated(golden: Golden, sources: list[Settings], steps: list[Settings], **rest: Any) -> None:
    curated(golden, recipe(sources, steps, **rest))


def _taken(golden: Golden) -> None:
    curated(golden, recipe([HOSTS], [SHORT], takedowns=["{fixture}/careless/taken.txt"]))
    url = {"step": "url", "takedowns": ["{fixture}/careless/taken.txt"], "blocklists": ["{fixture}/careless/taken.txt"]}
    for subdomains in (True, False):
        curated(golden, recipe([HOSTS], [{**url, "subdomains": subdomains}, {"step": "url_dedup"}]))


def _tokenized(golden: Golden, vocabulary: int, kind: str) -> None:
    tokenizer = {"vocab_size": vocabulary, "sample_bytes": 3_000, "kind": kind}
    mixture = {"strategy": "proportional", "heldout_fraction": 0.2, "max_epochs": 50}
    rest: Settings = {"tokenizer": tokenizer, "mixture": mixture, "model": MODEL, "training": TRAINING}
    data_of(golden, recipe([SCRIPTS, BOOKS], [SHORT], **rest))


def _cut(golden: Golden) -> None:
    trained: Settings = {"step": "perplexity", "reference": ["books"], "order": 2, "min_documents": 2}
    for head in (5, 20, 40, 60):
        more: Settings = {"head_percentile": head, "middle_percentile": head + 25, "keep_buckets": ["head", "middle"]}
        curated(golden, recipe([TIED, BOOKS], [{**trained, **more}]))


def _halved(golden: Golden) -> None:
    rest: Settings = {"tokenizer": {"vocab_size": 400, "sample_bytes": 4_000}, "model": MODEL, "training": TRAINING}
    mixture = {"weights": {"hosted": 1}, "heldout_fraction": 0.1}
    _, _, data = data_of(golden, recipe([HOSTED], [SHORT], mixture=mixture, **rest))
    half_counts(golden.context(), data.split.train, data.tokens, range(3))
    half_tokens(golden.context(), data.split.train, data.tokens, 1)


HOSTED = _lines("hosted", columns=["host"])
LOSING = [_lines(f"loses_{name}") for name in "abcd"]
TABLES: Settings = {"name": "tables", "pages": ["{fixture}/careless/pages/*.html"]}
STATIC: Settings = {"step": "embedding", "kind": "static", "model": "{fixture}/careless/static"}
BAD: Settings = {"step": "bad_words", "lists": {"en": "{fixture}/careless/bad.txt"}}
HELD: Settings = {"mixture": {"weights": {"hosts": 1}, "heldout_fraction": 0.3}, "training": {"eval_tokens": 2_000}}
NAMED: Settings = {"evaluation": {"own": "{fixture}/careless/named.jsonl"}}
IN_LONG: Settings = {"mixture": {"weights": {"long": 1}, "heldout_fraction": 0.2}, **NAMED}
SCRIPTED: Settings = {"name": "scripts", "code": ["{fixture}/careless/scripts"]}

ROWS = (
    _row(
        "topic",
        ("topic",),
        _curated,
        [MARKED],
        [{"step": "topic", "model": "{fixture}/models/topics.bin"}, {"step": "where", "keep": "topic = 'mills'"}],
    ),
    _row(
        "quality",
        ("quality",),
        _curated,
        [MARKED, BOOKS],
        [{"step": "quality", "reference": ["books"], "epochs": 5, **SMALL}],
    ),
    _row("pii", ("pii",), _curated, [MARKED], [{"step": "pii"}]),
    _row("lines", ("refinedweb_lines",), _curated, [MARKED], [{"step": "refinedweb_lines"}]),
    _row("static", ("embedding",), _curated, [MARKED], [{**STATIC, "max_tokens": 6}]),
    _row("static-few", ("embedding",), _curated, [MARKED], [{**STATIC, "max_tokens": 4, "normalize": False}]),
    _row("bad", ("bad_words",), _curated, [MARKED], [ANY, BAD]),
    _row("bad-some", ("bad_words",), _curated, [MARKED], [ANY, {**BAD, "max_word_share": 0.2, "max_hits": 2}]),
    _row("taken", ("takedowns", "url", "url_dedup"), _taken),
    _row("hosts", ("heldout", "heldout_documents"), _split, [HOSTS], [SHORT], HELD),
    _row("long", ("evaluation_removal", "heldout", "evaluation_documents"), _split, [LONG], [SHORT], IN_LONG),
    _row(
        "losses",
        ("group_losses",),
        _looked_at,
        LOSING,
        [{"step": "ccnet", "min_characters": 40}],
        {"least": 10, "by": ["source"]},
    ),
    _row("words", ("word_index",), _worded, recipe([SCRIPTS], [{"step": "ccnet", "min_characters": 60}])),
    _row("tokenizer", ("tokenizer", "tokens"), _tokenized, 420, "unigram"),
    _row("tokenizer-bytes", ("tokenizer", "tokens"), _tokenized, 320, "byte_bpe"),
    _row("numbers", ("host_lines",), _curated, [NUMBERS], [SHORT, {"step": "host_lines"}]),
    _row("halves", ("half_counts", "half_tokens"), _halved),
    _row("cuts", ("perplexity", "perplexity_bucket", "perplexity_cut"), _cut),
    _row("tables", ("extract",), _curated, [TABLES], [{"step": "extract", "format": "markdown"}]),
    _row("interpreters", ("code_language",), _curated, [SCRIPTED], [{"step": "code_language"}, {"step": "code"}]),
)
