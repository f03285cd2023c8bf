"""What a shard costs in requests to an object store, by kind: a whole recipe over files of one document each.

Two sizes of a home in moto's S3; the difference is what a further shard costs. GRISTMILL_TEST_SHARDS: the two sizes.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.benchmarks.test_many_shards import COMMAND
from tests.crawl_server import ObjectStore, serve_s3

SIZES = [int(size) for size in os.environ.get("GRISTMILL_TEST_SHARDS", "60,180").split(",")]
# Of a further shard over all stages, and what looks for groups that lost too much: so many were measured.
MOST = {"ignore": 46, "warn": 71}


def plant(folder: Path, shards: int, then: str) -> Path:
    """So many files of one document each; the path of their recipe, with rules and near-duplicates. `then`: whether it
    looks for groups that lost far more than their like."""
    crawl = folder / "crawl"
    crawl.mkdir(parents=True)
    for number in range(shards):
        text = (
            f"The shard {number} has one document, and that is the sentence to which nobody with a pen would be close."
        )
        (crawl / f"{number:05d}.jsonl").write_text(json.dumps({"text": text}))
    recipe = {
        "name": "requests",
        "sources": [{"name": "web", "jsonl": [f"{crawl}/*.jsonl"], "shard_bytes": 1}],
        "steps": [
            {"step": "extract", "engine": "plain"},
            {"step": "gopher_quality", "min_words": 5},
            {"step": "minhash"},
        ],
        "group_losses": {"then": then},
    }
    path = folder / "requests.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def kind(method: str, path: str) -> str:
    whole = path.strip("/").partition("/")[2]
    return f"{method} {'object' if whole else 'bucket'}"


def requests_of(store: ObjectStore, folder: Path, shards: int, then: str) -> Counter:
    recipe = plant(folder, shards, then)
    environment = os.environ | store.environment
    environment |= {"GRISTMILL_HOME": f"s3://gristmill/{shards}", "GRISTMILL_LOCAL": str(folder / "local")}
    before = len(store.requests)
    done = subprocess.run([sys.executable, "-c", COMMAND, str(recipe)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return Counter(kind(method, path) for method, path, _ in store.requests[before:])


@pytest.mark.bench
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("then", MOST)
def test_requests_of_a_further_shard(tmp_path, capsys, then):
    with serve_s3() as store:
        subprocess.run(["curl", "-sfX", "PUT", f"{store.url}/gristmill"], check=True)
        small, large = (requests_of(store, tmp_path / str(size), size, then) for size in SIZES)
    further = {name: (large[name] - small[name]) / (SIZES[1] - SIZES[0]) for name in sorted(large)}
    with capsys.disabled():
        kinds = ", ".join(f"{n:.2f} {name}" for name, n in further.items())
        print(f"\nrequests of a further shard, group_losses {then}: {kinds}")
        print(f"in all {sum(further.values()):.1f}; of {SIZES[0]} shards {sum(small.values()):,}")
    assert sum(further.values()) <= MOST[then]
