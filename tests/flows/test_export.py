"""An export against what its stages hold, read by the formats' own libraries; refusals; the same bytes after a kill."""

import json
import queue
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
import yaml

from gristmill.flows import pipeline
from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.stages.export import check_target, export, recipe_of_card
from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.export import Card, write_card
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.reading.members import zstd
from tests.corpora import context
from tests.planted.text import prose

CARRIED = ["id", "text", "url", "date", "source"]


def texts() -> list[str]:
    rng = Random(5)
    good = ["\n\n".join(prose(rng, "en", 220)) for _ in range(14)]
    return [*good, *(text + " One sentence more." for text in good[:4]), "Too short.", good[5] + " Another end."]


def recipe(folder: Path, target: str, format: str = "parquet", *without: str) -> Recipe:
    """Three shards of lines in two sources, the last shard without a document that is kept."""
    if not folder.exists():
        folder.mkdir()
        rows = [
            {"body": text, "link": f"https://user:secret@host.example/{i}?key=1", "day": "2024-05-18"}
            for i, text in enumerate(texts())
        ]
        for name, shard in {"a0": rows[::2], "a1": rows[1::2], "b0": [{"body": "Too short, too."}]}.items():
            (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, shard)))
    columns = {"text_column": "body", "url_column": "link", "date_column": "day"}
    steps = ["extract", "language", "gopher_quality", "minhash"]
    return load(
        {
            "name": "small",
            "sources": [{"name": name, "jsonl": [f"{folder}/{name}*.jsonl"], **columns} for name in "ab"],
            "steps": [{"step": step} for step in steps if step not in without],
            "export": {"to": target, "format": format},
        }
    )


def run(home: Path, given: Recipe, workers=None):
    at = context(str(home), workers)
    check_target(at, given)
    *_, last = curate(at, given)
    return last.left, export(at, given, last.left)


def exported(target: Path) -> list[dict]:
    """All rows, by libraries that know nothing of ours."""
    if shards := sorted(target.glob("data/*.parquet")):
        return [row for shard in shards for row in pq.ParquetFile(shard).read().to_pylist()]
    shards = sorted(target.glob("data/*.jsonl.zst"))
    read = [zstd.decompress(shard.read_bytes()).decode() for shard in shards]
    return [json.loads(line) for shard in read for line in shard.split("\n")[:-1]]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.mark.extended
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_it_has_the_kept_documents_with_all_that_was_measured(home, format):
    target = home / format
    corpus, made = run(home, recipe(home / "raw", str(target), format), Threads(2, queue.SimpleQueue()))
    kept = [i for n in range(3) for i in parquet.read_table(corpus.kept.part(n), ["id"])["id"].to_pylist()]
    known = {row["id"]: row for n in range(3) for row in parquet.read_table(corpus.documents.part(n)).to_pylist()}
    drops = [r for n in range(3) for r in parquet.read_table(layout.ledger_part(corpus.kept.folder, n)).to_pylist()]
    rows = exported(target)
    assert [row["id"] for row in rows] == kept and len(kept) == 14
    for row in rows:
        assert {name: row[name] for name in CARRIED} == {name: known[row["id"]][name] for name in CARRIED}
        measured = set(row) - {*CARRIED, "cluster_size"}
        assert {"language", "language_score", "gopher_quality_words"} <= measured
        for name in measured:
            assert row[name] == known[row["id"]][name]
        assert row["cluster_size"] == 1 + sum(drop["representative"] == row["id"] for drop in drops)
    assert sum(row["cluster_size"] > 1 for row in rows) == 5
    assert made.result == {"documents": 14, "characters": sum(len(row["text"]) for row in rows)}
    assert len(list(target.glob("data/*"))) == 3 and not (target / "done").exists()


def test_an_unknown_language_is_counted_and_not_claimed(tmp_path):
    card = Card(name="c", recipe="", funnel=(), columns=(), format="parquet", releases=())
    write_card(str(tmp_path), 0, card, [("web", "en", 70, 700), ("web", "unknown", 30, 300), ("web", None, 1, 1)])
    text = (tmp_path / "README.md").read_text()
    assert yaml.safe_load(text.split("---\n")[1])["language"] == ["en"]
    assert "unknown" in text


def test_its_card_has_the_figures_and_no_secret(home):
    target = home / "card"
    raw = recipe(home / "raw", str(target))
    lists = {
        **raw.sources[0].model_dump(),
        "jsonl": [*raw.sources[0].jsonl, "https://me:secret@host.example/c.jsonl?k=1"],
    }
    _, made = run(home, raw)
    card = (target / "README.md").read_text()
    assert ("the package `zstandard` is installed" in card) == (format == "jsonl")
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["configs"] == [{"config_name": "default", "data_files": "data/*.parquet"}]
    assert header["language"] == ["en"] and header["size_categories"] == ["n<1K"] and "license" not in header
    types = {feature["name"]: feature["dtype"] for feature in header["dataset_info"]["features"]}
    assert list(types) == pq.ParquetFile(target / "data/part-00000.parquet").schema_arrow.names
    assert f"14 documents with {made.result['characters']:,} characters" in card
    assert "| a | 14 | 100.0% |" in card and "| en | 14 | 100.0% |" in card
    assert "| minhash | 19 | 14 | 73.7% | near_duplicate 5 |" in card
    assert "Licence: not filled in" in card and "words | int64 | words | Words that have a letter" in card
    shown = recipe_of_card(raw.model_copy(update={"sources": (type(raw.sources[0]).model_validate(lists),)}))
    assert "https://host.example/c.jsonl" in shown and "secret" not in shown


def test_without_the_steps_their_columns_are_null(home):
    target = home / "bare"
    run(home, recipe(home / "raw", str(target), "parquet", "language", "minhash", "gopher_quality"))
    rows = exported(target)
    assert len(rows) == 21 and {(row["language"], row["cluster_size"]) for row in rows} == {(None, None)}
    assert "No step measured it" in (target / "README.md").read_text()


def test_again_does_nothing_and_what_else_lies_there_is_refused(home):
    target = home / "again"
    given = recipe(home / "raw", str(target))
    _, first = run(home, given)
    before = bytes_of(target)
    _, second = run(home, given, Refusing())
    assert (first.reused, second.reused) == (False, True) and bytes_of(target) == before
    with pytest.raises(FileExistsError, match=r"`export: to` is .*again, which contains an export of other documents"):
        run(home, recipe(home / "raw", str(target), "jsonl"))
    with pytest.raises(FileExistsError, match=r"`export: to` is .*raw, which contains other files"):
        run(home / "nothing", recipe(home / "raw", str(home / "raw")))
    assert bytes_of(target) == before and not (home / "nothing").exists()


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_what_is_damaged_is_mended_when_it_is_exported_again(home, format):
    target = home / f"mended_{format}"
    given = recipe(home / "raw", str(target), format)
    run(home, given)
    whole = bytes_of(target)
    [first, *_] = sorted(name for name in whole if name.startswith("data/"))
    for name in [first, "README.md", "parts.json"]:
        flipped = bytes([whole[name][0] ^ 1]) + whole[name][1:]
        for damage in (lambda path, flipped=flipped: path.write_bytes(flipped), Path.unlink):
            damage(target / name)
            _, made = run(home, given)
            assert not made.reused and bytes_of(target) == whole, name
    # of three shards the two that are whole are not written again, and no more is the card
    (target / first).unlink()
    with pytest.raises(KeyboardInterrupt):
        run(home, given, OneMore())
    run(home, given, OneMore())
    assert bytes_of(target) == whole


class Refusing:
    """Does so many jobs, then stops as a run does that is killed between two of them."""

    def __init__(self, jobs: int = 0) -> None:
        self.messages: queue.SimpleQueue = queue.SimpleQueue()
        self.left = jobs

    def map(self, work, jobs):
        for index, job in enumerate(jobs):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            yield index, work(job)


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_stopped_after_any_job_and_run_again_it_has_the_same_bytes(home, format):
    undisturbed, target = home / f"undisturbed_{format}", home / f"stopped_{format}"
    run(home, recipe(home / "raw", str(undisturbed), format), Threads(2, queue.SimpleQueue()))
    given = recipe(home / "raw", str(target), format)
    *_, last = curate(context(str(home)), given)
    for done in range(5):  # the first job, three shards, the card: each run does one and finds the others
        with pytest.raises(KeyboardInterrupt):
            export(context(str(home), OneMore()), given, last.left)
        assert not (target / "manifest.json").exists()
        whole = bytes_of(undisturbed)
        shards = {name: data for name, data in bytes_of(target).items() if name.startswith(("data/", "README"))}
        assert len(shards) == done and all(whole[name] == data for name, data in shards.items())
    with pytest.raises(FileExistsError, match="an export of other documents"):
        run(home, recipe(home / "raw", str(target), "jsonl" if format == "parquet" else "parquet"))
    run(home, given, Refusing(5))
    assert bytes_of(target) == bytes_of(undisturbed)


class OneMore(Refusing):
    """Does one job that was not done, and stops behind it."""

    def map(self, work, jobs):
        for index, job in enumerate(jobs):
            result = work(job)
            if not isinstance(result, list) and not result.found:  # a list: the marks of jobs that were done
                raise KeyboardInterrupt
            yield index, result


@pytest.mark.extended
def test_into_an_object_store_it_has_the_same_bytes(home, s3):
    local = home / "local"
    run(home, recipe(home / "raw", str(local)))
    for _ in range(2):
        _, made = run(home, recipe(home / "raw", "s3://crawl/out"))
    assert made.reused and made.folder == "s3://crawl/out"
    assert files.names("s3://crawl/out") == ["README.md", "data", "manifest.json", "parts.json"]
    for name, data in bytes_of(local).items():
        assert files.read_bytes(f"s3://crawl/out/{name}") == data
    files.write_bytes("s3://crawl/other/file", b"x")
    with pytest.raises(FileExistsError, match="s3://crawl/other, which contains other files"):
        run(home, recipe(home / "raw", "s3://crawl/other"))


def test_what_needs_a_mixture_says_so_before_any_work(home):
    given = recipe(home / "raw", str(home / "unused"))
    for flow in (pipeline.tokens, pipeline.pretrain, pipeline.pipeline):
        with pytest.raises(ValueError, match=r"no `mixture`, .* add `mixture: \{weights: \{a: 1, b: 1\}\}`"):
            flow.fn(given)
    assert not (home / "unused").exists()
