"""Ranked search is BM25 over the words of documents, and its files are the same bytes each time."""

import math
import random
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.damage import DamagedFileError, opening
from gristmill.tasks.search.word_index import PHASE, Ranked, WordQuery, block_files, check_query, index_words
from gristmill.tasks.url.step import Url

KNOWN = ["mill", "stone", "river", "naïve", "Straße", "flour", "2026", "x1", "water", "wheel"]
CHINESE = "統計學是應用數學的一個分支"
COUNT = 400
SMALLEST_HEAP = 15_000_000  # of tantivy


def texts() -> list[str]:
    """At most 40 words each: tantivy keeps the lengths of longer ones in steps."""
    draw = random.Random(4)
    made = [" ".join(draw.choices(KNOWN, range(len(KNOWN), 0, -1), k=draw.randint(1, 30))) for _ in range(COUNT)]
    for at in range(0, COUNT, 20):
        made[at] = made[at][:40] + ", " + "".join(draw.choices(CHINESE, k=8)) + "。Stone-water!"
    return made


def words(text: str) -> list[str]:
    """By Unicode's letters and digits; each Chinese character by itself."""
    return [word.lower() for word in re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+", text)]


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("words")
    ids = [f"{i:032x}" for i in range(COUNT)]
    columns = {
        "id": ids,
        "source": ["web" if i % 3 else "books" for i in range(COUNT)],
        "url": [f"https://site{i % 7}.example/page/{i}" for i in range(COUNT)],
        "title": [None if i % 2 else f"Title {i}" for i in range(COUNT)],
        "text": pa.array(texts(), "large_string"),
    }
    parquet.write_table(str(folder / "documents.parquet"), pa.table(columns))
    parquet.write_table(str(folder / "kept.parquet"), pa.table({"id": ids[::2]}))
    rows = [{"id": name, "step": "rules", "rule": "words"} for name in ids[1::4]]
    parquet.write_table(layout.ledger_part(str(folder / "rules"), 0), ledger.from_rows(rows))
    (folder / "taken.txt").write_text(ids[3] + "\n")
    return {
        "extracted": str(folder / "documents.parquet"),
        "documents": str(folder / "documents.parquet"),
        "kept": str(folder / "kept.parquet"),
        "deciding": [str(folder / "rules")],
        "takedowns": Url(takedowns=(str(folder / "taken.txt"),)).pinned(),
    }


def made(folder: Path, given: dict, **more: int) -> dict:
    with files.recording(str(folder)) as facts:
        record = index_words(str(folder), 0, **given, **more)
    layout.mark_done(str(folder), PHASE, 0, {"record": record, "files": facts})
    return record


@pytest.fixture(scope="module")
def index(given, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("index")
    record = made(folder, given)
    assert record == {"rows_in": COUNT - 1, "kept": 200, "dropped": 199, "blocks": record["blocks"]}
    assert len(record["blocks"]) == 1
    return str(folder)


def best(index: str, query: str, n: int) -> tuple[int, list[Ranked]]:
    return WordQuery(index, query, n, None)(range(1))


def ids(index: str, query: str) -> set[int]:
    count, found = best(index, query, COUNT)
    assert count == len(found)
    return {int(one.id, 16) for one in found}


def having(test) -> set[int]:
    return {i for i, text in enumerate(texts()) if i != 3 and test(words(text))}


@pytest.mark.parametrize(
    ("query", "test"),
    [
        ("river", lambda text: "river" in text),
        ("RIVER OR naïve", lambda text: {"river", "naïve"} & set(text)),
        ("RIVER naïve", lambda text: {"river", "naïve"} <= set(text)),
        ("flour wheel -mill", lambda text: {"flour", "wheel"} <= set(text) and "mill" not in text),
        ("x1 AND straße", lambda text: {"x1", "straße"} <= set(text)),
        ('"stone river"', lambda text: ("stone", "river") in zip(text, text[1:], strict=False)),
        ("統計", lambda text: ("統", "計") in zip(text, text[1:], strict=False)),
        ('"數學"', lambda text: ("數", "學") in zip(text, text[1:], strict=False)),
        ("nowhere", lambda text: False),
    ],
)
def test_words_are_found_as_by_reading_everything(index, query, test):
    assert ids(index, query) == having(test)
    assert ids(index, query) or query == "nowhere"


def test_fields_are_found_by_what_they_have(index):
    every = set(range(COUNT)) - {3}
    assert ids(index, "url:site3") == {i for i in every if i % 7 == 3}
    assert ids(index, "title:title") == ids(index, "Title") == {i for i in every if i % 2 == 0}
    assert ids(index, "source:books") == {i for i in every if i % 3 == 0}
    assert ids(index, "kept:true") == {i for i in every if i % 2 == 0}
    assert ids(index, "rule:words") == ids(index, "step:rules") == {i for i in every if i % 4 == 1}
    assert ids(index, f"id:{7:032x}") == {7} and ids(index, f"id:{3:032x}") == set(), "one was taken down"
    _, [one] = best(index, f"id:{5:032x}", 1)
    assert (one.kept, one.step, one.rule, one.shard) == (False, "rules", "words", 0)


@pytest.mark.parametrize("query", ["river", "wheel", "water OR 2026"])
def test_scores_are_bm25(index, query):
    """Robertson and Zaragoza 2009 with k1 = 1.2 and b = 0.75; the idf is ln(1 + (N - n + 0.5) / (n + 0.5))."""
    corpus = {i: words(text) for i, text in enumerate(texts()) if i != 3}
    mean = sum(map(len, corpus.values())) / len(corpus)
    wanted = dict.fromkeys(corpus, 0.0)
    for word in query.split(" OR "):
        having = sum(word in text for text in corpus.values())
        idf = math.log(1 + (len(corpus) - having + 0.5) / (having + 0.5))
        for i, text in corpus.items():
            times = text.count(word)
            wanted[i] += idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(text) / mean))
    _, found = best(index, query, 50)
    assert [one.score for one in found] == pytest.approx(sorted(wanted.values(), reverse=True)[:50], rel=1e-4)
    for one in found:
        assert one.score == pytest.approx(wanted[int(one.id, 16)], rel=1e-4)


@pytest.mark.parametrize("query", ['"open', "nofield:x", "kept:maybe"])
def test_what_is_no_query_is_an_error(query):
    with pytest.raises(ValueError, match=r"is not a query: .*Fields are text, title"):
        check_query(query)


def test_the_files_are_the_same_bytes_each_time(given, index, tmp_path):
    made(tmp_path, given)
    names = sorted(path.name for path in tmp_path.glob("words-*"))
    assert len(names) == 7 and all("00000-000" in name for name in names)
    for name in names:
        assert (tmp_path / name).read_bytes() == (Path(index) / name).read_bytes(), name


def test_documents_of_several_blocks_are_found_as_those_of_one(given, index, tmp_path):
    assert len(made(tmp_path, given, block_bytes=5_000)["blocks"]) > 5
    for query in ("river", "flour wheel -mill", "kept:true", "統計"):
        assert ids(str(tmp_path), query) == ids(index, query)


@pytest.mark.extended
def test_a_block_with_more_words_than_a_segment_holds_becomes_two(given, tmp_path):
    draw = random.Random(6)
    many = [" ".join(f"{draw.randrange(1 << 40):x}" for _ in range(12_000)) for _ in range(8)]
    columns = parquet.read_table(given["documents"], ["id", "source", "url", "title"]).slice(0, 8)
    table = columns.append_column("text", pa.array(many, "large_string"))
    documents, kept = str(tmp_path / "documents.parquet"), str(tmp_path / "kept.parquet")
    parquet.write_table(documents, table)
    parquet.write_table(kept, table.select(["id"]))
    more = given | {"extracted": documents, "documents": documents, "kept": kept, "takedowns": Url()}
    record = made(tmp_path / "index", more, heap_bytes=SMALLEST_HEAP)
    assert len(record["blocks"]) > 1 and record["kept"] == 8
    for i, text in enumerate(many):
        assert ids(str(tmp_path / "index"), text.split()[100]) == {i}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("end", [".idx", ".fieldnorm", ".term", ".store", ".pos", ".fast", ".meta.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "exchange", "missing"])
def test_a_damaged_file_is_named_before_it_is_opened(index, tmp_path, given, end, how):
    """tantivy panics over some of them, and gives other scores by others."""
    folder = tmp_path / "stages" / "word_index-0123456789abcdef"
    shutil.copytree(index, folder)
    path = folder / f"{block_files(0, 0)}{end}"
    if how == "flip":
        flip(path)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif how == "missing":
        path.unlink()
    else:
        other = tmp_path / "other"
        made(other, given | {"kept": given["documents"]})
        if (theirs := (other / path.name).read_bytes()) == path.read_bytes():
            pytest.skip("which both have")
        path.write_bytes(theirs)
    # the mark has the name of its place
    record = layout.done_part(index, PHASE, 0)
    layout.mark_done(str(folder), PHASE, 0, {"record": record.record, "files": record.files})
    match = f"{end} is (not what was written|missing); remove the stage's folder"
    with pytest.raises(DamagedFileError, match=match) as raised:
        best(str(folder), "river", 5)
    assert len(str(raised.value).splitlines()) == 1


class PanicException(BaseException):
    """As pyo3 calls what a panic of Rust becomes."""


@pytest.mark.parametrize("error", [PanicException("index out of bounds"), OSError("no such segment"), ValueError("x")])
def test_what_a_library_raises_is_one_sentence(error):
    with pytest.raises(DamagedFileError, match="/a is not a valid index: .*; make it again") as raised:
        with opening("/a", "index", "make it again", DamagedFileError):
            raise error
    assert len(str(raised.value).splitlines()) == 1
    for ending in (KeyboardInterrupt(), SystemExit(2), MemoryError()):
        with pytest.raises(type(ending)), opening("/a", "index", "make it again"):
            raise ending
