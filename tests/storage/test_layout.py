"""Selections, manifests and lists of parts, and the sum that must come out."""

import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.schema import SELECTION

FOLDER = "stages/rules-0123456789abcdef"


def selection(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "characters": [10] * len(ids)}).cast(SELECTION)


def drops(step: str, *ids: str) -> pa.Table:
    return ledger.from_rows([{"id": i, "step": step, "rule": "short", "value": 1.0, "threshold": 2.0} for i in ids])


def part(number: int, record: dict) -> layout.Part:
    return layout.Part("decide", number, record, {f"part-{number:05d}.parquet": {"bytes": 7, "content": "x"}})


@pytest.fixture
def made(tmp_path):
    folder = str(tmp_path / FOLDER)
    records = [
        ledger.write_selection(folder, 0, selection("a", "b", "c"), [("x", drops("x", "a")), ("y", drops("y", "c"))]),
        ledger.write_selection(folder, 1, selection("d"), [("x", drops("x")), ("y", drops("y"))]),
    ]
    return folder, [part(i, record) for i, record in enumerate(records)]


def test_counts_by_step(made):
    folder, parts = made
    first = parts[0].record["steps"]
    assert [(s["step"], s["rows_in"], s["rows_out"], s["characters_out"]) for s in first] == [
        ("x", 3, 2, 20),
        ("y", 2, 1, 10),
    ]
    assert parquet.read_table(layout.part(folder, 0))["id"].to_pylist() == ["b"]
    ledger.check_balance(folder, parts)


def test_a_manifest_has_the_sums_and_the_digest_of_the_list_of_parts(made):
    folder, parts = made
    written = layout.write_manifest(folder, {"stage": "rules", "key": "0123456789abcdef"}, parts)
    assert layout.manifest(folder) == written
    assert list(layout.parts(folder, written)) == list(parts)
    assert json.loads((Path(folder) / "parts.json").read_bytes()) == [asdict(part) for part in parts]
    assert len((Path(folder) / "parts.json").read_bytes().splitlines()) == len(parts) + 2
    assert written["counts"]["rows_in"] == 4 and written["counts"]["rows_out"] == 2
    assert [(s["step"], s["drops"]) for s in written["counts"]["steps"]] == [("x", {"short": 1}), ("y", {"short": 1})]
    assert written["parts"] == {"jobs": 2, "files": 2, "bytes": 14, "digest": written["parts"]["digest"]}
    with pytest.raises(layout.ManifestError, match="parts.json does not match its manifest"):
        layout.parts(folder, written | {"parts": written["parts"] | {"digest": "0"}})
    assert layout.manifest(folder + "-elsewhere") is None
    assert not layout.parts(folder, layout.write_manifest(folder, {}, []))
    assert (Path(folder) / "parts.json").read_bytes() == b"[]"


def test_done_jobs_are_listed_by_phase_and_read_one_by_one(tmp_path):
    folder = str(tmp_path)
    assert layout.done_numbers(folder) == {}
    for phase, number in (("decide", 0), ("decide", 123456), ("two-parts", 7)):
        layout.mark_done(folder, phase, number, {"record": {"rows": number}, "files": {}})
    assert layout.done_numbers(folder) == {"decide": {0, 123456}, "two-parts": {7}}
    assert layout.done_part(folder, "two-parts", 7) == layout.Part("two-parts", 7, {"rows": 7}, {})
    with pytest.raises(DamagedFileError, match="two-parts-00008.json is missing"):
        layout.done_part(folder, "two-parts", 8)


@pytest.mark.parametrize("position", [0, 1])
def test_a_ledger_row_that_is_gone_is_noticed(made, position):
    folder, parts = made
    path = layout.ledger_part(folder, 0)
    rows = parquet.read_table(path)
    parquet.write_table(path, rows.filter(pa.array([i != position for i in range(len(rows))])))
    with pytest.raises(ledger.LedgerError, match=r"shard 0, step [xy]: \d documents in, \d out, but 0 rows"):
        ledger.check_balance(folder, parts)


def test_a_reason_that_was_changed_is_noticed(made):
    folder, parts = made
    path = layout.ledger_part(folder, 0)
    rows = parquet.read_table(path).to_pylist()
    parquet.write_table(path, ledger.from_rows([row | {"rule": "other"} for row in rows]))
    with pytest.raises(ledger.LedgerError, match="by rule {'other': 1}, where its record has {'short': 1}"):
        ledger.check_balance(folder, parts)


def test_a_document_that_is_gone_is_noticed(made):
    folder, parts = made
    parquet.write_table(layout.part(folder, 1), selection())
    with pytest.raises(ledger.LedgerError, match="shard 1: 0 rows in the file, 1 in its record"):
        ledger.check_balance(folder, parts)


def test_a_reason_of_a_step_that_did_not_run_is_noticed(made):
    folder, parts = made
    parquet.write_table(layout.ledger_part(folder, 1), drops("z", "q"))
    with pytest.raises(ledger.LedgerError, match="did not run"):
        ledger.check_balance(folder, parts)


def test_a_document_cannot_be_dropped_twice_or_from_elsewhere(tmp_path):
    for second in ("a", "elsewhere"):
        with pytest.raises(ledger.LedgerError, match="step y drops 1 documents, has 0"):
            given = [("x", drops("x", "a")), ("y", drops("y", second))]
            ledger.write_selection(str(tmp_path), 0, selection("a", "b"), given)


def test_shards_are_the_same_bytes_every_time(tmp_path):
    sums = set()
    for name in ("one", "two"):
        ledger.write_selection(str(tmp_path / name), 0, selection("a", "b"), [("x", drops("x", "a"))])
        sums.add(files.checksum(layout.part(str(tmp_path / name), 0)))
    assert len(sums) == 1
