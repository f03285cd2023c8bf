"""Benchmarks as files: forms of files, fields, and what is wrong with them."""

import gzip

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.tasks.decontamination.step import BenchmarkError, Decontamination, Fields, read_items

ROWS = [
    {"key": "a", "stem": "Who grinds?", "more": ["Rye", "or oats?"], "choices": {"text": ["he", "she"]}, "about": "M"},
    {"key": "b", "stem": "Who bakes?", "more": [], "choices": {"text": ["she", "", "she"]}, "about": "B"},
]
FIELDS = Fields(question=("stem", "more"), answer="choices.text", passage="about", id="key")


def write(path, kind: str) -> None:
    lines = b"\n".join(map(orjson.dumps, ROWS)) + b"\n\n"
    match kind:
        case "jsonl":
            path.write_bytes(lines)
        case "gzip":
            path.write_bytes(gzip.compress(lines))
        case "zstd":
            path.write_bytes(pa.compress(lines, "zstd", asbytes=True))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize("kind", ["jsonl", "gzip", "zstd", "parquet"])
def test_a_file_is_known_by_its_content(tmp_path, kind):
    write(tmp_path / "set", kind)
    first, second = read_items(str(tmp_path / "set"), FIELDS)
    assert (first.id, first.question, first.answers) == ("a", "Who grinds?\nRye\nor oats?", ("he", "she"))
    assert (second.id, second.question, second.answers, second.passage) == ("b", "Who bakes?", ("she",), "B")
    assert [orjson.loads(item.row) for item in (first, second)] == ROWS
    assert [item.id for item in read_items(str(tmp_path / "set"), Fields(question=("stem",)))] == ["0", "1"]


def test_what_cannot_be_used_is_said_with_its_remedy(tmp_path):
    path = tmp_path / "set.jsonl"
    wrong = {
        b'{"q": "a"}\nno json\n': "has no JSON in line 2 .* give JSON lines or Parquet",
        b'{"q": "a"}\n{"Q": "a"}\n': "has no text in the field q of row 1, whose fields are Q; correct",
        b'{"q": null}\n': "has no text in the field q of row 0",
        b'{"q": " "}\n': "has an empty question .q. in row 0; remove",
        b"[1]\n": "whose fields are a list; correct",
        b"": "has no item",
        b"PAR1 is not a table": "cannot be read .* copy or make it again",
    }
    for content, sentence in wrong.items():
        path.write_bytes(content)
        with pytest.raises(BenchmarkError, match=sentence):
            read_items(str(path), Fields(question=("q",)))
    packed = gzip.compress(b'{"q": "a"}\n')
    for at in range(10, len(packed)):
        path.write_bytes(packed[:at] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :])
        with pytest.raises(BenchmarkError, match="cannot be read .* copy or make it again"):
            read_items(str(path), Fields(question=("q",)))
    path.write_bytes(b'{"q": "a", "n": 1}\n{"q": "b", "n": 1}\n')
    with pytest.raises(BenchmarkError, match="has the id 1 in row 0 and in row 1; use another field"):
        read_items(str(path), Fields(question=("q",), id="n"))


def test_two_benchmarks_have_two_names():
    one = {"name": "mill", "path": "a", "question": ["q"]}
    with pytest.raises(ValueError, match="two benchmarks have the name mill; give each a different name"):
        Decontamination.model_validate({"benchmarks": [one, one | {"path": "b"}]})
    with pytest.raises(ValueError, match="give a larger number for the latter"):
        Decontamination.model_validate({"benchmarks": [one], "strict_words": 12, "tolerant_words": 12})
