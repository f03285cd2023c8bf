"""Keys, the order of finishing, and the sum that must come out."""

import pyarrow as pa
import pytest

from storage import files, layout, ledger, parquet
from storage.layout import Stage
from storage.schema import LEDGER, SELECTION

STAGE = Stage("rules", {"m": "code"}, {"threshold": 1}, {"kept": "abc"})


def selection(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "characters": [10] * len(ids)}).cast(SELECTION)


def drops(step: str, *ids: str) -> pa.Table:
    return ledger.from_rows([{"id": i, "step": step, "rule": "short", "value": 1.0, "threshold": 2.0} for i in ids])


@pytest.fixture
def made(tmp_path):
    folder = STAGE.folder(str(tmp_path))
    records = [
        layout.write_selection(folder, 0, selection("a", "b", "c"), [("x", drops("x", "a")), ("y", drops("y", "c"))]),
        layout.write_selection(folder, 1, selection("d"), [("x", drops("x")), ("y", drops("y"))]),
    ]
    return folder, layout.finish(folder, STAGE, {"shards": records})


def test_a_key_follows_everything_that_decides_the_stage():
    keys = {
        STAGE.key,
        Stage("rules", {"m": "code"}, {"threshold": 2}, {"kept": "abc"}).key,
        Stage("rules", {"m": "other"}, {"threshold": 1}, {"kept": "abc"}).key,
        Stage("rules", {"m": "code"}, {"threshold": 1}, {"kept": "abd"}).key,
        Stage("other", {"m": "code"}, {"threshold": 1}, {"kept": "abc"}).key,
    }
    assert len(keys) == 5
    assert Stage("rules", {"m": "code"}, {"threshold": 1}, {"kept": "abc"}).key == STAGE.key


def test_counts_by_step(made):
    folder, manifest = made
    first = manifest["shards"][0]["steps"]
    assert [(s["step"], s["rows_in"], s["rows_out"], s["characters_out"]) for s in first] == [
        ("x", 3, 2, 20),
        ("y", 2, 1, 10),
    ]
    assert parquet.read_table(layout.part(folder, 0))["id"].to_pylist() == ["b"]
    layout.check(folder, manifest)


@pytest.mark.parametrize("position", [0, 1])
def test_a_ledger_row_that_is_gone_is_noticed(made, position):
    folder, manifest = made
    path = layout.ledger_part(folder, 0)
    rows = parquet.read_table(path)
    parquet.write_table(path, rows.filter(pa.array([i != position for i in range(len(rows))])))
    with pytest.raises(ledger.LedgerError, match=r"shard 0, step [xy]: \d documents in, \d out, but 0 rows"):
        layout.check(folder, manifest)


def test_a_reason_that_was_changed_is_noticed(made):
    folder, manifest = made
    path = layout.ledger_part(folder, 0)
    rows = parquet.read_table(path).to_pylist()
    parquet.write_table(path, ledger.from_rows([row | {"rule": "other"} for row in rows]))
    with pytest.raises(ledger.LedgerError, match="by rule {'other': 1}, where its record has {'short': 1}"):
        layout.check(folder, manifest)


def test_a_document_that_is_gone_is_noticed(made):
    folder, manifest = made
    parquet.write_table(layout.part(folder, 1), selection())
    with pytest.raises(ledger.LedgerError, match="shard 1: 0 rows in the file, 1 in its record"):
        layout.check(folder, manifest)


def test_a_reason_of_a_step_that_did_not_run_is_noticed(made):
    folder, manifest = made
    parquet.write_table(layout.ledger_part(folder, 1), drops("z", "q"))
    with pytest.raises(ledger.LedgerError, match="did not run"):
        layout.check(folder, manifest)


def test_a_document_cannot_be_dropped_twice_or_from_elsewhere(tmp_path):
    for second in ("a", "elsewhere"):
        with pytest.raises(ledger.LedgerError, match="step y drops 1 documents, has 0"):
            given = [("x", drops("x", "a")), ("y", drops("y", second))]
            layout.write_selection(str(tmp_path), 0, selection("a", "b"), given)


def test_no_manifest_before_the_sum_comes_out(tmp_path):
    folder = STAGE.folder(str(tmp_path))
    record = layout.write_selection(folder, 0, selection("a", "b"), [("x", drops("x", "a"))])
    parquet.write_table(layout.ledger_part(folder, 0), LEDGER.empty_table())
    with pytest.raises(ledger.LedgerError):
        layout.finish(folder, STAGE, {"shards": [record]})
    assert layout.manifest(folder) is None
    assert files.exists(layout.part(folder, 0))


def test_shards_are_the_same_bytes_every_time(tmp_path):
    sums = set()
    for name in ("one", "two"):
        layout.write_selection(str(tmp_path / name), 0, selection("a", "b"), [("x", drops("x", "a"))])
        sums.add(files.checksum(layout.part(str(tmp_path / name), 0)))
    assert len(sums) == 1
