"""Proposed thresholds, from stored signals whose distributions are known."""

import re

import numpy as np
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.thresholds import propose
from gristmill.storage import layout, parquet
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec

LENGTHS = "gopher_quality_mean_word_length"
WORDS = "gopher_quality_words"
SIZES = {"en": 6000, "de": 3000, "is": 1500, "fo": 40, "unknown": 1200}


def planted(name: str, n: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    """English words are 5 +- 1.2 long; German ones 2 longer, Icelandic 1.5 times as long. Documents have lognormally
    many words: Germans half as many. One document in ten has a wrong language, and signals far off."""
    doubted = draw.random(n) < 0.1
    lengths = draw.normal(5, 1.2, n)
    lengths = {"de": lengths + 2, "is": lengths * 1.5}.get(name, lengths)
    words = np.exp(draw.normal(5.5, 1, n)) / (2 if name == "de" else 1)
    return {
        "language": np.full(n, name),
        "language_score": np.where(doubted, 0.3, 0.9),
        LENGTHS: np.where(doubted, 90.0, lengths),
        WORDS: np.where(doubted, 0, np.ceil(words)).astype(np.int64),
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A recipe file and a home with its stages, of two shards, with planted signals."""
    folder = tmp_path_factory.mktemp("thresholds")
    for shard in range(2):
        (folder / f"web-{shard}.warc.gz").write_bytes(b"%d" % shard)
    steps = [{"step": "extract"}, {"step": "language"}, {"step": "gopher_quality"}]
    recipe = {
        "name": "planted",
        "sources": [{"name": "web", "warc": [f"{folder}/web-*.warc.gz"]}],
        "steps": steps,
        "mixture": {"weights": {"web": 1}},
    }
    path = folder / "planted.yaml"
    path.write_text(yaml.safe_dump(recipe))
    settings = MachineSettings(home=str(folder / "home"))
    draw = np.random.default_rng(7)
    every = [planted(name, n, draw) for name, n in SIZES.items()]
    columns = {name: np.concatenate([some[name] for some in every]) for name in every[0]}
    order = draw.permutation(sum(SIZES.values()))
    table = pa.table({"id": [f"d{i}" for i in order], **{name: values[order] for name, values in columns.items()}})
    columns |= {"gopher_quality_hash_ratio": np.where(columns["language"] == "en", draw.random(len(order)), 0.25)}
    table = table.append_column("gopher_quality_hash_ratio", pa.array(columns["gopher_quality_hash_ratio"][order]))
    others = [f.name for step in load(path).after[:2] for f in step.signals if f.name not in columns]
    for name in others:
        table = table.append_column(name, pa.repeat(0.0, len(table)))

    def plant(spec: StageSpec) -> StageResult:
        target = spec.folder(settings.home)
        for shard in range(2):
            parquet.write_table(layout.part(target, shard), table.slice(shard * 5000, 5000 if not shard else None))
        result = {"sources": {"web": {"documents": len(table)}}, "own": []}
        manifest = layout.write_manifest(target, {**spec.identity, "key": spec.key, "result": result}, [])
        return StageResult(spec.name, spec.key, target, manifest, reused=False)

    list(curate(RunContext(settings, plant), load(path)))
    return path, settings


def test_the_planted_shift_and_scale_are_found(place):
    path, settings = place
    found = propose(path, "en", settings=settings)
    proposed = {(row.setting, row.language): row for row in found.rows}
    for language, threshold, tolerance in (("de", 5, 0.25), ("is", 4.5, 0.375)):
        row = proposed["min_mean_word_length", language]
        assert row.proposed == pytest.approx(threshold, abs=tolerance)
        assert row.then == pytest.approx(row.reference, abs=1e-3)
    assert "gopher_quality.max_mean_word_length" in found.idle
    words = proposed["min_words", "de"]
    assert words.proposed == pytest.approx(25, abs=3) and isinstance(words.proposed, int)
    assert words.now > 2 * words.reference > 0
    assert found.few == {"fo": pytest.approx(36, abs=4)}
    assert {language for _, language in proposed} == {"de", "is"}
    same = "all 2,7.. documents have the value 0.25, so no threshold drops a share of them"
    [reason] = [reason for reason in found.unmatched if reason.startswith("gopher_quality.max_hash_ratio, de: ")]
    assert re.search(same, reason)
    assert "gopher_quality.max_symbol_ratio: null for en, so it drops nothing" in found.unmatched
    assert found.without == ["language"]


def test_the_proposals_are_part_of_a_recipe(place):
    path, settings = place
    found = propose(path, "en", settings=settings)
    [given] = found.recipe_part()["steps"]
    recipe = yaml.safe_load(path.read_text())
    [step] = [step for step in recipe["steps"] if step["step"] == given["step"]]
    step.update(given)
    bound = next(b for b in load(recipe).after[1].decisions() if b.signal == LENGTHS)
    assert bound.low == 3.0 and bound.languages["de"][0] == pytest.approx(5, abs=0.25)
    assert bound.languages["de"][1] == bound.high


def test_a_reference_that_is_too_small_is_said(place):
    path, settings = place
    with pytest.raises(LookupError, match=r"documents in fo, but 1000 are needed; the languages are en 5,\d+, de"):
        propose(path, "fo", settings=settings)
    with pytest.raises(LookupError, match="0 documents in eng"):
        propose(path, "eng", settings=settings)
    assert {row.language for row in propose(path, "en", 20, settings).rows} == {"de", "is", "fo"}


def test_the_command_prints_both(place, monkeypatch):
    path, settings = place
    monkeypatch.setenv("GRISTMILL_HOME", settings.home)
    printed = (
        CliRunner().invoke(app, ["decide", "thresholds", str(path), "--reference", "en"], catch_exceptions=False).stdout
    )
    for expected in (
        "gopher_quality.min_words",
        "fewer than 1,000 documents: fo",
        "- step: gopher_quality",
        "max_mean",
    ):
        assert expected in printed
