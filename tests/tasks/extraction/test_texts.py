"""Texts of tables are those that the guarded process gives, and no guard is started for them."""

import subprocess
import sys

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.texts import documents, page_guard
from gristmill.tasks.reading.record import Record

BORDER = 1 << 20  # bytes above which a text is guarded
ODD = (
    b"",
    b" \n ",
    b"\xef\xbb\xbf  code\n",
    b"a\r\nb\r\x00c",
    b"%PDF-1.7",
    b"PK\x03\x04",
    b"\xff\xfe\xfd" * 9,
    b"<p>b",
)
PAYLOADS = st.one_of(st.sampled_from(ODD), st.binary(max_size=60), st.text(max_size=60).map(lambda t: t.encode()))


@pytest.fixture(scope="module")
def guard():
    with page_guard(Extract()) as guard:
        yield guard


def row_of(number: int) -> dict:
    return {name: None for name in ("url", "file", "offset", "length")} | {"nth": number, "id": str(number)}


def both(guard, payloads: list[bytes], kinds: list[str]) -> tuple[list[tuple], list[tuple]]:
    """What becomes of records, and what the guarded process makes of each: number and text, or number and reason."""
    extract, lost = Extract(), []
    pages = [
        (row_of(number), Record(kind, 0, None, content_type="text/plain", payload=payload))
        for number, (payload, kind) in enumerate(zip(payloads, kinds, strict=True))
    ]
    kept = [(row["nth"], row["text"]) for row in documents(iter(pages), guard, extract, lost, set())]
    assert kept == sorted(kept)  # in order
    found = kept + [(row["nth"], row["rule"], row["detail"]) for row in lost]
    calls = [
        (payload, "text/plain", None, "", "blocks", "plain", extract.types, kind == "row")
        for payload, kind in zip(payloads, kinds, strict=True)
    ]
    wanted = [
        (number, result["text"]) if "text" in result else (number, result["rule"], result["detail"])
        for number, result in enumerate(guard.map(calls))
    ]
    return sorted(found, key=lambda each: each[0]), wanted


@pytest.mark.extended
@settings(max_examples=30)
@given(st.lists(st.tuples(PAYLOADS, st.sampled_from(("row", "row", "response"))), max_size=8))
def test_texts_and_drops_are_those_of_the_guarded_process(guard, records):
    payloads, kinds = ([record[at] for record in records] for at in (0, 1))
    found, wanted = both(guard, payloads, kinds)
    assert found == wanted


@pytest.mark.extended
def test_long_texts_are_too(guard):
    found, wanted = both(guard, [b"a" * size for size in (BORDER - 1, BORDER, BORDER + 1, 9)], ["row"] * 4)
    assert found == wanted and len(found) == 4


PROGRAM = """
import sys, psutil
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.listing import Shard
shard = Shard(sys.argv[3], sys.argv[2], "a")
record = extract_shard(sys.argv[1], 0, "web", (shard,), None, (), Extract(), Normalize(), ())
children = [" ".join(each.cmdline()) for each in psutil.Process().children(recursive=True)]
print(record["rows_out"], sum("extract_page" in each for each in children))
"""


@pytest.mark.extended
def test_a_shard_of_texts_starts_no_guard_and_one_of_pages_does(tmp_path, write_warc, page):
    texts, archive = tmp_path / "a.jsonl", tmp_path / "a.warc.gz"
    texts.write_bytes(b"".join(orjson.dumps({"text": f"The mill grinds sack {n}."}) + b"\n" for n in range(50)))
    write_warc(archive, [page(b"<p>Grist to the mill.</p>")], gzip=True)
    for path, kind, printed in ((texts, "jsonl", "50 0\n"), (archive, "archive", "1 1\n")):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / kind), str(path), kind]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == printed
