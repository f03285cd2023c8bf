"""The pass over a crawl whose every record is known, wherever it is read from."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.remote import config
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.sources import Archives
from gristmill.tasks.url.step import Url
from tests.crawl_server import BAD_MOMENTS, Fault, seeded
from tests.planted import Plan, Truth, plant

PLAN = Plan(pages=400, seed=11, files=2, broken=52, clipped_files=1, companions=0.05, near=0, template=0, blocked=12)
FAST = RemoteIOConfig(
    block_bytes=20_000,
    budget_seconds=20,
    backoff_seconds=0.002,
    backoff_cap_seconds=0.02,
    stall_seconds=0.5,
    block_seconds=3,
)
EXTRACT = Extract(engine="resiliparse", max_bytes=5_000_000, limits={"page_seconds": 2})
HOSTILE = Plan.clean(pages=60, seed=5, files=1, hostile=17)
LISTED = ("domain", "subdomain", "path", "expression")


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> Truth:
    return plant(tmp_path_factory.mktemp("planted"), PLAN)


def extracted(folder: str, addresses: list[str], remote_io: RemoteIOConfig = FAST, **given) -> list[dict]:
    source = Archives(name="web", warc=tuple(addresses))
    passed = {"before": (), "extract": EXTRACT, "normalize": Normalize(), "steps": ()} | given
    config.configure(remote_io)
    try:
        return [extract_shard(folder, i, "web", (shard,), None, **passed) for i, shard in enumerate(source.shards())]
    finally:
        config.configure(RemoteIOConfig())


def written(folder: str) -> dict[str, str]:
    """Checksums of what a stage's shards are made of."""
    names = [n for n in files.names(folder) if n.startswith("part-")]
    names += [f"ledger/{n}" for n in files.names(files.join(folder, "ledger"))]
    return {name: files.checksum(files.join(folder, name)) for name in names}


@pytest.fixture(scope="module")
def clean(truth, tmp_path_factory) -> str:
    folder = str(tmp_path_factory.mktemp("clean"))
    extracted(folder, truth.archives)
    return folder


def rows(folder: str, shards_there: int) -> dict[tuple[str, int], dict]:
    """Documents and rows of the ledger by where their record lies."""
    found = {}
    for i in range(shards_there):
        for path in (layout.part(folder, i), layout.ledger_part(folder, i)):
            for row in parquet.read_table(path).to_pylist():
                assert (row["file"], row["offset"]) not in found
                found[row["file"], row["offset"]] = row
    return found


def unaccounted(truth: Truth, found: dict[tuple[str, int], dict]) -> Counter:
    wrong: Counter = Counter()
    for record in truth.rows():
        row = found.get((Path(record["file"]).name, record["offset"]))
        what = None if row is None else row.get("rule", "document")
        expected = {
            "page": what == "document",
            "none": what != "document",
            "damaged": what == "damaged_record",
            "either": row is not None,
        }
        if not expected[record["yields"]]:
            wrong[record["kind"], record["variant"], record["yields"], what] += 1
    return wrong


def test_every_planted_record_is_a_document_or_has_a_reason(truth, clean):
    assert not unaccounted(truth, rows(clean, PLAN.files))


@pytest.mark.extended
def test_hostile_pages_cost_themselves_and_nothing_else(tmp_path):
    truth = plant(tmp_path / "planted", HOSTILE)
    (made,) = extracted(str(tmp_path / "out"), truth.archives)
    found = rows(str(tmp_path / "out"), 1)
    lost = unaccounted(truth, found)
    assert {kind for kind, *_ in lost} <= {"hostile"}
    drops = made["steps"][0]["drops"]
    assert drops["page_timeout"] >= 1 and drops["too_large"] >= 2
    assert set(drops) <= {
        *("page_timeout", "page_memory", "page_crash", "too_large", "empty_text", "extractor_error"),
        "content_type",  # what unfolds to zeros is no page
    }
    assert len(found) == HOSTILE.pages


@pytest.mark.extended
def test_the_counts_add_up(truth, clean, tmp_path):
    for i, made in enumerate(extracted(str(tmp_path), truth.archives)):
        dropped = parquet.read_table(layout.ledger_part(str(tmp_path), i))
        ledger.balance(
            "planted", made["rows_in"], len(parquet.read_table(layout.part(str(tmp_path), i))), made["steps"], dropped
        )
    assert written(str(tmp_path)) == written(clean)


def test_the_texts_and_what_the_pages_say_of_themselves_are_the_planted_ones(truth, clean):
    found_at = rows(clean, PLAN.files)
    recall, dates = [], Counter()
    for record in truth.rows(kind=("page", "charset", "transfer"), yields="page"):
        row = found_at[Path(record["file"]).name, record["offset"]]
        wanted, found = (Counter(re.findall(r"\w+", text)) for text in (record["text"], row["text"]))
        recall.append((sum((wanted & found).values()) / sum(wanted.values()), record["kind"], record["variant"]))
        assert (row["url"], row["record_id"], row["date"]) == (record["url"], record["record_id"], record["date"])
        if record["kind"] == "page":
            assert row["canonical_url"] == record["canonical_url"] and row["title"] == record["title"], record
            dates[row["published"] == record["published"]] += 1
    assert len(recall) > 200
    assert sum(r for r, *_ in recall) / len(recall) > 0.97
    assert sum(r < 0.9 for r, *_ in recall) < 0.05 * len(recall), sorted(recall)[:20]
    assert dates[True] > 0.98 * dates.total()


def test_blocked_urls_are_dropped_before_they_are_extracted(truth, tmp_path):
    step = Url(blocklists=(str(truth.blocklist),)).pinned()
    made = extracted(str(tmp_path), truth.archives, before=(step,))
    assert sum(shard["steps"][0]["drops"].get("blocklist", 0) for shard in made) > 0
    ledgers = [parquet.read_table(layout.ledger_part(str(tmp_path), i)).to_pylist() for i in range(PLAN.files)]
    hit = {row["url"] for rows in ledgers for row in rows if row["step"] == "url"}
    planted = truth.rows(kind="blocked")
    assert {r["url"] for r in planted if r["variant"] in LISTED} <= hit
    assert not {r["url"] for r in planted if r["variant"] not in LISTED} & hit


@pytest.fixture
def served(truth, crawl_server) -> list[str]:
    for path in truth.archives:
        shutil.copy(path, crawl_server.folder)
    return [f"{crawl_server.url}/{Path(path).name}" for path in truth.archives]


@pytest.mark.extended
def test_a_server_that_refuses_resets_and_cuts_gives_the_same_bytes(served, crawl_server, clean, tmp_path):
    crawl_server.plan = seeded(3, 0.5, (*BAD_MOMENTS, Fault("stalled")))
    extracted(str(tmp_path), served)
    faults = crawl_server.faults()
    assert {"status", "reset", "truncated", "short"} <= set(faults), faults
    assert written(str(tmp_path)) == written(clean)


@pytest.mark.extended
def test_an_object_store_is_read_and_written_like_a_folder(truth, s3, clean):
    for path in truth.archives:
        files.copy(path, f"s3://crawl/{Path(path).name}")
    s3.refuse = lambda method, path, nth: 503 if nth == 0 and "part-" in path else None
    folder = "s3://crawl/home/stages/documents-0"
    extracted(folder, ["s3://crawl/*.warc.gz"])
    assert any(status == 503 for *_, status in s3.requests)
    assert written(folder) == written(clean)
