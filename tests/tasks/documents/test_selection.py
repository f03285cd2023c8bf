"""Documents are joined with a selection by their ids."""

import random

import pyarrow as pa
import pytest

from gristmill.storage import parquet
from gristmill.tasks.documents.selection import gather, select

TEXTS = {f"id-{i}": f"text {i}" for i in range(50)}


def shuffled(names: list[str], seed: int) -> list[str]:
    return random.Random(seed).sample(names, len(names))


@pytest.mark.parametrize("seed", range(5))
def test_a_row_keeps_its_own_text_whatever_the_order(tmp_path, shard, seed):
    order = shuffled(list(TEXTS), seed)
    kept = shuffled(order[:20], seed + 1)
    documents, _ = shard("web", {i: TEXTS[i] for i in order})
    selection = str(tmp_path / "selection.parquet")
    parquet.write_table(selection, pa.table({"id": kept, "characters": list(range(20))}))
    found = select(documents, selection, ["text", "url"])
    assert found.column_names == ["id", "text", "url"]
    assert dict(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True)) == {i: TEXTS[i] for i in kept}
    assert found["id"].to_pylist() == [i for i in order if i in set(kept)]


def test_columns_are_given_once_in_their_order(shard):
    documents, kept = shard("web", TEXTS)
    assert select(documents, kept, ["text", "id"]).column_names == ["id", "text"]
    assert select(documents, kept, []).column_names == ["id"]


def test_nothing_selected_is_an_empty_table(shard):
    documents, kept = shard("web", TEXTS, kept=[])
    assert len(select(documents, kept, ["text"])) == 0


def test_a_missing_document_is_an_error_that_names_both_files(tmp_path, shard):
    documents, _ = shard("web", TEXTS)
    selection = str(tmp_path / "selection.parquet")
    parquet.write_table(selection, pa.table({"id": ["id-1", "id-2", "elsewhere"]}))
    with pytest.raises(LookupError, match=r"names 3 documents, .*holds 2") as error:
        select(documents, selection, ["text"])
    assert documents in str(error.value) and selection in str(error.value)


def test_a_missing_file_is_an_error(tmp_path, shard):
    documents, kept = shard("web", TEXTS)
    with pytest.raises(FileNotFoundError):
        select(documents, str(tmp_path / "none.parquet"), ["text"])
    with pytest.raises(FileNotFoundError):
        select(str(tmp_path / "none.parquet"), kept, ["text"])


@pytest.mark.parametrize("seed", range(3))
def test_columns_of_several_files_are_joined_by_id(tmp_path, seed):
    """Two files in other orders than the selection, one with more rows; the later one's column wins."""
    ids = [f"id-{i}" for i in range(30)]
    kept = shuffled(ids, seed)[:20]
    paths = [str(tmp_path / name) for name in ("early", "late", "kept")]
    early, late = shuffled(ids, seed + 1), shuffled(kept, seed + 2)
    parquet.write_table(paths[0], pa.table({"id": early, "x": [f"x {i}" for i in early], "both": early}))
    parquet.write_table(
        paths[1], pa.table({"id": late, "y": [f"y {i}" for i in late], "both": [f"late {i}" for i in late]})
    )
    parquet.write_table(paths[2], pa.table({"id": kept, "characters": [0] * len(kept)}))
    found = gather((paths[0], paths[1]), paths[2], ["both", "y", "x", "y"])
    assert found.column_names == ["id", "both", "y", "x"]
    assert found.to_pylist() == [{"id": i, "both": f"late {i}", "y": f"y {i}", "x": f"x {i}"} for i in kept]
    with pytest.raises(LookupError, match="no column z at this step; they have "):
        gather((paths[0], paths[1]), paths[2], ["x", "z"])
    with pytest.raises(LookupError, match=r"early names 10 documents that .*late does not hold"):
        gather((paths[1],), paths[0], ["y"])
