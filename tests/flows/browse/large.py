"""A finished home of any size: a small one is curated, and each of its documents is planted many times over, with an id
of its own, in all parts, ledgers and counts of its stages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.storage import checked_json, layout, parquet
from tests.corpora import context

STEPS = [
    {"step": "extract"},
    {"step": "gopher_quality", "min_words": 12, "min_stop_words": 0, "min_mean_word_length": 1,
     "max_mean_word_length": None, "min_alpha_words": 0.3},
    {"step": "gopher_repetition"},
]  # fmt: skip


def plant(folder: Path, shards: int, each: int, times: int) -> str:
    """The path of the recipe; its home, `<folder>/home`, has shards * each * times records."""
    source = folder / "in"
    source.mkdir(parents=True)
    rng = np.random.default_rng(1)
    words = ["".join(map(chr, rng.integers(97, 123, rng.integers(2, 9)).tolist())) for _ in range(400)]
    for shard in range(shards):
        hosts, lengths = rng.zipf(1.4, each) % 100_000, rng.integers(0, 60, each).tolist()
        lines = [
            {"id": f"{shard}-{n}", "url": f"https://h{host}.example/{n}", "text": " ".join(rng.choice(words, length))}
            for n, (host, length) in enumerate(zip(hosts.tolist(), lengths, strict=True))
        ]
        (source / f"pages-{shard:05d}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given: dict[str, Any] = {"name": "web", "jsonl": [f"{source}/pages-*.jsonl"], "shard_bytes": 1}
    given |= {"url_column": "url", "id_column": "id"}
    recipe = folder / "recipe.yaml"
    recipe.write_text(json.dumps({"name": "planted", "sources": [given], "steps": STEPS}))
    home = folder / "home"
    for _ in curate(context(str(home)), load(str(recipe))):
        pass
    for stage in sorted((home / "stages").iterdir()):
        _multiply(stage, times)
    return str(recipe)


def _multiply(stage: Path, times: int) -> None:
    manifest = layout.manifest(str(stage))
    assert manifest is not None
    for path in sorted(stage.rglob("part-*.parquet")):
        table = parquet.read_table(str(path), parquet.columns(str(path)))
        schema, rows = table.schema, np.tile(np.arange(len(table)), times)
        whole = table.take(pa.array(rows))
        names = pa.array(np.repeat(np.arange(times), len(table)).astype(str))
        for column in ("id", "representative"):
            if column in schema.names:
                ids = pc.binary_join_element_wise(whole[column], names, "-")
                whole = whole.set_column(schema.get_field_index(column), schema.field(column), ids)
        parquet.write_table(str(path), whole)
    parts = [
        layout.Part(part.phase, part.number, _times(part.record, times), part.files)
        for part in layout.parts(str(stage), manifest)
    ]
    value = {name: each for name, each in manifest.items() if name not in ("counts", "parts", "format")}
    whole = layout.write_manifest(str(stage), value | {"result": _times(manifest["result"], times)}, parts)
    # stages that read it were made of what it held before
    checked_json.write(f"{stage}/manifest.json", whole | {"contents": manifest["contents"]})


def _times(value: Any, times: int) -> Any:
    """A record with all of its counts so many times."""
    if isinstance(value, dict):
        return {name: _times(each, times) for name, each in value.items()}
    if isinstance(value, list):
        return [_times(each, times) for each in value]
    return value * times if isinstance(value, int) and not isinstance(value, bool) else value
