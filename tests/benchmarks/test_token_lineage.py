"""10,000 random tokens traced to their records and derived from them again: all the same; what a look-up and the index
cost.

On a planted crawl, and where GRISTMILL_TEST_DATA names a folder with warc/web/*.warc.gz on these pages.
"""

import os
import time
from collections import defaultdict
from pathlib import Path
from random import Random

import numpy as np
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.token_lineage import TokenSource, token_source
from gristmill.flows.stages.heldout import heldout
from gristmill.flows.stages.tokens import tokenizer, tokens
from gristmill.storage.remote.config import RemoteIOConfig
from tests.corpora import context
from tests.planted import Plan, plant

TOKENS = 10_000
MOST_MILLISECONDS = 10  # of a look-up
MOST_INDEX = {"planted": 0.03, "real": 0.02}  # bytes of the index over those of the tokens; planted pages are short
STEPS = [
    {"step": "extract"},
    {"step": "normalize"},
    {"step": "c4", "terminal_punctuation": [], "max_curly_bracket": None, "min_sentences": 1},
    {"step": "minhash"},
    {"step": "pii"},
    {"step": "line_dedup"},
]


def planted(folder: Path) -> list[str]:
    return list(map(str, plant(folder / "crawl", Plan(pages=2000, files=4, seed=11)).archives))


def real(folder: Path) -> list[str]:
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("set GRISTMILL_TEST_DATA to a folder with warc/web/*.warc.gz")
    return [f"{os.environ['GRISTMILL_TEST_DATA']}/warc/web/*.warc.gz"]


def sources(files: list[str], folder: Path) -> list[TokenSource]:
    """The token shards that training would read of some archives."""
    recipe = load(
        {
            "name": "traced",
            "sources": [{"name": "web", "warc": files}],
            "steps": STEPS,
            "tokenizer": {"vocab_size": 16_000, "sample_bytes": 20_000_000},
            "mixture": {"weights": {"web": 1}},
        }
    )
    run = context(str(folder / "home"))
    *_, last = curate(run, recipe)
    split = heldout(run, recipe, last.left)
    made = tokens(run, split.train, tokenizer(run, recipe, split.train))
    return [token_source(str(folder / "home"), str(path)) for path in sorted(Path(made.folder).glob("train-*.bin"))]


@pytest.mark.bench
@pytest.mark.parametrize("crawl", [planted, real])
def test_tokens_are_derived_from_their_records_again(tmp_path, capsys, crawl):
    found = sources(crawl(tmp_path), tmp_path)
    sizes = [os.path.getsize(source.path) // 2 for source in found]
    ends, rng = np.cumsum(sizes), Random(1)
    took, places = [], defaultdict(list)
    for token in (rng.randrange(ends[-1]) for _ in range(TOKENS)):
        shard = int(np.searchsorted(ends, token, side="right"))
        began = time.thread_time()
        place = found[shard].locate(token - int(ends[shard]) + sizes[shard])
        took.append(1000 * (time.thread_time() - began))
        places[shard].append(place)
    began = time.perf_counter()
    derived = {
        shard: found[shard].derive(sorted({place.row["id"] for place in here}), RemoteIOConfig())
        for shard, here in places.items()
    }
    documents = sum(map(len, derived.values()))
    each = 1000 * (time.perf_counter() - began) / documents
    same = sum(derived[shard][place.row["id"]].same(place) for shard, here in places.items() for place in here)
    index = sum(os.path.getsize(source.path.removesuffix(".bin") + ".parquet") for source in found) / (2 * sum(sizes))
    with capsys.disabled():
        print(
            f"\n{crawl.__name__}: {same:,} of {TOKENS:,} tokens derived again, of {documents:,} documents in shards of "
            f"{max(sizes):,} tokens at most; a look-up {np.median(took):.1f} ms of CPU (99% within "
            f"{np.percentile(took, 99):.1f}), a document derived in {each:.0f} ms, index {index:.2%} of the tokens"
        )
    assert same == TOKENS
    assert np.median(took) < MOST_MILLISECONDS and index < MOST_INDEX[crawl.__name__]
